/**
 * However a front end decides when to send, over whichever transport: it comes to rest, and it does so within a few
 * requests. Real chats of the AI SDK against the real server.
 */

import { Chat } from '@ai-sdk/react';
import * as ai from 'ai';
import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';

import { createSendAutomaticallyWhen, createSseChatTransport, LiveChatTransport, sendAutomaticallyWhen } from '../src/index.js';
import { isConfirmation, isToolPart, lastStepOf, type ToolPart } from '../src/tool-parts.js';
import { startServer, WAIT_LIMIT_MS, type Server } from './server.js';

type Dialect = 'native' | 'adk';
type Predicate = (state: { messages: UIMessage[] }) => boolean;

const TRACK = 'call change_bgm {"track_name":"jazz"}';
const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';
const COLOR = 'call pick_color {}';
const OUTPUT = { picked: 'teal' };

/** No row needs so many: a chat that sends more is going round in circles. */
const FAR_TOO_MANY = 25;
/** So often in a row a chat must be found at rest: what it sends automatically it sends within one turn of the event loop. */
const REST_CHECKS = 8;
/** In this time a post is held for 250, 500, 1000 and 2000 ms; a busy machine only sees fewer. */
const STUBBORN_MS = 3_000;
const STUBBORN_REQUESTS = 7;
/** Rows mostly wait; more at once would only make the machine's speed part of the test. */
const AT_ONCE = 24;

const stockOutputs = ai.lastAssistantMessageIsCompleteWithToolCalls as Predicate;
const stockAnswers = ai.lastAssistantMessageIsCompleteWithApprovalResponses as Predicate;

interface Contender {
  /** Created again for every chat, as one of them remembers. */
  make: () => Predicate;
  /**
   * For each of the cases below whether its front end gets the model's answer (`+`), or never sends what it has and
   * rests (`-`): only time settles that.
   */
  native: string;
  adk: string;
}

const PREDICATES: Record<string, Contender> = {
  'confirmations first': { make: () => confirmationsFirst, native: '---- --- ---', adk: '++++ +++ +++' },
  bare: { make: () => sendAutomaticallyWhen, native: '--++ ++- ++-', adk: '++++ +++ +++' },
  made: {
    make: () => createSendAutomaticallyWhen({ clientTools: ['change_bgm', 'pick_color'] }),
    native: '++-+ ++- ++-',
    adk: '++-+ ++- ++-',
  },
  'stock, outputs': { make: () => stockOutputs, native: '++-- --- ---', adk: '---- --- ---' },
  'stock, approvals': { make: () => stockAnswers, native: '--++ ++- ++-', adk: '++-- --- ---' },
  'stock, both': {
    make: () => (state) => stockOutputs(state) || stockAnswers(state),
    native: '++++ ++- ++-',
    adk: '++-- --- ---',
  },
};

/** The checks of docs/adr/0009 in their order and no others, on the last step. */
function confirmationsFirst({ messages }: { messages: UIMessage[] }): boolean {
  const message = messages.at(-1);
  if (message?.role !== 'assistant') return false;
  const step = lastStepOf(message);
  const tools = step.filter(isToolPart);
  const confirmations = tools.filter(isConfirmation);
  if (step.some(({ type }) => type === 'text')) return false;
  if (!confirmations.some(({ state }) => state === 'approval-responded')) return false;
  if (confirmations.some(({ state }) => state === 'approval-requested')) return false;
  return !tools.some((part) => !isConfirmation(part) && part.state === 'output-error');
}

interface Connection {
  transport: ChatTransport<UIMessage>;
  close(): void;
}

/** What every transport is made from; `sent` is called for each chat request. */
type Connect = (server: Server, chatId: string, dialect: Dialect, sent: () => void) => Connection;

const overHttp: Connect = (server, _, dialect, sent) => ({
  transport: createSseChatTransport({
    baseUrl: server.url,
    dialect,
    fetch: (url, init) => {
      sent();
      return fetch(url, init);
    },
  }),
  close: () => {},
});

const overLive: Connect = (server, chatId, dialect, sent) => {
  const transport = new LiveChatTransport({
    baseUrl: server.url,
    chatId,
    dialect,
    WebSocket: countingSocket('message', sent) as unknown as typeof globalThis.WebSocket,
  });
  return { transport, close: () => transport.close() };
};

