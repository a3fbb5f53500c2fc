/** Client tools on their own: when they run, how often, and what is reported. */

import { afterEach, describe, expect, it, vi } from 'vitest';

import { defineClientTools, type JournalStorage, type MessageLike, type ToolChat, type ToolPart } from '../src/index.js';

/** A chat as the tools see it; an output changes the part as the AI SDK does. */
class PlainChat implements ToolChat {
  readonly id = 'chat';
  status = 'ready';
  messages: MessageLike[] = [];
  readonly reports: Record<string, unknown>[] = [];

  constructor(...parts: ToolPart[]) {
    this.messages = [{ id: 'a', role: 'assistant', parts }];
  }

  set(...parts: ToolPart[]): void {
    this.messages = [{ id: 'a', role: 'assistant', parts }];
  }

  addToolOutput(report: Record<string, unknown>): void {
    this.reports.push(report);
    const { toolCallId, state = 'output-available', output, errorText } = report;
    this.messages = this.messages.map((message) => ({
      ...message,
      parts: (message.parts as ToolPart[]).map((part) =>
        part.toolCallId === toolCallId ? ({ ...part, state, output, errorText } as ToolPart) : part,
      ),
    }));
  }
}

function memory(): JournalStorage {
  const values = new Map<string, string>();
  return { getItem: (key) => values.get(key) ?? null, setItem: (key, value) => void values.set(key, value) };
}

function call(state: string, more: Partial<ToolPart> = {}): ToolPart {
  return { type: 'tool-pick', toolCallId: 'c1', state, input: { a: 1 }, ...more };
}

const confirmation = (state: string, approved?: boolean): ToolPart => ({
  type: 'tool-adk_request_confirmation',
  toolCallId: 'ask',
  state,
  input: { originalFunctionCall: { id: 'c1' } },
  ...(approved !== undefined && { approval: { id: 'ask', approved } }),
});

const approved = { approval: { id: 'x', approved: true } };
const denied = { approval: { id: 'x', approved: false } };

afterEach(() => vi.useRealTimers());

describe('when a tool runs', () => {
  const cases: [string, boolean, string, ToolPart[]][] = [
    ['without approval, turn over', true, 'ready', [call('input-available')]],
    ['without approval, turn under way: a question may follow', false, 'streaming', [call('input-available')]],
    ['turn failed', false, 'error', [call('input-available')]],
    ['input not complete', false, 'ready', [call('input-streaming')]],
    ['asked', false, 'ready', [call('approval-requested', { approval: { id: 'x' } })]],
    ['approved', true, 'ready', [call('approval-responded', approved)]],
    ['approved while another turn is streamed', true, 'streaming', [call('approval-responded', approved)]],
    ['denied', false, 'ready', [call('approval-responded', denied)]],
    ['settled', false, 'ready', [call('output-available', { output: 1 })]],
    ['run by the provider', false, 'ready', [call('input-available', { providerExecuted: true })]],
    ['adk, asked', false, 'ready', [call('input-available'), confirmation('approval-requested')]],
    ['adk, approved', true, 'ready', [call('input-available'), confirmation('approval-responded', true)]],
    ['adk, denied', false, 'ready', [call('input-available'), confirmation('approval-responded', false)]],
    ['not ours', false, 'ready', [{ ...call('input-available'), type: 'tool-other' }]],
  ];
  it.each(cases)('%s: %s', async (_name, runs, status, parts) => {
    const pick = vi.fn((input: unknown) => input);
    const tools = defineClientTools({ pick }, { storage: memory() });
    const chat = new PlainChat(...parts);
    chat.status = status;
    await tools.run(chat);
    expect(pick).toHaveBeenCalledTimes(runs ? 1 : 0);
    expect(chat.reports).toEqual(runs ? [{ tool: 'pick', toolCallId: 'c1', output: { a: 1 } }] : []);
  });

  it('not in a message that the conversation has left behind, unless approved', async () => {
    const pick = vi.fn(() => 1);
    const tools = defineClientTools({ pick }, { storage: null });
    const chat = new PlainChat(call('input-available'), call('approval-responded', { toolCallId: 'c2', ...approved }));
    chat.messages = [...chat.messages, { id: 'u', role: 'user', parts: [] }];
    await tools.run(chat);
    expect(chat.reports.map((report) => report['toolCallId'])).toEqual(['c2']);
  });
});

