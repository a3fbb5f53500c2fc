// @vitest-environment jsdom
/** Spoken conversations with the real server, whose scripted model hears words that are spelled in tones. */

import { afterAll, afterEach, beforeAll, beforeEach, expect, it } from 'vitest';

import { ChatPage, textOf } from './chat-page.js';
import { startProxy, type TestProxy } from './proxy.js';
import { startServer, type Server } from './server.js';
import { tones } from './speech-samples.js';

let server: Server;
let proxy: TestProxy;
let page: ChatPage;
let samples: number;
let marks: string[];

beforeAll(async () => {
  server = await startServer();
  proxy = await startProxy(server.url);
});
afterAll(async () => {
  await proxy.close();
  await server.stop();
});
beforeEach(async () => {
  page = new ChatPage({ server, mode: 'live', baseUrl: proxy.url, minRetryMs: 20, maxRetryMs: 100 } as never);
  await page.until(() => expect(page.chat.connection.status).toBe('open'));
  samples = 0;
  marks = [];
  page.chat.live?.on('audio', (audio) => (samples += audio.samples.length));
  for (const kind of ['turn-start', 'turn-end', 'interrupted'] as const) page.chat.live?.on(kind, () => marks.push(kind));
});
afterEach(() => page.close());

/** Faster than anybody speaks, but never faster than the connection takes it. */
async function speak(text: string): Promise<void> {
  const all = tones(text);
  for (let at = 0; at < all.length; at += 320) {
    await page.until(() => expect(page.chat.live?.sendAudio(all.subarray(at, at + 320))).toBe(true));
  }
}

const said = () =>
  page.chat.messages.map(({ role, parts }) => [
    role,
    parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(' '),
  ]);

it('what was said becomes a message, the answer comes as words and as sound, and nothing is requested', async () => {
  await speak('say good morning');
  await page.until(() => expect(marks).toEqual(['turn-start', 'turn-end']));
  await page.rest();
  expect(said()).toEqual([
    ['user', 'say good morning'],
    ['assistant', 'good morning'],
  ]);
  expect(samples).toBeGreaterThan(1000);
  expect(page.sent).toEqual([]);
  const stored = await server.messages(page.id);
  expect(stored.map(({ id }) => id)).toEqual(page.chat.messages.map(({ id }) => id));

  await speak('say and again');
  await page.until(() => expect(said().at(-1)).toEqual(['assistant', 'and again']));
  await page.rest();
  expect(said()).toHaveLength(4);
});

it.each([true, false])('an approval by voice (%s) works as in writing', async (approved) => {
  await speak('call process_payment {"amount":50,"recipient":"Hanako"}');
  await page.until(() => expect(page.tools.map(({ state }) => state)).toEqual(['approval-requested']));
  await page.rest();
  await page.answer('process_payment', approved);
  await page.until(() => expect(textOf(page.message)).toMatch(approved ? /Paid 50/ : /declined/));
  await page.rest();
  expect(page.sent).toHaveLength(1);
  expect(page.chat.messages.map(({ id }) => id)).toEqual((await server.messages(page.id)).map(({ id }) => id));
});

it('an approval that the conversation has left behind is still answered, in its own message', async () => {
  await speak('call process_payment {"amount":50,"recipient":"Hanako"}');
  await page.until(() => expect(page.tools.map(({ state }) => state)).toEqual(['approval-requested']));
  await page.rest();
  const id = page.question('process_payment');
  const asked = page.message?.id;
  await speak('say good morning');
  await page.until(() => expect(page.text).toMatch(/good morning/));
  await page.rest();
  await page.chat.addToolApprovalResponse({ id, approved: true });
  await page.until(() => expect(textOf(page.chat.messages.find((message) => message.id === asked))).toMatch(/Paid 50/));
  await page.rest();
  expect(page.sent.map(({ messageId }) => messageId)).toEqual([asked]);
});

it('a connection that is lost while the model speaks loses no word', async () => {
  await speak('slow 12');
  await page.until(() => expect(page.text).not.toBe(''));
  proxy.cut();
  await page.until(() => expect(page.chat.connection.status).not.toBe('open'));
  await page.until(() => expect(page.chat.connection.status).toBe('open'));
  await page.rest();
  const stored = await server.messages(page.id);
  expect(said().at(-1)?.[1]).toBe(textOf(stored.at(-1)));
  expect(page.chat.messages.map(({ id }) => id)).toEqual(stored.map(({ id }) => id));
});