/** What somebody writes in an afternoon: one request at a time, chunks until `[DONE]`. */
const overPlainLive: Connect = (server, chatId, dialect, sent) => {
  const socket = new WebSocket(`${server.url.replace('http', 'ws')}/live?chat=${chatId}&dialect=${dialect}`);
  const isOpen = new Promise((resolve) => socket.once('open', resolve));
  let reader: ReadableStreamDefaultController<UIMessageChunk> | undefined;
  socket.on('message', (data) => {
    const frame = String(data);
    if (!frame.startsWith('data: ') || reader === undefined) return;
    const text = frame.slice('data: '.length).trim();
    if (text !== '[DONE]') return reader.enqueue(JSON.parse(text) as UIMessageChunk);
    reader.close();
    reader = undefined;
  });
  return {
    transport: {
      sendMessages: async ({ chatId: id, messages, trigger, messageId }) => {
        sent();
        await isOpen;
        const stream = new ReadableStream<UIMessageChunk>({ start: (controller) => void (reader = controller) });
        socket.send(JSON.stringify({ type: 'message', id, messages, trigger, messageId }));
        return stream;
      },
      reconnectToStream: async () => null,
    },
    close: () => socket.close(),
  };
};

/** The AI SDK's own; v6 has none. */
const overStockSocket: Connect = (server, _, dialect, sent) => {
  const { WebSocketChatTransport } = ai as unknown as {
    WebSocketChatTransport: new (options: object) => ChatTransport<UIMessage> & { close(): void };
  };
  const transport = new WebSocketChatTransport({
    url: `${server.url.replace('http', 'ws')}/api/chat/ws`,
    body: { dialect },
    webSocket: countingSocket('send', sent),
  });
  return { transport, close: () => transport.close() };
};

const TRANSPORTS: Record<string, Connect> = {
  HTTP: overHttp,
  '/live, library': overLive,
  '/live, plain': overPlainLive,
  ...('WebSocketChatTransport' in ai && { 'stock WebSocket': overStockSocket }),
};

function countingSocket(type: string, sent: () => void) {
  return class extends WebSocket {
    override send(data: Parameters<WebSocket['send']>[0]): void {
      if (typeof data === 'string' && (JSON.parse(data) as { type: string }).type === type) sent();
      super.send(data);
    }
  };
}

class Row {
  requests = 0;
  readonly chat: Chat<UIMessage>;
  readonly #connection: Connection;

  constructor(server: Server, connect: Connect, dialect: Dialect, predicate: Predicate, id: string = crypto.randomUUID()) {
    this.#connection = connect(server, id, dialect, () => {
      this.requests += 1;
      if (this.requests > FAR_TOO_MANY) throw new Error('round in circles');
    });
    this.chat = new Chat({ id, transport: this.#connection.transport, sendAutomaticallyWhen: predicate, onError: () => {} });
  }

  get tools(): ToolPart[] {
    return (this.chat.lastMessage?.parts ?? []).filter(isToolPart) as ToolPart[];
  }

  tool(name: string): ToolPart {
    return this.tools.find(({ type }) => type === `tool-${name}`) as ToolPart;
  }

  get hasAnswer(): boolean {
    return this.chat.lastMessage?.parts.at(-1)?.type === 'text';
  }

  async say(text: string): Promise<void> {
    void this.chat.sendMessage({ text });
    await this.rest();
  }

  async decide(approved: boolean): Promise<void> {
    const question = this.tools.find(({ state }) => state === 'approval-requested');
    await this.chat.addToolApprovalResponse({ id: question?.approval?.id ?? '', approved });
  }

  async output(tool: string): Promise<void> {
    await this.chat.addToolOutput({ tool, toolCallId: this.tool(tool).toolCallId, output: OUTPUT } as never);
  }

  async rest(): Promise<void> {
    const end = Date.now() + WAIT_LIMIT_MS;
    for (let seen = 0; seen < REST_CHECKS; await pause(5)) {
      if (Date.now() > end) throw new Error(`it does not come to rest: ${this.chat.status}, ${JSON.stringify(this.tools)}`);
      seen = this.chat.status === 'ready' || this.chat.status === 'error' ? seen + 1 : 0;
    }
    if (this.chat.error !== undefined) throw this.chat.error;
  }

  close(): void {
    void this.chat.stop();
    this.#connection.close();
  }
}

interface Case {
  /** What the user writes. */
  asks: string;
  approve: boolean;
  /** The client tool that has an output, and when: at once, later, or never. */
  tool: string;
  after: number | 'never';
  /**
   * How many requests there may be at most: the question, the answer, one for each hold of 250, 500, … ms that ends
   * without news (a busy machine may see one more), and the one that brings the output.
   */
  most: number;
}