describe('how often', () => {
  it('once, however often the chat is looked at', async () => {
    const pick = vi.fn(() => 1);
    const tools = defineClientTools({ pick }, { storage: null });
    const chat = new PlainChat(call('input-available'));
    await Promise.all([tools.run(chat), tools.run(chat), tools.run(chat)]);
    await tools.run(chat);
    expect(pick).toHaveBeenCalledTimes(1);
    expect(chat.reports).toHaveLength(1);
  });

  it.each([
    ['an output', () => 'teal', { output: 'teal' }],
    [
      'an error',
      () => {
        throw new Error('no');
      },
      { state: 'output-error', errorText: 'no' },
    ],
  ])('a report that a replayed turn has overwritten is made again, without a second run: %s', async (_name, run, outcome) => {
    const pick = vi.fn(run);
    const tools = defineClientTools({ pick }, { storage: null });
    const chat = new PlainChat(call('input-available'));
    await tools.run(chat);
    chat.set(call('input-available'));
    chat.status = 'streaming';
    await tools.run(chat);
    expect(chat.reports).toHaveLength(1);
    chat.status = 'ready';
    await Promise.all([tools.run(chat), tools.run(chat)]);
    await tools.run(chat);
    expect(pick).toHaveBeenCalledTimes(1);
    expect(chat.reports).toEqual([1, 2].map(() => ({ tool: 'pick', toolCallId: 'c1', ...outcome })));
  });

  it('a call that was overwritten while it runs is reported once', async () => {
    let finish: (value: string) => void = () => {};
    const tools = defineClientTools({ pick: () => new Promise((resolve) => (finish = resolve)) }, { storage: null });
    const chat = new PlainChat(call('input-available'));
    const run = tools.run(chat);
    await vi.waitFor(() => expect(tools.running.get()).toEqual(['c1']));
    chat.set(call('input-available'));
    await tools.run(chat);
    finish('teal');
    await run;
    expect(chat.reports).toEqual([{ tool: 'pick', toolCallId: 'c1', output: 'teal' }]);
  });

  it('a reload after the run reports the same output and does not run again', async () => {
    const storage = memory();
    await defineClientTools({ pick: () => 'teal' }, { storage }).run(new PlainChat(call('input-available')));
    const again = vi.fn();
    const chat = new PlainChat(call('input-available'));
    await defineClientTools({ pick: again }, { storage }).run(chat);
    expect(again).not.toHaveBeenCalled();
    expect(chat.reports).toEqual([{ tool: 'pick', toolCallId: 'c1', output: 'teal' }]);
  });

  it('a reload in the middle of the run reports that, and does not run again', async () => {
    const storage = memory();
    void defineClientTools({ pick: () => new Promise(() => {}) }, { storage }).run(new PlainChat(call('input-available')));
    const again = vi.fn();
    const chat = new PlainChat(call('input-available'));
    await defineClientTools({ pick: again }, { storage }).run(chat);
    expect(again).not.toHaveBeenCalled();
    expect(chat.reports).toEqual([
      expect.objectContaining({ state: 'output-error', errorText: expect.stringMatching(/was closed/) as string }),
    ]);
  });

  it('another chat may have a call of the same id', async () => {
    const storage = memory();
    const pick = vi.fn(() => 1);
    await defineClientTools({ pick }, { storage }).run(new PlainChat(call('input-available')));
    await defineClientTools({ pick }, { storage }).run(Object.assign(new PlainChat(call('input-available')), { id: 'other' }));
    expect(pick).toHaveBeenCalledTimes(2);
  });

  it('a storage that is full or broken does not keep a tool from running', async () => {
    const storage = {
      getItem: () => '{not json',
      setItem: () => {
        throw new Error('full');
      },
    };
    const chat = new PlainChat(call('input-available'));
    await defineClientTools({ pick: () => 1 }, { storage }).run(chat);
    expect(chat.reports).toHaveLength(1);
  });
});

