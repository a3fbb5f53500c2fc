/** An answer over HTTP whose connection breaks goes on, and the chat shows it once. */

import { readUIMessageStream, type ChatTransport, type UIMessage, type UIMessageChunk } from 'ai';
import { describe, expect, it } from 'vitest';

import { resumed } from '../src/resumed-stream.js';

const WHOLE = [
  { type: 'start', messageId: 'm' },
  { type: 'start-step' },
  { type: 'text-start', id: 't1' },
  { type: 'text-delta', id: 't1', delta: 'one ' },
  { type: 'text-delta', id: 't1', delta: 'two ' },
  { type: 'text-delta', id: 't1', delta: 'three' },
  { type: 'text-end', id: 't1' },
  { type: 'finish-step' },
  { type: 'finish' },
] as UIMessageChunk[];

/** A stream of these chunks that ends in order, or breaks. */
function stream(chunks: UIMessageChunk[], breaks: boolean): ReadableStream<UIMessageChunk> {
  const left = [...chunks];
  return new ReadableStream({
    pull(controller) {
      const next = left.shift();
      if (next !== undefined) controller.enqueue(next);
      else if (breaks) controller.error(new TypeError('terminated'));
      else controller.close();
    },
  });
}

/** A transport whose first answer breaks after some chunks; each attempt to resume it does what is next in the list. */
function broken(after: number, attempts: (() => Promise<ReadableStream<UIMessageChunk> | null>)[]) {
  const transport: ChatTransport<UIMessage> = {
    sendMessages: async () => stream(WHOLE.slice(0, after), true),
    reconnectToStream: async () => (attempts.shift() as () => Promise<ReadableStream<UIMessageChunk> | null>)(),
  };
  return transport;
}

async function shown(transport: ChatTransport<UIMessage>, stored: UIMessage[] = []): Promise<string> {
  const safe = resumed(transport, { load: async () => stored });
  const messages = [{ id: 'u', role: 'user' as const, parts: [{ type: 'text' as const, text: 'count' }] }];
  const request = { trigger: 'submit-message' as const, chatId: 'c', messageId: undefined, messages, abortSignal: undefined };
  let last: UIMessage | undefined;
  for await (const state of readUIMessageStream({ stream: await safe.sendMessages(request), terminateOnError: true }))
    last = state;
  return (last?.parts ?? []).map((part) => (part.type === 'text' ? part.text : '')).join('');
}

describe('an answer that breaks off', () => {
  it.each([4, 5, 6, 8])('goes on where it broke, after %i chunks', async (after) => {
    const unavailable = async () => Promise.reject(new Error('503'));
    expect(
      await shown(broken(after, [unavailable, async () => stream(WHOLE.slice(0, 5), true), async () => stream(WHOLE, false)])),
    ).toBe('one two three');
  });

  it('is read from the store where it has ended meanwhile', async () => {
    const parts = [{ type: 'step-start' as const }, { type: 'text' as const, text: 'one two three', state: 'done' as const }];
    const stored = [{ id: 'm', role: 'assistant' as const, parts }];
    expect(await shown(broken(4, [async () => null]), stored)).toBe('one two three');
  });

  it('is not looked for where nothing of it came, or where it was over', async () => {
    await expect(shown(broken(0, []))).rejects.toThrow('terminated');
    expect(await shown(broken(WHOLE.length, []))).toBe('one two three');
  });
});
