/** The front end of adk-stream-protocol against the real server, with nothing changed but its backend's address. */

import type { UIMessage } from 'ai';
import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';

import { OriginalFrontEnd, type OriginalOptions } from './original-front-end.js';
import { startServer, WAIT_LIMIT_MS, type Server } from './server.js';
import { tones } from './speech-samples.js';

const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';
const PAY_TOO = 'call process_payment {"amount":70,"recipient":"Jiro"}';
const SEARCH = 'call search_database {"query":"users"}';
const PICTURE = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==';
const COMPAT = { ADK_BRIDGE__SERVER__COMPAT: 'adk-stream-protocol' };

let server: Server;
let pages: OriginalFrontEnd[] = [];
beforeAll(async () => {
  server = await startServer('', undefined, COMPAT);
});
afterAll(() => server.stop());
afterEach(() => {
  for (const page of pages) page.close();
  pages = [];
});

function open(options: Omit<OriginalOptions, 'server'> & { server?: Server }): OriginalFrontEnd {
  const page = new OriginalFrontEnd({ server, ...options });
  pages.push(page);
  return page;
}

const textOf = (message: UIMessage) => message.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(' ');
const texts = (page: OriginalFrontEnd) => page.chat.messages.map(textOf);

/** What the server has of a page's conversation on a socket, whose chat has a name of its own. */
async function stored(page: OriginalFrontEnd): Promise<UIMessage[]> {
  const chats = (await (await fetch(`${server.url}/api/chats`)).json()) as { id: string }[];
  for (const { id } of chats) {
    const messages = await server.messages(id);
    if (messages.at(-1)?.id === page.message?.id) return messages;
  }
  throw new Error('no chat has the last message');
}
const said = async (page: OriginalFrontEnd) => (await stored(page)).map(textOf);

const states = (page: OriginalFrontEnd) => page.tools.map(({ state }) => state);

const MODES = (['sse', 'bidi'] as const).flatMap((mode) =>
  (['first', 'later'] as const).map((predicate) => ({ mode, predicate })),
);