describe('what is reported', () => {
  const outputs: [string, () => unknown, Record<string, unknown>][] = [
    ['nothing', () => undefined, { output: null }],
    ['an object', () => ({ a: [1, undefined] }), { output: { a: [1, null] } }],
    [
      'an error',
      () => {
        throw new Error('the lens cap is on');
      },
      { state: 'output-error', errorText: 'the lens cap is on' },
    ],
    ['a rejection', () => Promise.reject(new Error('no')), { state: 'output-error', errorText: 'no' }],
    [
      'an error without words',
      () => {
        throw new Error('');
      },
      { state: 'output-error', errorText: 'the tool failed without saying why' },
    ],
    [
      'what is no error',
      () => {
        throw 'oops';
      },
      { state: 'output-error', errorText: 'oops' },
    ],
    ['what is no JSON', () => 1n, { state: 'output-error', errorText: expect.stringMatching(/BigInt/) }],
  ];
  it.each(outputs)('%s', async (_name, pick, expected) => {
    const chat = new PlainChat(call('input-available'));
    await defineClientTools({ pick }, { storage: memory() }).run(chat);
    expect(chat.reports).toEqual([{ tool: 'pick', toolCallId: 'c1', ...expected }]);
  });

  it('a tool that takes too long is aborted and reported', async () => {
    vi.useFakeTimers();
    let signal: AbortSignal | undefined;
    const pick = {
      timeoutMs: 1000,
      execute: (_input: unknown, context: { signal: AbortSignal }) => new Promise(() => (signal = context.signal)),
    };
    const tools = defineClientTools({ pick }, { storage: null });
    const chat = new PlainChat(call('input-available'));
    const run = tools.run(chat);
    await vi.advanceTimersByTimeAsync(999);
    expect(tools.running.get()).toEqual(['c1']);
    await vi.advanceTimersByTimeAsync(1);
    await run;
    expect(signal?.aborted).toBe(true);
    expect(chat.reports).toEqual([expect.objectContaining({ errorText: 'pick returned nothing within 1000 ms' })]);
    expect(tools.running.get()).toEqual([]);
  });

  it('a cancelled call is reported, another one goes on', async () => {
    const tools = defineClientTools(
      { pick: ({ wait }: { wait?: boolean }) => (wait ? new Promise(() => {}) : 2) },
      { storage: null },
    );
    const chat = new PlainChat(call('input-available', { input: { wait: true } }), call('input-available', { toolCallId: 'c2' }));
    const run = tools.run(chat);
    await vi.waitFor(() => expect(tools.running.get()).toEqual(['c1']));
    tools.cancel('c1');
    await run;
    expect(chat.reports).toContainEqual({
      tool: 'pick',
      toolCallId: 'c1',
      state: 'output-error',
      errorText: 'cancelled by the user',
    });
    expect(chat.reports).toContainEqual({ tool: 'pick', toolCallId: 'c2', output: 2 });
  });

  it('a call that the server has settled meanwhile is aborted and not reported', async () => {
    let signal: AbortSignal | undefined;
    const pick = (_input: unknown, context: { signal: AbortSignal }) => new Promise(() => (signal = context.signal));
    const tools = defineClientTools({ pick }, { storage: null });
    const chat = new PlainChat(call('input-available'));
    const run = tools.run(chat);
    await vi.waitFor(() => expect(signal).toBeDefined());
    chat.set(call('output-error'));
    await tools.run(chat);
    await run;
    expect(signal?.aborted).toBe(true);
    expect(chat.reports).toEqual([]);
  });
});
