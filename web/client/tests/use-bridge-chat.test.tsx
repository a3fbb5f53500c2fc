// @vitest-environment jsdom
/** `useBridgeChat` against the real server: the scenarios of ADR 0004 to 0007, in both modes and dialects. */

import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';

import { CONFIRMATION_TOOL, defineClientTools } from '../src/index.js';
import { ChatPage, type PageOptions } from './chat-page.js';
import { startServer, type Server } from './server.js';

const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';
const PHOTO = 'call take_photo {}';
const COLOR = 'call pick_color {}';

let server: Server;
let pages: ChatPage[] = [];
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());
afterEach(() => {
  for (const page of pages) page.close();
  pages = [];
});

function open(options: Partial<PageOptions> = {}): ChatPage {
  const page = new ChatPage({ server, ...options });
  pages.push(page);
  return page;
}

describe.each([
  ['sse', 'native'],
  ['sse', 'adk'],
  ['live', 'native'],
  ['live', 'adk'],
] as const)('mode %s, dialect %s', (mode, dialect) => {
  it('answers text', async () => {
    const page = open({ mode, dialect });
    await page.say('say hello');
    expect(page.text).toBe('hello');
    expect(page.sent).toHaveLength(1);
  });

  it.each([true, false])('ADR 0007: a decision (%s) is sent at once, in one request', async (approved) => {
    const page = open({ mode, dialect });
    await page.say(PAY);
    expect(page.text).toBe('');
    await page.answer('process_payment', approved);
    await page.until(() => expect(page.sent).toHaveLength(2));
    await page.rest();
    expect(page.sent).toHaveLength(2);
    expect(page.tool('process_payment').state).toBe(approved ? 'output-available' : 'output-denied');
    expect(page.text).toMatch(approved ? /Paid 50/ : /declined/);
    expect(page.chat.messages).toHaveLength(2);
  });

  it.each([
    [true, true],
    [true, false],
    [false, true],
  ])('ADR 0004: one tool after the other (%s, %s)', async (first, second) => {
    const page = open({ mode, dialect });
    await page.say('search the database and update it');
    await page.answer('search_database', first);
    await page.rest();
    await page.answer('update_database', second);
    await page.rest();
    expect(page.sent).toHaveLength(3);
    expect(page.tool('search_database').state).toBe(first ? 'output-available' : 'output-denied');
    expect(page.tool('update_database').state).toBe(second ? 'output-available' : 'output-denied');
    expect(page.text).not.toBe('');
    expect(page.chat.messages).toHaveLength(2);
  });

  it('two questions at once are sent once, when both are answered', async () => {
    const page = open({ mode, dialect });
    await page.say(`${PAY} && call search_database {"query":"users"}`);
    await page.answer('process_payment', false);
    await page.rest();
    expect(page.sent).toHaveLength(1);
    await page.answer('search_database', true);
    await page.rest();
    expect(page.sent).toHaveLength(2);
    expect(page.tool('process_payment').state).toBe('output-denied');
    expect(page.tool('search_database').state).toBe('output-available');
  });

  it('ADR 0005: an approved client tool runs after the approval, and both are sent at once', async () => {
    const take = vi.fn(async () => {
      const name = dialect === 'native' ? 'take_photo' : CONFIRMATION_TOOL;
      await page.until(() => expect(page.tool(name).state).toBe('approval-responded'));
      return { photo: 'data:,' };
    });
    const page = open({ mode, dialect, clientTools: defineClientTools({ take_photo: take }) });
    await page.say(PHOTO);
    expect(take).not.toHaveBeenCalled();
    await page.answer('take_photo', true);
    await page.until(() => expect(page.sent).toHaveLength(2));
    await page.rest();
    expect(take).toHaveBeenCalledTimes(1);
    expect(page.tool('take_photo').output).toEqual({ photo: 'data:,' });
    expect(page.sent).toHaveLength(2);
    expect(page.text).not.toBe('');
    const kinds = (await server.audit(page.id)).map((row) => row.kind);
    expect(kinds).toContain('approval.approved');
    expect(kinds).not.toContain('answer.refused');
  });

  it('ADR 0005: the error of a client tool reaches the model', async () => {
    const fail = vi.fn(() => Promise.reject(new Error('the lens cap is on')));
    const page = open({ mode, dialect, clientTools: defineClientTools({ take_photo: fail }) });
    await page.say(PHOTO);
    await page.answer('take_photo', true);
    await page.until(() => expect(page.text).toMatch(/the lens cap is on/));
    await page.rest();
    expect(fail).toHaveBeenCalledTimes(1);
    expect(page.tool('take_photo').state).toBe('output-error');
    expect(page.sent).toHaveLength(2);
  });

  it('a client tool that the page runs by itself, named only', async () => {
    const page = open({ mode, dialect, clientTools: ['take_photo'] });
    await page.say(PHOTO);
    await page.answer('take_photo', true);
    await page.rest();
    expect(page.sent).toHaveLength(1);
    const { toolCallId = '' } = page.tool('take_photo');
    await page.chat.addToolOutput({ tool: 'take_photo', toolCallId, output: { photo: 'data:,' } });
    await page.until(() => expect(page.text).not.toBe(''));
    await page.rest();
    expect(page.sent).toHaveLength(2);
    expect(page.tool('take_photo').output).toEqual({ photo: 'data:,' });
  });

  it('a denied client tool never runs, and the denial is sent at once', async () => {
    const take = vi.fn();
    const page = open({ mode, dialect, clientTools: defineClientTools({ take_photo: take }) });
    await page.say(PHOTO);
    await page.answer('take_photo', false);
    await page.until(() => expect(page.sent).toHaveLength(2));
    await page.rest();
    expect(take).not.toHaveBeenCalled();
    expect(page.tool('take_photo').state).toBe('output-denied');
  });

  it('a client tool without approval runs by itself', async () => {
    const page = open({ mode, dialect, clientTools: defineClientTools({ pick_color: () => 'teal' }) });
    await page.say(COLOR);
    await page.until(() => expect(page.text).toMatch(/teal/));
    await page.rest();
    expect(page.sent).toHaveLength(2);
  });

  it('a client tool beside a server tool, both without approval', async () => {
    const page = open({ mode, dialect, clientTools: defineClientTools({ pick_color: () => 'teal' }) });
    await page.say(`call get_weather {"location":"Tokyo"} && ${COLOR}`);
    await page.until(() => expect(page.text).toMatch(/Tokyo.*teal/s));
    await page.rest();
    expect(page.sent).toHaveLength(2);
  });

  it('mixed tools are sent once, with both results', async () => {
    const page = open({ mode, dialect, clientTools: defineClientTools({ pick_color: () => 'teal' }) });
    await page.say(`${COLOR} && ${PAY}`);
    await page.until(() => expect(page.tool('pick_color').state).toBe('output-available'));
    await page.rest();
    expect(page.sent).toHaveLength(1);
    await page.answer('process_payment', true);
    await page.rest();
    expect(page.sent).toHaveLength(2);
    const answered = page.sent[1]?.messages.at(-1)?.parts.filter((part) => part.type.startsWith('tool-')) as { state: string }[];
    expect(answered.map((part) => part.state)).toContain('output-available');
    expect(answered.map((part) => part.state)).toContain('approval-responded');
    expect(page.text).toMatch(/teal.*Paid 50/s);
  });

  it('regenerates, and takes a changed message', async () => {
    const page = open({ mode, dialect });
    await page.say('say one');
    void page.chat.regenerate();
    await page.until(() => expect(page.sent).toHaveLength(2));
    await page.rest();
    expect(page.text).toBe('one');
    const messageId = page.chat.messages[0]?.id ?? '';
    void page.chat.sendMessage({ text: 'say two', messageId });
    await page.until(() => expect(page.text).toBe('two'));
    await page.rest();
    expect(page.chat.messages).toHaveLength(2);
    expect(await server.messages(page.id)).toHaveLength(2);
  });

  it('works in strict mode, where every effect runs twice', async () => {
    const pick = vi.fn(() => 'teal');
    const page = open({ mode, dialect, clientTools: defineClientTools({ pick_color: pick }), strict: true });
    await page.say(COLOR);
    await page.until(() => expect(page.text).toMatch(/teal/));
    await page.rest();
    expect(pick).toHaveBeenCalledTimes(1);
    expect(page.sent).toHaveLength(2);
    expect(page.chat.messages).toHaveLength(2);
  });

  it('stop ends the turn on the server', async () => {
    const page = open({ mode, dialect });
    void page.chat.sendMessage({ text: 'slow 200' });
    await vi.waitFor(async () => expect(await server.messages(page.id)).not.toHaveLength(0), 10_000);
    await page.chat.stop();
    await page.rest();
    expect(page.chat.status).toBe('ready');
    await vi.waitFor(async () => expect((await server.messages(page.id)).at(-1)?.metadata).toMatchObject({ ended: 'stopped' }), 10_000);
  });

  it('a reload finds the question, and the answer continues the message', async () => {
    const before = open({ mode, dialect });
    await before.say(PAY);
    const page = await before.reload();
    pages.push(page);
    await page.rest();
    await page.answer('process_payment', true);
    await page.rest();
    expect(page.text).toMatch(/Paid 50/);
    expect(page.chat.messages).toHaveLength(2);
    expect(page.sent).toHaveLength(1);
  });
});

it('a resume that finds nothing does not end what was sent meanwhile', async () => {
  const statuses: string[] = [];
  let release = () => {};
  const released = new Promise<void>((resolve) => (release = resolve));
  const page: ChatPage = open({
    fetch: async (url, init) => {
      const response = await fetch(url, init);
      if (init?.method === 'GET') await released;
      return response;
    },
  });
  const sending = page.say('slow 6');
  await page.until(() => expect(page.text).not.toBe(''));
  release();
  await page.until(() => {
    statuses.push(page.chat.status);
    expect(page.text.split(' ').length).toBeGreaterThan(4);
  });
  expect(statuses).not.toContain('ready');
  await sending;
});