const CASES: Case[] = [
  { asks: TRACK, tool: 'change_bgm', approve: true, after: 0, most: 4 },
  { asks: TRACK, tool: 'change_bgm', approve: true, after: 600, most: 6 },
  { asks: TRACK, tool: 'change_bgm', approve: true, after: 'never', most: 8 },
  { asks: TRACK, tool: 'change_bgm', approve: false, after: 'never', most: 3 },
  ...[true, false].flatMap((approve) => [
    { asks: `${PAY} && ${COLOR}`, tool: 'pick_color', approve, after: 0, most: 5 },
    { asks: `${PAY} && ${COLOR}`, tool: 'pick_color', approve, after: 600, most: 7 },
    { asks: `${PAY} && ${COLOR}`, tool: 'pick_color', approve, after: 'never' as const, most: 9 },
  ]),
];

let patient: Server;
let hasty: Server;
beforeAll(async () => {
  patient = await startServer('[tools]\nclient_timeout = "5m"');
  hasty = await startServer('[tools]\nclient_timeout = "2s"');
});
afterAll(() => Promise.all([patient.stop(), hasty.stop()]));

describe.each(Object.keys(TRANSPORTS))('%s', (over) => {
  const connect = TRANSPORTS[over] as Connect;

  it('every predicate comes to rest within a few requests', async () => {
    const rows = (['native', 'adk'] as const).flatMap((dialect) =>
      Object.entries(PREDICATES).flatMap(([name, contender]) => {
        const answered = contender[dialect].replaceAll(' ', '');
        return CASES.map((which, index) => ({ dialect, name, make: contender.make, which, isAnswered: answered[index] === '+' }));
      }),
    );
    const wrong: string[] = [];
    await eachOf(rows, async ({ dialect, name, make, which, isAnswered }) => {
      const { asks, approve, after, tool, most } = which;
      const row = new Row(after === 'never' ? hasty : patient, connect, dialect, make());
      try {
        await row.say(asks);
        await row.decide(approve);
        if (after !== 'never') {
          if (after > 0) await pause(after);
          await row.output(tool);
        }
        await row.rest();
        if (row.requests > most) throw new Error(`${row.requests} requests, at most ${most}`);
        expect(row.hasAnswer, `answered: ${JSON.stringify(row.tools)}`).toBe(isAnswered);
        if (isAnswered) expectOutcomes(row, which);
      } catch (error) {
        wrong.push(`${name}, ${dialect}, ${JSON.stringify(which)}: ${(error as Error).message}`);
      } finally {
        row.close();
      }
    });
    expect(wrong).toEqual([]);
  });
});

it('a predicate that is always true posts a few times, and keeps nobody from writing', async () => {
  const rows = Object.entries(TRANSPORTS).flatMap(([over, connect]) =>
    (['native', 'adk'] as const).map((dialect) => ({ over, connect, dialect })),
  );
  const wrong: string[] = [];
  await eachOf(rows, async ({ over, connect, dialect }) => {
    let isStubborn = true;
    const row = new Row(patient, connect, dialect, () => isStubborn);
    const tab = new Row(patient, overHttp, dialect, () => false, row.chat.id);
    try {
      void row.chat.sendMessage({ text: 'say hello' });
      await pause(STUBBORN_MS);
      expect(row.requests, 'requests about the last message').toBeLessThanOrEqual(STUBBORN_REQUESTS);
      await tab.say('say from another tab');
      expect(tab.chat.lastMessage?.parts.at(-1)).toMatchObject({ type: 'text', text: 'from another tab' });
      const before = row.requests;
      await pause(STUBBORN_MS);
      expect(row.requests - before, 'requests about an older message').toBeLessThanOrEqual(STUBBORN_REQUESTS);
      isStubborn = false;
      await row.rest();
      expect(row.chat.messages).toHaveLength(2);
    } catch (error) {
      wrong.push(`${over}, ${dialect}: ${(error as Error).message}`);
    } finally {
      row.close();
      tab.close();
    }
  });
  expect(wrong).toEqual([]);
});

/** Every call has the outcome that the user and the tool gave it. */
function expectOutcomes(row: Row, { asks, approve, after, tool }: Case): void {
  const part = row.tool(tool);
  if (after === 'never') expect(part.state).toBe(asks === TRACK && !approve ? 'output-denied' : 'output-error');
  else expect(part).toMatchObject({ state: 'output-available', output: OUTPUT });
  if (asks !== TRACK) expect(row.tool('process_payment').state).toBe(approve ? 'output-available' : 'output-denied');
}

async function eachOf<T>(all: readonly T[], run: (one: T) => Promise<void>): Promise<void> {
  const waiting = [...all];
  const work = async () => {
    for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) await run(next);
  };
  await Promise.all(Array.from({ length: AT_ONCE }, work));
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
