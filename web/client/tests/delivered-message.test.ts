/** A message that is repeated in other pieces, after any loss, comes out as if it had been sent once. */

import { readUIMessageStream, type UIMessage, type UIMessageChunk } from 'ai';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { chunksOf } from '../src/live/chunks-of.js';
import { DeliveredMessage } from '../src/live/delivered-message.js';

type Item =
  | { kind: 'text' | 'reasoning'; text: string }
  | { kind: 'call'; asks: boolean; outcome: 'output' | 'error' | 'denied' }
  | { kind: 'file'; name: number };

const item: fc.Arbitrary<Item> = fc.oneof(
  fc.record({ kind: fc.constantFrom('text' as const, 'reasoning' as const), text: fc.string({ minLength: 1, maxLength: 12 }) }),
  fc.record({ kind: fc.constant('call' as const), asks: fc.boolean(), outcome: fc.constantFrom('output', 'error', 'denied') }),
  fc.record({ kind: fc.constant('file' as const), name: fc.integer({ min: 0, max: 2 }) }),
);
const steps = fc.array(fc.array(item, { minLength: 1, maxLength: 4 }), { minLength: 1, maxLength: 3 });

/** The stream of a message; `size` is how many characters a piece of text has. */
function stream(all: Item[][], size: number): UIMessageChunk[] {
  const chunks: object[] = [{ type: 'start', messageId: 'm' }];
  let index = 0;
  for (const items of all) {
    chunks.push({ type: 'start-step' });
    index += 1;
    for (const one of items) {
      chunks.push(...pieces(one, index, size));
      index += 1;
    }
    chunks.push({ type: 'finish-step' });
  }
  return [...chunks, { type: 'finish', finishReason: 'stop' }] as UIMessageChunk[];
}

function pieces(one: Item, index: number, size: number): object[] {
  if (one.kind === 'file') return [{ type: 'file', url: `https://example.org/${one.name}`, mediaType: 'image/png' }];
  if (one.kind === 'call') {
    const toolCallId = `c${index}`;
    const outcome = {
      output: { type: 'tool-output-available', toolCallId, output: { index } },
      error: { type: 'tool-output-error', toolCallId, errorText: 'no' },
      denied: { type: 'tool-output-denied', toolCallId },
    }[one.outcome];
    return [
      { type: 'tool-input-start', toolCallId, toolName: 'pay' },
      { type: 'tool-input-available', toolCallId, toolName: 'pay', input: { index } },
      ...(one.asks ? [{ type: 'tool-approval-request', approvalId: `a${index}`, toolCallId }] : []),
      outcome,
    ];
  }
  const id = `t${index}`;
  const letters = one.text;
  const deltas = Array.from({ length: Math.ceil(letters.length / size) }, (_, at) => letters.slice(at * size, (at + 1) * size));
  return [
    { type: `${one.kind}-start`, id },
    ...deltas.map((delta) => ({ type: `${one.kind}-delta`, id, delta })),
    { type: `${one.kind}-end`, id },
  ];
}

async function fold(chunks: UIMessageChunk[], message?: UIMessage): Promise<UIMessage['parts']> {
  const source = new ReadableStream<UIMessageChunk>({
    start(controller) {
      for (const chunk of structuredClone(chunks)) controller.enqueue(chunk);
      controller.close();
    },
  });
  let last: UIMessage | undefined = message;
  for await (const state of readUIMessageStream({
    stream: source,
    ...(message && { message: structuredClone(message) }),
    terminateOnError: true,
  })) {
    last = structuredClone(state);
  }
  return JSON.parse(JSON.stringify(last?.parts ?? [])) as UIMessage['parts'];
}

function through(delivered: DeliveredMessage, chunks: UIMessageChunk[], repeats?: boolean): UIMessageChunk[] {
  delivered.begin(repeats);
  return chunks.flatMap((chunk) => delivered.take(chunk));
}

function renamed(chunk: UIMessageChunk): UIMessageChunk {
  const { toolCallId, approvalId } = chunk as { toolCallId?: string; approvalId?: string };
  return {
    ...chunk,
    ...(toolCallId !== undefined && { toolCallId: `new-${toolCallId}` }),
    ...(approvalId !== undefined && { approvalId: `new-${approvalId}` }),
  } as UIMessageChunk;
}

/** What `reset-step` of v7 does, so that v6 can fold it as well. */
function takenBack(chunks: UIMessageChunk[]): UIMessageChunk[] {
  return chunks.reduce<UIMessageChunk[]>((kept, chunk) => {
    if ((chunk.type as string) !== 'reset-step') return kept.concat(chunk);
    const step = kept.findLastIndex(({ type }) => type === 'start-step');
    return kept.slice(0, step + 1);
  }, []);
}

const sizes = fc.tuple(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 15 }), fc.integer({ min: 1, max: 15 }));

