/** A chunk log is read back as it was written, and anything else is no log. */
import { ChunkLog } from '@adk-bridge/client';
import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai';
import fc from 'fast-check';
import { expect, it } from 'vitest';

import { recordedAnswers } from './recorded';

const line = (request: number, direction: string, data: unknown) =>
  JSON.stringify({ number: 1, request, at: 5, direction, type: 'x', data });

const typesOf = (text: string) => recordedAnswers(text).map(({ chunks }) => chunks.map(({ chunk }) => chunk.type));

it('gathers the chunks of each request', () => {
  const text = [
    line(1, 'out', { type: 'request' }),
    line(1, 'in', { type: 'start' }),
    line(1, 'in', { type: 'start-step' }),
    line(2, 'in', { type: 'start' }),
    'no json',
    line(1, 'in', null),
  ].join('\n');
  expect(typesOf(text)).toEqual([['start', 'start-step']]);
});

it('tells the turns of one connection apart, and leaves out what is no chunk', () => {
  const frames = ['turn-start', 'start', 'start-step', 'finish', 'turn-end', 'pong', 'start', 'start-step', 'interrupted'];
  const text = frames.map((type) => line(1, 'in', { type })).join('\n');
  expect(typesOf(text)).toEqual([
    ['start', 'start-step', 'finish'],
    ['start', 'start-step'],
  ]);
});

it('reads what the library writes', async () => {
  const chunks: UIMessageChunk[] = [{ type: 'start' }, { type: 'start-step' }, { type: 'finish' }];
  const transport: ChatTransport<UIMessage> = {
    sendMessages: async () =>
      new ReadableStream({ start: (out) => (chunks.forEach((chunk) => out.enqueue(chunk)), out.close()) }),
    reconnectToStream: async () => null,
  };
  const log = new ChunkLog();
  const request = { chatId: 'c', messages: [], messageId: undefined, abortSignal: undefined };
  const stream = await log.record(transport).sendMessages({ ...request, trigger: 'submit-message' });
  for (const reader = stream.getReader(); !(await reader.read()).done; );
  expect(typesOf(log.toJsonl())).toEqual([['start', 'start-step', 'finish']]);
});

it('takes any text without harm', () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 200 }), (text) => {
      expect(recordedAnswers(text)).toEqual([]);
    }),
  );
});
