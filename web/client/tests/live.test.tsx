// @vitest-environment jsdom
/** What only `/live` has, against the real server: lost connections, take-over, tickets, turns that the server begins. */

import { Chat } from '@ai-sdk/react';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';

import { buildUseChatOptions, ChunkLog, defineClientTools, parseChunkLog, playChunkLog } from '../src/index.js';
import { ChatPage, textOf, type PageOptions } from './chat-page.js';
import { startProxy, type TestProxy } from './proxy.js';
import { startServer, WAIT_LIMIT_MS, type Server } from './server.js';

const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';
/** Short pauses: the pauses themselves are tested elsewhere. */
const HASTY = { minRetryMs: 20, maxRetryMs: 100 };

let server: Server;
let proxy: TestProxy;
let pages: ChatPage[] = [];
beforeAll(async () => {
  server = await startServer();
  proxy = await startProxy(server.url);
});
afterAll(async () => {
  await proxy.close();
  await server.stop();
});
afterEach(() => {
  proxy.isUp = true;
  for (const page of pages) page.close();
  pages = [];
});

function open(options: Partial<PageOptions> = {}): ChatPage {
  const page = new ChatPage({ server, mode: 'live', baseUrl: proxy.url, ...HASTY, ...options } as PageOptions);
  pages.push(page);
  return page;
}

async function opened(options: Partial<PageOptions> = {}): Promise<ChatPage> {
  const page = open(options);
  await page.until(() => expect(page.chat.connection.status).toBe('open'));
  return page;
}

/** The page shows what the server has stored, and nothing twice. */
async function expectSameAsServer(page: ChatPage, query = ''): Promise<void> {
  const parts = (messages: readonly { parts: unknown }[]) =>
    JSON.parse(JSON.stringify(messages.map(({ parts }) => parts))) as unknown;
  expect(parts(page.chat.messages)).toEqual(parts(await page.server.messages(page.id, query)));
}

it('one socket serves many turns', async () => {
  const page = await opened();
  const before = proxy.connections;
  await page.say('say one');
  await page.say('say two');
  await page.say(PAY);
  await page.answer('process_payment', true);
  await page.rest();
  expect(page.chat.messages.map(textOf).filter((text) => text !== '')).toEqual(['one', 'two', expect.stringMatching(/Paid 50/)]);
  expect(proxy.connections).toBe(before);
  expect(page.chat.live?.roundTripMs.get()).toBeGreaterThanOrEqual(0);
});

describe('a lost connection', () => {
  it.each(['native', 'adk'] as const)('%s: in the middle of an answer, which goes on without a word twice', async (dialect) => {
    const page = await opened({ dialect });
    void page.chat.sendMessage({ text: 'call get_weather {"location":"Tokyo"} then slow 12' });
    // In `adk` the page sees nothing before the end.
    await vi.waitFor(async () => expect(await server.messages(page.id)).not.toHaveLength(0), WAIT_LIMIT_MS);
    if (dialect === 'native') await page.until(() => expect(page.text.split(' ').length).toBeGreaterThan(2));
    proxy.cut();
    await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
    await page.until(() => expect(page.chat.connection.status).toBe('open'));
    await page.rest();
    expect(page.chat.status).toBe('ready');
    expect(page.sent).toHaveLength(1);
    await expectSameAsServer(page, `?dialect=${dialect}`);
  });

  it('again and again, in the middle of an answer', async () => {
    const page = await opened();
    void page.chat.sendMessage({ text: 'slow 15' });
    for (let words = 2; words < 10; words += 3) {
      await page.until(() => expect(page.text.split(' ').length).toBeGreaterThan(words));
      proxy.cut();
      await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
    }
    await page.rest();
    expect(page.text.split(' ')).toHaveLength(15);
    await expectSameAsServer(page);
  });

  it('while an approved tool runs: the answer goes on with its message', async () => {
    const page = await opened();
    await page.say(`say one moment then ${PAY} then slow 6`);
    await page.answer('process_payment', true);
    await page.until(() => expect(page.sent).toHaveLength(2));
    proxy.cut();
    await page.until(() => expect(page.text.split(' ').length).toBeGreaterThan(6));
    await page.rest();
    expect(page.tool('process_payment').state).toBe('output-available');
    await expectSameAsServer(page);
    expect((await server.audit(page.id)).filter((row) => row.kind === 'tool.started')).toHaveLength(1);
  });

  it('and the answer ends before the connection is back', async () => {
    const page = await opened();
    void page.chat.sendMessage({ text: 'slow 4' });
    await page.until(() => expect(page.text).not.toBe(''));
    proxy.isUp = false;
    proxy.cut();
    await vi.waitFor(
      async () => expect(textOf((await server.messages(page.id)).at(-1)).split(' ')).toHaveLength(4),
      WAIT_LIMIT_MS,
    );
    proxy.isUp = true;
    await page.rest();
    expect(page.chat.status).toBe('ready');
    await expectSameAsServer(page);
  });

  it('what is said meanwhile is sent when it is back, once', async () => {
    const page = await opened();
    proxy.isUp = false;
    proxy.cut();
    await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
    const said = page.say('say hello');
    await page.until(() => expect(page.chat.status).toBe('submitted'));
    proxy.isUp = true;
    await said;
    expect(page.text).toBe('hello');
    expect(page.sent).toHaveLength(1);
    await expectSameAsServer(page);
  });

  it('what is answered meanwhile counts', async () => {
    const page = await opened();
    await page.say(PAY);
    proxy.isUp = false;
    proxy.cut();
    await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
    await page.answer('process_payment', false);
    proxy.isUp = true;
    await page.until(() => expect(page.text).toMatch(/declined/));
    await page.rest();
    expect(page.tool('process_payment').state).toBe('output-denied');
    await expectSameAsServer(page);
  });

  it.each(['before the decision is sent', 'while it is'])(
    'a half answered step keeps what the user has decided: cut %s',
    async (when) => {
      const page = await opened({ baseUrl: proxy.url });
      await page.say(`${PAY} && call search_database {"query":"users"}`);
      if (when === 'while it is') {
        await page.answer('process_payment', true);
        proxy.cut();
        await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
      } else {
        proxy.isUp = false;
        proxy.cut();
        await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
        await page.answer('process_payment', true);
        await page.until(() => expect(page.decisions).toHaveLength(1));
        proxy.isUp = true;
      }
      await page.until(() => expect(page.chat.connection.status).toBe('open'));
      // A turn that is replayed while the payment runs shows its question: the chunks of v6 cannot express a decision.
      await page.until(() => expect(['approval-responded', 'output-available']).toContain(page.tool('process_payment').state));
      await page.rest();
      await page.answer('search_database', true);
      await page.until(() => expect(page.text).toMatch(/Paid 50.*Found 10/s));
    },
  );

  it('the server is killed and started again', async () => {
    const first = await startServer();
    const own = await startProxy(first.url);
    const page = await opened({ server: first, baseUrl: own.url });
    await page.say('say hello');
    await page.say(PAY);
    await first.kill();
    const second = await startServer('', first);
    own.target = second.url;
    await page.until(() => expect(page.chat.connection.status).toBe('open'));
    await page.answer('process_payment', true);
    await page.until(() => expect(page.text).toMatch(/Paid 50/));
    await page.rest();
    expect(page.chat.messages).toHaveLength(4);
    page.close();
    await own.close();
    await second.stop();
  });
});

