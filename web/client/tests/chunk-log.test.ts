/** A conversation with the real server, kept as lines of JSON, and played back to another chat. */

import { Chat } from '@ai-sdk/react';
import type { ChatTransport, UIMessage } from 'ai';
import { afterAll, beforeAll, expect, it, vi } from 'vitest';

import { buildUseChatOptions, ChunkLog, parseChunkLog, playChunkLog, sendAutomaticallyWhen } from '../src/index.js';
import { isToolPart, type ToolPart } from '../src/tool-parts.js';
import { startServer, WAIT_LIMIT_MS, type Server } from './server.js';

let server: Server;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());

const ready = (chat: Chat<UIMessage>) => vi.waitFor(() => expect(chat.status).toBe('ready'), WAIT_LIMIT_MS);

/** The same things said and answered; returns what the chat then shows. */
async function converse(chat: Chat<UIMessage>): Promise<UIMessage[]> {
  await chat.resumeStream();
  await chat.sendMessage({ text: 'say hello' });
  await chat.sendMessage({ text: 'call process_payment {"amount":50,"recipient":"Hanako"}' });
  const part = chat.lastMessage?.parts.find((part) => isToolPart(part)) as ToolPart;
  await chat.addToolApprovalResponse({ id: part.approval?.id ?? '', approved: true });
  await vi.waitFor(() => expect(chat.lastMessage?.parts.at(-1)).toMatchObject({ type: 'text', state: 'done' }), WAIT_LIMIT_MS);
  await ready(chat);
  return JSON.parse(JSON.stringify(chat.messages.filter(({ role }) => role === 'assistant'))) as UIMessage[];
}

it('plays back what it has kept', async () => {
  const log = new ChunkLog();
  const recorded = await converse(new Chat(buildUseChatOptions({ mode: 'sse', baseUrl: server.url, log })));
  const kinds = log.entries.map(({ kind }) => kind);
  expect(kinds.filter((kind) => kind === 'send')).toHaveLength(3);
  expect(kinds.slice(0, 3)).toEqual(['resume', 'nothing', 'send']);
  expect(kinds.filter((kind) => kind === 'end')).toHaveLength(3);
  const times = log.entries.map(({ at }) => at);
  expect(times).toEqual([...times].sort((a, b) => a - b));

  const jsonl = log.toJsonl();
  expect(parseChunkLog(jsonl)).toEqual(log.entries);
  for (const speed of [undefined, 50]) {
    const transport = playChunkLog(jsonl, speed === undefined ? {} : { speed });
    const played = await converse(new Chat({ transport, sendAutomaticallyWhen }));
    expect(played).toEqual(recorded);
  }
});

it('keeps errors, and has no answer to what was never asked', async () => {
  const log = new ChunkLog();
  const broken = {
    sendMessages: () => Promise.reject(new Error('away')),
    reconnectToStream: async () => null,
  } as ChatTransport<UIMessage>;
  const chat = new Chat({ transport: log.record(broken), onError: () => {} });
  await chat.sendMessage({ text: 'hello' });
  expect(log.entries.at(-1)).toMatchObject({ kind: 'error', message: 'away' });
  const again = new Chat({ transport: playChunkLog(log.entries), onError: () => {} });
  await again.sendMessage({ text: 'hello' });
  expect(again.error?.message).toBe('away');
  await again.sendMessage({ text: 'hello' });
  expect(again.error?.message).toBe('the recording has no more requests');
});

it.each([
  ['its stream goes on after the answer', []],
  [
    'its stream ends with the question',
    [{ type: 'finish', finishReason: 'tool-calls' }, '[DONE]', { type: 'start', messageId: 'a' }],
  ],
])('a question in a log of adk-stream-protocol is asked: %s', async (_, between) => {
  const call = { toolCallId: 'c', toolName: 'pay', input: {} };
  const log = foreign('frontend-sse-event', [
    { type: 'start', messageId: 'a' },
    { type: 'tool-input-available', ...call },
    { type: 'tool-approval-request', approvalId: 'q', toolCallId: 'c' },
    { type: 'finish-step' },
    ...between,
    { type: 'tool-output-available', toolCallId: 'c', output: 'paid' },
    { type: 'finish', finishReason: 'stop' },
    '[DONE]',
  ]);
  const chat = new Chat({ transport: playChunkLog(log), sendAutomaticallyWhen });
  await chat.sendMessage({ text: 'pay' });
  expect(chat.lastMessage?.parts.at(-1)).toMatchObject({ state: 'approval-requested' });
  await chat.addToolApprovalResponse({ id: 'q', approved: true });
  await vi.waitFor(
    () => expect(chat.lastMessage?.parts.at(-1)).toMatchObject({ state: 'output-available', output: 'paid' }),
    WAIT_LIMIT_MS,
  );
  await ready(chat);
});

it('says which line it cannot read', () => {
  expect(() => parseChunkLog('{"at":0,"request":0,"kind":"resume"}\n\n{"at":')).toThrow('line 3 is not an entry of a chunk log');
});

/** Lines as adk-stream-protocol logs them. */
const foreign = (location: string, chunks: unknown[]) =>
  chunks
    .map(
      (chunk, index) =>
        `${JSON.stringify({ timestamp: 5_000 + index, session_id: 's', mode: 'adk-sse', location, direction: 'in', sequence_number: index, chunk })}\n`,
    )
    .join('');

const said = (id: string, text: string) => [
  { type: 'start', messageId: id },
  { type: 'text-start', id: '0' },
  { type: 'text-delta', id: '0', delta: text },
  { type: 'text-end', id: '0' },
  { type: 'finish', finishReason: 'stop' },
];
const events = (chunks: unknown[]) => [...chunks.map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`), 'data: [DONE]\n\n'];

it.each([
  ['objects without ends', foreign('frontend-useChat-chunk', [...said('a', 'one'), ...said('b', 'two')])],
  ['SSE events', foreign('backend-sse-event', [...events(said('a', 'one')), ...events(said('b', 'two'))])],
  ['objects with ends', foreign('frontend-sse-event', [...said('a', 'one'), '[DONE]', ...said('b', 'two'), '[DONE]'])],
  [
    'the same in a second place, what belongs to no answer, and events as Python prints them',
    foreign('backend-adk-event', ["Event(id='1')"]) +
      foreign('frontend-ws-chunk', [
        { type: 'data-chat', data: { id: 'c' } },
        ...said('a', 'one'),
        '[DONE]',
        ...said('b', 'two'),
        '[DONE]',
      ]) +
      foreign('frontend-useChat-chunk', said('a', 'one')),
  ],
  [
    'both directions of a socket',
    foreign('frontend-ws-chunk', [
      '{"type":"message","messages":[]}',
      { type: 'turn-start', turn: 0 },
      ...said('a', 'one'),
      '[DONE]',
      '{"type":"ping","timestamp":1}',
      '{"type":"pong","timestamp":1}',
      '{"type":"message","messages":[]}',
      ...said('b', 'two'),
      '[DONE]',
    ]),
  ],
])('plays logs of adk-stream-protocol: %s', async (_, log) => {
  const chat = new Chat({ transport: playChunkLog(log), onError: () => {} });
  for (const text of ['one', 'two']) {
    await chat.sendMessage({ text: 'anything' });
    expect(chat.lastMessage?.parts).toMatchObject([{ type: 'text', text, state: 'done' }]);
  }
  await chat.sendMessage({ text: 'more' });
  expect(chat.error?.message).toBe('the recording has no more requests');
  expect(parseChunkLog(log)[0]).toMatchObject({ at: 0, kind: 'send' });
});