describe.each(MODES)('$mode, its $predicate predicate', (options) => {
  it('text', async () => {
    const page = open(options);
    await page.say('say good morning');
    expect(page.text).toBe('good morning');
    expect(page.requests).toBe(1);
    expect(page.chat.messages).toHaveLength(2);
  });

  it('a tool of the server, and what was used in its names', async () => {
    const page = open(options);
    await page.say('what is the weather in Tokyo');
    expect(page.tool('get_weather')).toMatchObject({ state: 'output-available', output: { location: 'Tokyo' } });
    expect(page.text).toMatch(/Tokyo/);
    const { usage = {} } = (page.message?.metadata ?? {}) as { usage?: Record<string, number> };
    expect(usage['promptTokens']).toBeGreaterThan(0);
    expect(usage['promptTokens']).toBe(usage['inputTokens']);
    expect(usage['completionTokens']).toBe(usage['outputTokens']);
    expect(page.requests).toBe(1);
  });

  it.each([true, false])('an approval (%s)', async (approved) => {
    const page = open(options);
    await page.say(PAY);
    expect(states(page)).toEqual(['approval-requested']);
    expect(page.message?.parts).toHaveLength(1);
    await page.answer(approved);
    expect(page.text).toMatch(approved ? /Paid 50/ : /declined/);
    expect(states(page)).toEqual([approved ? 'output-available' : 'output-error']);
    expect(page.requests).toBe(2);
    expect(page.chat.messages).toHaveLength(2);
  });

  it.each([
    [true, true],
    [true, false],
    [false, false],
  ])('two at once (%s, %s)', async (first, second) => {
    const page = open(options);
    await page.say(`${PAY} && ${PAY_TOO}`);
    expect(states(page)).toEqual(['approval-requested', 'approval-requested']);
    await page.answer(first);
    expect(page.requests, 'not before all are answered').toBe(1);
    await page.answer(second);
    expect(states(page)).toEqual([first, second].map((yes) => (yes ? 'output-available' : 'output-error')));
    expect(page.text).not.toBe('');
    expect(page.requests).toBe(2);
  });

  it.each([true, false])('two in sequence with text between (%s)', async (approved) => {
    const page = open(options);
    await page.say(`say one moment then ${SEARCH} then say found them then ${PAY}`);
    expect(states(page)).toEqual(['approval-requested']);
    await page.answer(approved);
    expect(states(page)).toEqual(['approval-responded', 'approval-requested']);
    expect(page.text).toBe('');
    await page.answer(approved);
    expect(page.requests).toBe(3);
    expect(page.text).not.toBe('');
    expect(states(page).every((state) => state === (approved ? 'output-available' : 'output-error'))).toBe(true);
    expect(page.chat.messages).toHaveLength(2);
  });

  it('a picture in and a picture out', async () => {
    const page = open(options);
    await page.say('describe this image', [{ type: 'file', mediaType: 'image/png', url: `data:image/png;base64,${PICTURE}` }]);
    expect(page.text).toMatch(/image/i);
    await page.say('call generate_image {"prompt":"a cat"}');
    const picture = page.message?.parts.find(({ type }) => type === 'data-image') as {
      data: { mediaType: string; content: string; data: string };
    };
    expect(picture.data.mediaType).toMatch(/^image\//);
    expect(picture.data.content.length).toBeGreaterThan(20);
    expect(picture.data.content).toBe(picture.data.data);
  });

  it('its page shows no part that it does not know', async () => {
    const page = open(options);
    await page.say('think hard about time');
    await page.say(PAY);
    await page.answer(true);
    const known = /^(text|reasoning|file|data-image|tool-.+)$/;
    for (const message of page.chat.messages) for (const { type } of message.parts) expect(type).toMatch(known);
    expect(page.chunks.map(({ type }) => type)).not.toContain('start-step');
  });

  it('a page that is loaded again, with the messages that it has kept, goes on', async () => {
    const page = open(options);
    await page.say('say one');
    await page.say('say two');
    const again = open({ ...options, id: page.chat.id, messages: structuredClone(page.chat.messages) as UIMessage[] });
    await again.say(PAY);
    await again.answer(true);
    expect(again.text).toMatch(/Paid 50/);
    expect(again.chat.messages).toHaveLength(6);
  });
});

describe.each(['sse', 'bidi'] as const)('its versions before 28 December 2025, %s', (mode) => {
  let early: Server;
  beforeAll(async () => {
    early = await startServer('', undefined, { ADK_BRIDGE__SERVER__COMPAT: 'adk-stream-protocol:adk' });
  });
  afterAll(() => early.stop());

  const asks = ({ tools }: OriginalFrontEnd) =>
    tools.filter(({ state }) => state === 'approval-requested').map(({ type }) => type);
  const ASKED = 'tool-adk_request_confirmation';

  it('text', async () => {
    const page = open({ mode, server: early, predicate: 'early' });
    await page.say('say good morning');
    expect([page.text, page.requests]).toEqual(['good morning', 1]);
  });

  it.each([true, false])('an approval (%s)', async (approved) => {
    const page = open({ mode, server: early, predicate: 'early' });
    await page.say(PAY);
    expect(asks(page)).toEqual([ASKED]);
    await page.answer(approved);
    expect(page.text).toMatch(approved ? /Paid 50/ : /declined/);
    expect(page.requests).toBe(2);
  });

  it('two at once, then two in sequence', async () => {
    const page = open({ mode, server: early, predicate: 'early' });
    await page.say(`${PAY} && ${PAY_TOO}`);
    expect(asks(page)).toEqual([ASKED, ASKED]);
    await page.answer(true);
    expect(page.requests, 'not before all are answered').toBe(1);
    await page.answer(false);
    expect(page.text).not.toBe('');
    expect(page.requests).toBe(2);
    await page.say(`${SEARCH} then say found them then ${PAY}`);
    await page.answer(true);
    expect(page.text).toBe('');
    await page.answer(true);
    expect(page.text).toMatch(/Paid 50/);
    expect(page.requests).toBe(5);
  });
});

// The first predicate sends an output only next to an answered confirmation, which is a call of its own in dialect `adk`.
it.each(['sse', 'bidi'] as const)('%s: a tool of its own, with its output after the approval', async (mode) => {
  const page = open({ mode, predicate: 'later' });
  await page.say('call change_bgm {"track_name":"jazz"}');
  const question = page.tool('change_bgm');
  await page.chat.addToolApprovalResponse({ id: question.approval?.id ?? '', approved: true });
  await page.output('change_bgm', { playing: 'jazz' });
  await vi.waitFor(() => expect(page.text).not.toBe(''), WAIT_LIMIT_MS);
  await page.rest();
  expect(page.tool('change_bgm')).toMatchObject({ state: 'output-available', output: { playing: 'jazz' } });
  expect(page.requests).toBeLessThanOrEqual(4);
});

it.each(['sse', 'bidi'] as const)('%s: a tool of its own that nobody has to approve', async (mode) => {
  const page = open({ mode, predicate: 'later' });
  await page.say('call pick_color {"question":"Which one?"}');
  expect(states(page)).toEqual(['input-available']);
  await page.output('pick_color', { color: 'teal' });
  expect(page.text).toMatch(/teal/);
  expect(page.requests).toBe(2);
});

it('a question that was asked before the page was loaded again is answered over HTTP', async () => {
  const page = open({ mode: 'sse' });
  await page.say(PAY);
  const again = open({ mode: 'sse', id: page.chat.id, messages: structuredClone(page.chat.messages) as UIMessage[] });
  await again.answer(true);
  expect(again.text).toMatch(/Paid 50/);
  expect(again.requests).toBe(1);
});

it('both modes share the history that the page sends', async () => {
  const page = open({ mode: 'sse' });
  await page.say('say the word is teal');
  const spoken = open({ mode: 'bidi', messages: structuredClone(page.chat.messages) as UIMessage[] });
  await spoken.say('say and the number is seven');
  expect(await said(spoken)).toEqual(texts(spoken));
  // And back again, to a chat that knows a part of it.
  const back = open({ mode: 'sse', id: page.chat.id, messages: structuredClone(spoken.chat.messages) as UIMessage[] });
  await back.say('say three');
  expect(await server.messages(page.chat.id).then((messages) => messages.map(textOf))).toEqual(texts(back));
  // A page that was loaded again shows nothing, whatever the chat of its fixed id has.
  const fresh = open({ mode: 'sse', id: page.chat.id });
  await fresh.say('say now');
  expect(await server.messages(page.chat.id).then((messages) => messages.map(textOf))).toEqual(['say now', 'now']);
});

it('a picture is taken over with the history', async () => {
  const page = open({ mode: 'sse' });
  await page.say('call generate_image {"prompt":"a cat"}');
  const switched = open({ mode: 'bidi', messages: structuredClone(page.chat.messages) as UIMessage[] });
  await switched.say('say done');
  const [, answer] = await stored(switched);
  expect(answer?.parts.some((part) => part.type === 'file' && part.mediaType.startsWith('image/'))).toBe(true);
});

describe('a question is answered on another connection', () => {
  it.each([
    ['asked over HTTP, answered on a socket', 'sse', 'bidi'],
    ['asked on a socket that was lost', 'bidi', 'bidi'],
    ['asked on a socket, answered over HTTP', 'bidi', 'sse'],
    ['asked on a socket, answered over HTTP in a chat that exists', 'bidi', 'known'],
  ] as const)('%s', async (_, mode, then) => {
    const page = open({ mode });
    await page.say(PAY);
    const id = `switched-${mode}-${then}`;
    if (then === 'known') await open({ mode: 'sse', id }).say('say before');
    const messages = structuredClone(page.chat.messages) as UIMessage[];
    const other = open({ mode: then === 'bidi' ? 'bidi' : 'sse', id, messages });
    page.close();
    await other.answer(true);
    expect(other.text).toMatch(/Paid 50/);
    await other.say('say next');
    expect(other.text).toBe('next');
  });
});

it('a refusal ends the stream that its message opened', async () => {
  const page = open({ mode: 'bidi' });
  await page.say(PAY);
  const cleared = await fetch(`${server.url}/clear-sessions`, { method: 'POST' });
  expect(cleared.status).toBe(200);
  const again = open({ mode: 'bidi', messages: structuredClone(page.chat.messages) as UIMessage[] });
  const question = again.tools.find(({ state }) => state === 'approval-requested');
  await again.chat.addToolApprovalResponse({ id: question?.approval?.id ?? '', approved: true });
  await vi.waitFor(() => expect(again.chat.status).toBe('error'), WAIT_LIMIT_MS);
  expect(again.chat.error?.message).not.toBe('');
});

it('a message that cannot be read ends the stream that it opened', async () => {
  const page = open({ mode: 'bidi' });
  await page.say('say one');
  // More values than a request may have.
  const output = Array.from({ length: 200_000 }, () => 1);
  const part = { type: 'tool-get_weather', toolCallId: 'c', state: 'output-available', input: {}, output } as never;
  page.chat.messages = [...page.chat.messages, { id: 'long', role: 'assistant', parts: [part, { type: 'text', text: 'so' }] }];
  void page.chat.sendMessage({ text: 'say two' });
  await vi.waitFor(() => expect(page.chat.status).toBe('error'), WAIT_LIMIT_MS);
  expect(page.chat.error?.message).toMatch(/values/);
});

it('a page that was loaded again begins another conversation, whatever its last one was not seen to the end', async () => {
  const ask = async (text: string) => {
    const body = JSON.stringify({ id: 'used-again', messages: [{ id: text, role: 'user', parts: [{ type: 'text', text }] }] });
    // A connection of its own: what the last one has delivered is not known to it.
    const headers = { 'content-type': 'application/json', connection: 'close' };
    const response = await fetch(`${server.url}/stream`, { method: 'POST', headers, body });
    return response.text();
  };
  await ask('say my pin is 1234');
  await ask('say hello');
  const messages = await server.messages('used-again');
  expect(messages.map(textOf)).toEqual(['say hello', 'hello']);
});

describe.each(['flat', 'nested'] as const)('push-to-talk with %s frames', (payload) => {
  it('speech is answered by sound in its names, and the end says how much there was', async () => {
    const page = open({ mode: 'bidi', payload });
    await page.connect();
    page.send('audio_control', { action: 'start' });
    const samples = tones('say good morning');
    for (let at = 0; at < samples.length; at += 1600) {
      const piece = samples.slice(at, at + 1600);
      const chunk = Buffer.from(piece.buffer).toString('base64');
      page.send('audio_chunk', { chunk, sampleRate: 16_000, channels: 1, bitDepth: 16 });
    }
    page.send('audio_control', { action: 'stop' });
    await vi.waitFor(() => expect(page.chunks.map(({ type }) => type)).toContain('finish'), WAIT_LIMIT_MS);
    expect(page.speech.length).toBeGreaterThan(0);
    for (const piece of page.speech) expect(piece).toMatchObject({ sampleRate: 24_000, channels: 1, bitDepth: 16 });
    const bytes = page.speech.reduce((sum, { content }) => sum + Buffer.from(content, 'base64').length, 0);
    const finish = page.chunks.find(({ type }) => type === 'finish') as { messageMetadata: { audio: object } };
    expect(finish.messageMetadata.audio).toEqual({
      chunks: page.speech.length,
      bytes,
      sampleRate: 24_000,
      duration: bytes / 48_000,
    });
    expect(
      page.chunks.map(({ type }) => type),
      'it makes its own recording',
    ).not.toContain('file');
  });
});

it('a request without an id belongs to the one chat of its user, until sessions are cleared', async () => {
  const page = open({ mode: 'sse', sendsId: false });
  await page.say('say one');
  await page.say(PAY);
  await page.answer(false);
  expect(page.text).toMatch(/declined/);
  const ids = async () => ((await (await fetch(`${server.url}/api/chats`)).json()) as { id: string }[]).map(({ id }) => id);
  expect((await ids()).filter((id) => id === 'adk-stream-protocol')).toHaveLength(1);
  expect(await server.messages('adk-stream-protocol')).toHaveLength(4);
  const cleared = await fetch(`${server.url}/clear-sessions`, { method: 'POST' });
  expect(await cleared.json()).toMatchObject({ status: 'success' });
  expect(await ids()).toEqual([]);
});

it.each([
  ['approved', /Paid 50/],
  ['denied', /declined/],
])('an approval in a message of the user (%s)', async (word, answer) => {
  const page = open({ mode: 'sse' });
  await page.say(PAY);
  const result = { type: 'tool-result', toolCallId: page.tool('process_payment').approval?.id, result: { approval: word } };
  const body = { id: page.chat.id, messages: [{ role: 'user', content: [result] }] };
  const post = () =>
    fetch(`${server.url}/stream`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  const response = await post();
  expect([response.status, await response.text()]).toEqual([200, expect.stringMatching(answer)]);
});

it('the same conversation shows the same facts in every dialect', async () => {
  const page = open({ mode: 'sse' });
  await page.say(`${PAY} && ${PAY_TOO}`);
  await page.answer(true);
  await page.answer(false);
  const facts = async (dialect: string) => {
    const [, message] = await server.messages(page.chat.id, `?dialect=${dialect}`);
    const parts = (message?.parts ?? []) as {
      type: string;
      text?: string;
      output?: unknown;
      approval?: { approved?: boolean };
      toolCallId?: string;
      input?: { originalFunctionCall?: { id: string } };
    }[];
    const payments = parts.filter(({ type }) => type === 'tool-process_payment');
    const decisions = parts.filter(
      ({ type }) => type === (dialect === 'adk' ? 'tool-adk_request_confirmation' : 'tool-process_payment'),
    );
    return {
      text: parts.flatMap(({ text }) => (text === undefined ? [] : [text])),
      outputs: payments.map(({ output }) => output),
      decisions: decisions.map(({ approval }) => approval?.approved),
    };
  };
  const native = await facts('native');
  expect(native.decisions).toEqual([true, false]);
  for (const dialect of ['adk', 'held']) expect(await facts(dialect)).toEqual(native);
  expect(page.text).toBe(native.text.join(' '));
});

describe('with a tool of its own, and nothing to approve', () => {
  let house: Server;
  const config = ['[agent]', 'tools = ["get_weather"]', '[[agent.client_tools]]', 'name = "open_door"'].join('\n');
  beforeAll(async () => {
    house = await startServer(config, undefined, COMPAT);
  });
  afterAll(() => house.stop());

  const WEATHER = 'call get_weather {"location":"Tokyo"}';
  const sentences = [
    ['say let me open it then call open_door {}', 1],
    [`${WEATHER} then call open_door {}`, 1],
    [`${WEATHER} && call open_door {}`, 1],
    ['call open_door {} then say half then call open_door {}', 2],
  ] as const;
  it.each(sentences.flatMap(([sentence, times]) => (['sse', 'bidi'] as const).map((mode) => [mode, sentence, times] as const)))(
    '%s: %s',
    async (mode, sentence, times) => {
      const page = open({ mode, server: house });
      await page.say(sentence);
      for (let done = 0; done < times; done += 1) {
        await vi.waitFor(
          () => expect(page.tools.at(-1)).toMatchObject({ type: 'tool-open_door', state: 'input-available' }),
          WAIT_LIMIT_MS,
        );
        const { toolCallId } = page.tools.at(-1) as { toolCallId: string };
        await page.chat.addToolOutput({ tool: 'open_door', toolCallId, output: { opened: done } } as never);
      }
      await vi.waitFor(() => expect(page.text).toMatch(new RegExp(`open_door returned .*${times - 1}`)), WAIT_LIMIT_MS);
      await page.rest();
      expect(states(page).every((state) => state === 'output-available')).toBe(true);
    },
  );
});

describe('a turn that nobody asked for', () => {
  let hasty: Server;
  beforeAll(async () => {
    hasty = await startServer('[approval]\ntimeout = "1s"', undefined, COMPAT);
  });
  afterAll(() => hasty.stop());

  /** A page whose question has expired; the model, asked again, is still speaking. */
  async function expired(): Promise<OriginalFrontEnd> {
    const page = open({ mode: 'bidi', server: hasty });
    await page.say(`${PAY} then slow 15`);
    const begun = () => page.chunks.filter(({ type }) => type === 'start').length;
    await vi.waitFor(() => expect(begun()).toBe(2), WAIT_LIMIT_MS);
    return page;
  }

  it('does not answer the next message', async () => {
    const page = await expired();
    await page.say('say hello again');
    expect(page.text).toBe('hello again');
  });

  it('is shown to who answers too late', async () => {
    const page = await expired();
    await page.answer(true);
    await vi.waitFor(() => expect(page.text).toMatch(/word15/), WAIT_LIMIT_MS);
    await page.rest();
    expect(states(page)).toEqual(['output-error']);
  });
});

describe('keys', () => {
  const KEY = 'a-key-of-sixteen-characters';
  let keyed: Server;
  beforeAll(async () => {
    keyed = await startServer(`[auth]\napi_keys = [{ key = "${KEY}", user = "alice" }]`, undefined, COMPAT);
  });
  afterAll(() => keyed.stop());

  it.each([
    [KEY, true],
    ['dev-key-12345', false],
  ])('X-API-Key %s', async (apiKey, isValid) => {
    const page = open({ mode: 'sse', apiKey, server: keyed });
    void page.chat.sendMessage({ text: 'say hello' });
    await vi.waitFor(() => expect(isValid ? page.text : page.chat.status).toBe(isValid ? 'hello' : 'error'), WAIT_LIMIT_MS);
  });
});

describe('without compat', () => {
  let plain: Server;
  beforeAll(async () => {
    plain = await startServer('[auth]\napi_keys = [{ key = "a-key-of-sixteen-characters", user = "alice" }]');
  });
  afterAll(() => plain.stop());

  it.each(['/stream', '/clear-sessions'])('%s is not there', async (path) => {
    const response = await fetch(plain.url + path, {
      method: 'POST',
      headers: { authorization: 'Bearer a-key-of-sixteen-characters' },
    });
    expect(response.status).toBe(404);
  });

  it('X-API-Key means nothing', async () => {
    const response = await fetch(`${plain.url}/api/chats`, { headers: { 'x-api-key': 'a-key-of-sixteen-characters' } });
    expect(response.status).toBe(401);
  });
});