it('stop ends the turn on the server, and the page shows how far it came', async () => {
  const page = await opened();
  void page.chat.sendMessage({ text: 'slow 200' });
  await page.until(() => expect(page.text.split(' ').length).toBeGreaterThan(2));
  await page.chat.stop();
  await page.rest();
  expect(page.chat.status).toBe('ready');
  await expectSameAsServer(page);
  expect((await server.messages(page.id)).at(-1)?.metadata).toMatchObject({ ended: 'stopped' });
});

it('stop without a connection ends the turn when there is one', async () => {
  const page = await opened();
  void page.chat.sendMessage({ text: 'slow 400' });
  await page.until(() => expect(page.text.split(' ').length).toBeGreaterThan(2));
  proxy.isUp = false;
  proxy.cut();
  await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
  await page.chat.stop();
  await page.until(() => expect(page.chat.status).toBe('ready'));
  proxy.isUp = true;
  await vi.waitFor(
    async () => expect((await server.messages(page.id)).at(-1)?.metadata).toMatchObject({ ended: 'stopped' }),
    WAIT_LIMIT_MS,
  );
});

it('the stop of a plain chat ends the turn on the server, and what had not left is never sent', async () => {
  const { live, ...init } = buildUseChatOptions({ mode: 'live', id: crypto.randomUUID(), baseUrl: proxy.url, ...HASTY });
  const chat = new Chat(init);
  void chat.sendMessage({ text: 'slow 200' });
  await vi.waitFor(() => expect(textOf(chat.lastMessage)).not.toBe(''), WAIT_LIMIT_MS);
  await chat.stop();
  expect(chat.status).toBe('ready');
  const messages = () => server.messages(chat.id);
  await vi.waitFor(async () => expect((await messages()).at(-1)?.metadata).toMatchObject({ ended: 'stopped' }), WAIT_LIMIT_MS);
  proxy.isUp = false;
  proxy.cut();
  await vi.waitFor(() => expect(live.connection.get().status).not.toBe('open'), WAIT_LIMIT_MS);
  void chat.sendMessage({ text: 'say never' });
  await vi.waitFor(() => expect(chat.status).toBe('submitted'), WAIT_LIMIT_MS);
  await chat.stop();
  proxy.isUp = true;
  await chat.sendMessage({ text: 'say hello' });
  expect(textOf(chat.lastMessage)).toBe('hello');
  expect(JSON.stringify(await messages())).not.toContain('never');
  live.close();
});