describe('DeliveredMessage', () => {
  it('cut anywhere, twice, and repeated from the start', async () => {
    await fc.assert(
      fc.asyncProperty(steps, sizes, fc.nat(), fc.nat(), async (all, [first, second, third], cut, again) => {
        const sent = stream(all, first);
        const delivered = new DeliveredMessage();
        const got = through(delivered, sent.slice(0, cut % (sent.length + 1)));
        const repeated = stream(all, second);
        got.push(...through(delivered, repeated.slice(0, again % (repeated.length + 1)), true));
        got.push(...through(delivered, stream(all, third), true), ...delivered.end());
        expect(await fold(got)).toEqual(await fold(sent));
      }),
      { numRuns: 60 },
    );
  });

  it('a continuation of a message that the chat has, sent alone or with all that came before', async () => {
    await fc.assert(
      fc.asyncProperty(steps, steps, sizes, fc.boolean(), async (others, after, [first, second], isWhole) => {
        // What is continued has a call: its answer is why.
        const before: Item[][] = [[{ kind: 'call', asks: true, outcome: 'output' }], ...others];
        const all = [...before, ...after];
        const had = await fold(stream(before, first));
        const message = { id: 'm', role: 'assistant', parts: had } as UIMessage;
        const whole = stream(all, second);
        // What is new begins behind the steps that were there.
        const from = stream(before, second).length - 1;
        const sent = isWhole ? whole : [whole[0] as UIMessageChunk, ...whole.slice(from)];
        const delivered = new DeliveredMessage(message);
        const got = [...through(delivered, sent), ...delivered.end()];
        expect(await fold(got, message)).toEqual(await fold(whole));
      }),
      { numRuns: 60 },
    );
  });

  it('a repeated message has no news', async () => {
    await fc.assert(
      fc.asyncProperty(steps, sizes, async (all, [first, second]) => {
        const message = { id: 'm', role: 'assistant', parts: await fold(stream(all, first)) } as UIMessage;
        const delivered = new DeliveredMessage(message);
        through(delivered, stream(all, second), true);
        delivered.end();
        expect(delivered.hasNews).toBe(false);
      }),
      { numRuns: 60 },
    );
  });
});

describe('a step that is begun again', () => {
  /** All but the last step are the same; of that one the chat has a part, whatever it said. */
  it('is taken back, and told from its beginning', async () => {
    await fc.assert(
      fc.asyncProperty(steps, steps, sizes, fc.nat(), fc.nat(), async (all, others, [first, second, third], cut, again) => {
        const last = others[0] as Item[];
        const before = all.slice(0, -1);
        const sent = stream(all, first);
        const settled = stream(before, first).length - 1;
        const delivered = new DeliveredMessage(undefined, 7);
        // It breaks in the last step: what is before it is settled.
        const broken = sent.slice(0, settled + 1 + (cut % (sent.length - settled - 2)));
        const isSettled = ({ type }: UIMessageChunk) => /^tool-(output|approval)/.test(type);
        const got = through(
          delivered,
          broken.filter((chunk, at) => at < settled || !isSettled(chunk)),
        );
        // Its calls have other ids.
        const whole = (size: number) => {
          const from = stream(before, size).length - 1;
          return stream([...before, last], size).map((chunk, at) => (at < from ? chunk : renamed(chunk)));
        };
        const anew = whole(second);
        got.push(...through(delivered, anew.slice(0, again % (anew.length + 1)), true));
        got.push(...through(delivered, whole(third), true), ...delivered.end());
        expect(await fold(takenBack(got))).toEqual(await fold(anew));
      }),
      { numRuns: 200 },
    );
  });

  it('a repetition tells the metadata that came meanwhile', () => {
    const delivered = new DeliveredMessage();
    const sent = stream([[{ kind: 'text', text: 'one' }]], 2);
    const got = through(delivered, sent.slice(0, 4));
    const [start, ...rest] = sent;
    const whole = [{ ...start, messageMetadata: { ended: 'stopped' } } as UIMessageChunk, ...rest];
    got.push(...through(delivered, whole, true), ...delivered.end());
    expect(got.filter(({ type }) => type === 'message-metadata')).toEqual([
      { type: 'message-metadata', messageMetadata: { ended: 'stopped' } },
    ]);
  });

  it('is an error where the chat cannot take it back', () => {
    const delivered = new DeliveredMessage(undefined, 6);
    const of = (text: string) => stream([[{ kind: 'text', text }]], 2);
    through(delivered, of('one answer').slice(0, 5));
    expect(() => through(delivered, of('another'), true)).toThrow(/begun again/);
  });
});

describe('chunksOf', () => {
  it('makes the message that it was made of', async () => {
    await fc.assert(
      fc.asyncProperty(steps, async (all) => {
        const parts = await fold(stream(all, 4));
        const again = [{ type: 'start', messageId: 'm' }, ...chunksOf({ parts }), { type: 'finish' }] as UIMessageChunk[];
        expect(await fold(again)).toEqual(parts);
      }),
      { numRuns: 60 },
    );
  });
});