it('leaving the page does not end the turn, and the next page takes it up', async () => {
  const before = await opened();
  void before.chat.sendMessage({ text: 'slow 10' });
  await before.until(() => expect(before.text.split(' ').length).toBeGreaterThan(2));
  const page = await before.reload();
  pages.push(page);
  await page.until(() => expect(page.text.split(' ')).toHaveLength(10));
  await page.rest();
  await expectSameAsServer(page);
});

it('a chat that was opened elsewhere is not fought for', async () => {
  const first = await opened();
  await first.say('say hello');
  const second = await opened({ id: first.id });
  await first.until(() => expect(first.chat.connection).toMatchObject({ status: 'closed', code: 4409 }));
  await second.say('say again');
  expect(second.text).toBe('again');
  expect(first.chat.connection).toMatchObject({ status: 'closed', code: 4409 });
});

it('an approval that expires reaches the page without a request', async () => {
  const hasty = await startServer('[approval]\ntimeout = "2s"\n');
  try {
    const page = await opened({ server: hasty, baseUrl: hasty.url });
    await page.say(PAY);
    await page.until(() => expect(page.tool('process_payment').state).toBe('output-error'));
    await page.until(() => expect(page.text).not.toBe(''));
    await page.rest();
    expect(page.sent).toHaveLength(1);
    expect(page.chat.messages).toHaveLength(2);
    await expectSameAsServer(page);
  } finally {
    await hasty.stop();
  }
});

it('a client tool is run once, whatever the connection does', async () => {
  const pick = vi.fn(async () => {
    proxy.cut();
    await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
    return 'teal';
  });
  const page = await opened({ clientTools: defineClientTools({ pick_color: pick }) });
  await page.say('call pick_color {}');
  await page.until(() => expect(page.text).toMatch(/teal/));
  await page.rest();
  expect(pick).toHaveBeenCalledTimes(1);
  await expectSameAsServer(page);
});

it.each(['approved', 'rejected'] as const)(
  'an approval that was %s without a chat request continues its message',
  async (status) => {
    const page = await opened();
    await page.say(PAY);
    const { toolCallId = '' } = page.tool('process_payment');
    expect(page.chat.live?.sendToolResult({ toolCallId, status })).toBe(true);
    await page.until(() => expect(page.text).toMatch(status === 'approved' ? /Paid 50/ : /declined/));
    await page.rest();
    expect(page.sent).toHaveLength(1);
    expect(page.chat.messages).toHaveLength(2);
    expect(page.tool('process_payment').state).toBe(status === 'approved' ? 'output-available' : 'output-denied');
  },
);

it('a log keeps what the connection reports outside of the turns, and plays the turns back', async () => {
  const log = new ChunkLog();
  const page = await opened({ log });
  await page.say('say hello');
  const events = () => log.entries.flatMap((entry) => (entry.kind === 'event' ? [entry.name] : []));
  await page.until(() => expect(events()).toEqual(['connection', 'connection', 'turn-start', 'turn-end']));
  expect(parseChunkLog(log.toJsonl())).toEqual(log.entries);
  const transport = playChunkLog(log.toJsonl());
  const stream = await transport.sendMessages({
    chatId: page.id,
    messages: [],
    trigger: 'submit-message',
    messageId: undefined,
    abortSignal: undefined,
  });
  const kept = log.entries.flatMap((entry) => (entry.kind === 'chunk' ? [entry.chunk] : []));
  const played: unknown[] = [];
  for await (const chunk of stream) played.push(chunk);
  expect(played).toEqual(kept);
});

it('a refusal fails the request that it belongs to, and no other', async () => {
  const page = await opened();
  const codes: string[] = [];
  page.chat.live?.on('error', ({ code }) => codes.push(code));
  page.chat.live?.sendToolResult({ toolCallId: 'nobody-asked', result: 1 });
  await page.say('say hello');
  expect(codes).toEqual(['not_found']);
  expect(page.text).toBe('hello');
  void page.chat.sendMessage({ parts: [] });
  await page.until(() => expect(page.chat.status).toBe('error'));
  expect(codes).toEqual(['not_found', 'bad_message']);
  await page.say('say again');
  expect(page.text).toBe('again');
});

describe('with keys', () => {
  let guarded: Server;
  beforeAll(async () => {
    guarded = await startServer('[auth]\napi_keys = [{ key = "a-long-enough-secret", user = "alice" }]\n');
  });
  afterAll(() => guarded.stop());

  it('a ticket is got for each connection', async () => {
    const own = await startProxy(guarded.url);
    const page = await opened({ server: guarded, baseUrl: own.url, headers: { Authorization: 'Bearer a-long-enough-secret' } });
    await page.say('say hello');
    own.cut();
    await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
    await page.say('say again');
    expect(page.text).toBe('again');
    page.close();
    await own.close();
  });

  it('a wrong key ends the attempts, and the request with them', async () => {
    const page = open({ server: guarded, baseUrl: guarded.url, headers: () => ({ Authorization: 'Bearer wrong' }) });
    await page.until(() => expect(page.chat.connection.status).toBe('closed'));
    await page.say('say hello');
    expect(page.chat.status).toBe('error');
  });
});
