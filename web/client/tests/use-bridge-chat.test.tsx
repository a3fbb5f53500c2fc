// @vitest-environment jsdom
/** `useBridgeChat` against the real server: the scenarios of docs/adr/0005 and 0007 to 0009, in both modes and dialects. */

import { afterAll, afterEach, beforeAll, describe, expect, it, vi } from 'vitest';

import { CONFIRMATION_TOOL, defineClientTools } from '../src/index.js';
import { ChatPage, textOf, type PageOptions } from './chat-page.js';
import { startServer, WAIT_LIMIT_MS, type Server } from './server.js';

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

  it.each([true, false])('a decision (%s) is sent at once, in one request', async (approved) => {
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
  ])('one tool after the other (%s, %s)', async (first, second) => {
    const page = open({ mode, dialect });
    await page.say('search the database and update it');
    await page.answer('search_database', first);
    await page.rest();
    if (dialect === 'adk') expect(page.text).toBe('');
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

  it('an approved client tool runs after the approval, and both are sent at once', async () => {
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

  it('the error of a client tool reaches the model', async () => {
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

  it('a client tool that the page runs itself, named only', async () => {
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

  it('a client tool without approval runs automatically', async () => {
    const page = open({ mode, dialect, clientTools: defineClientTools({ pick_color: () => 'teal' }) });
    await page.say(COLOR);
    await page.until(() => expect(page.text).toMatch(/teal/));
    await page.rest();
    expect(page.sent).toHaveLength(2);
  });

  it('a client tool next to a server tool, both without approval', async () => {
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
    await vi.waitFor(async () => expect(await server.messages(page.id)).not.toHaveLength(0), WAIT_LIMIT_MS);
    await page.chat.stop();
    await page.rest();
    expect(page.chat.status).toBe('ready');
    await vi.waitFor(
      async () => expect((await server.messages(page.id)).at(-1)?.metadata).toMatchObject({ ended: 'stopped' }),
      WAIT_LIMIT_MS,
    );
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

it('voice belongs to a live chat, and says why it cannot be had', async () => {
  const silent = open({ mode: 'sse' });
  await silent.chat.voice.start();
  expect(silent.chat.voice.state).toEqual({ status: 'off' });
  const page = open({ mode: 'live', voice: { mode: 'hands-free' } });
  expect(page.chat.voice.mode).toBe('hands-free');
  await page.chat.voice.start();
  await page.until(() => expect(page.chat.voice.state.error?.message).toMatch(/AudioContext/));
  expect(page.chat.voice.state.status).toBe('off');
  await page.say('say hello');
  expect(page.text).toBe('hello');
});

/** A way to hold something back until it is time. */
function gate(): { opened: Promise<void>; open: () => void } {
  let open = () => {};
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

describe('a resume during a send', () => {
  it.each(['nothing', 'a failure'])('that finds %s does not end what was sent meanwhile', async (what) => {
    const statuses: string[] = [];
    const resumed = gate();
    const page: ChatPage = open({
      fetch: async (url, init) => {
        const response = await fetch(url, init);
        if (init?.method !== 'GET') return response;
        expect(response.status).toBe(204);
        await resumed.opened;
        return what === 'nothing' ? response : new Response('no', { status: 500 });
      },
    });
    void page.chat.sendMessage({ text: 'slow 200' });
    await page.until(() => expect(page.text).not.toBe(''));
    const words = page.text.split(' ').length;
    resumed.open();
    await page.until(() => {
      statuses.push(page.chat.status);
      expect(page.text.split(' ').length).toBeGreaterThan(words + 2);
    });
    expect(statuses.filter((status) => status !== 'streaming')).toEqual([]);
    await page.chat.stop();
    await page.rest();
    expect(page.chat.error).toBeUndefined();
  });

  it('that finds the turn of the send is left to the send', async () => {
    const streams = gate();
    const isLeft = gate();
    const page: ChatPage = open({
      fetch: async (url, init) => {
        if (init?.method !== 'GET') return fetch(url, init);
        await streams.opened;
        const response = await fetch(url, init);
        expect(response.status).toBe(200);
        const reader = response.body?.getReader();
        const body = new ReadableStream<Uint8Array>({
          pull: async (controller) => {
            const { value } = (await reader?.read()) ?? {};
            if (value !== undefined) controller.enqueue(value);
            else controller.close();
          },
          cancel: () => {
            isLeft.open();
            return reader?.cancel();
          },
        });
        return new Response(body, { headers: response.headers });
      },
    });
    void page.chat.sendMessage({ text: 'slow 200' });
    await page.until(() => expect(page.text).not.toBe(''));
    streams.open();
    await isLeft.opened;
    expect(page.chat.status).toBe('streaming');
    await page.chat.stop();
    await page.rest();
    expect(page.chat.messages).toHaveLength(2);
    const [said] = page.text.split(' stopped');
    expect(textOf((await server.messages(page.id)).at(-1))).toContain(said);
  });

  it.each([
    ['under way before the send', true],
    ['begun while the send is under way', false],
  ])('%s does not undo what the page has done with the turn', async (_when, atMount) => {
    const { page, sent, finished, resumed, left } = recordingPage({ resume: atMount });
    void page.chat.sendMessage({ text: `${COLOR} && ${PAY}` });
    await sent.opened;
    if (!atMount) void page.chat.resumeStream();
    await page.until(() => expect(page.tools.length).toBeGreaterThan(0));
    finished.open();
    await page.until(() => expect(page.tool('pick_color').state).toBe('output-available'));
    expect(left()).toBe(1);
    resumed.open();
    await page.rest();
    expect(page.tool('pick_color').output).toBe('teal');
    await page.answer('process_payment', true);
    await page.until(() => expect(page.text).toMatch(/teal.*Paid 50/s));
    expect(page.sent).toHaveLength(2);
  });

  it('a turn that is replayed after its client tool was reported is reported again, and sent once', async () => {
    const { page, resumed, finished, pick } = recordingPage({ resume: false });
    finished.open();
    await page.say(`${COLOR} && ${PAY}`);
    await page.until(() => expect(page.tool('pick_color').state).toBe('output-available'));
    void page.chat.resumeStream();
    await page.until(() => expect(page.tool('pick_color').state).toBe('input-available'));
    resumed.open();
    await page.until(() => expect(page.tool('pick_color').output).toBe('teal'));
    await page.rest();
    expect(page.sent).toHaveLength(1);
    await page.answer('process_payment', true);
    await page.until(() => expect(page.text).toMatch(/teal.*Paid 50/s));
    await page.rest();
    expect(pick).toHaveBeenCalledTimes(1);
    expect(page.sent).toHaveLength(2);
  });

  /**
   * A page whose resume is answered with what its first request was answered with, as the server does while a turn runs.
   * The last event of both is held back, so that they are under way for as long as the test wants.
   */
  function recordingPage({ resume }: { resume: boolean }) {
    const [sent, finished, resumed] = [gate(), gate(), gate()];
    const pick = vi.fn(() => 'teal');
    let turn: string | undefined;
    let left = 0;
    const held = (text: string, { opened }: { opened: Promise<void> }) => {
      const end = text.indexOf('data: {"type":"finish"');
      const pieces = [text.slice(0, end), text.slice(end)];
      const body = new ReadableStream<Uint8Array>(
        {
          pull: async (controller) => {
            const piece = pieces.shift();
            if (piece === undefined) return controller.close();
            if (pieces.length === 0) await opened;
            controller.enqueue(new TextEncoder().encode(piece));
          },
          cancel: () => void (left += 1),
        },
        { highWaterMark: 0 },
      );
      return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
    };
    const page: ChatPage = open({
      resume,
      clientTools: defineClientTools({ pick_color: pick }),
      fetch: async (url, init) => {
        if (init?.method === 'GET') {
          await sent.opened;
          return held(turn as string, resumed);
        }
        page.sent.push(JSON.parse(String(init?.body)) as never);
        const response = await fetch(url, init);
        if (turn !== undefined) return response;
        turn = await response.text();
        sent.open();
        return held(turn, finished);
      },
    });
    return { page, sent, finished, resumed, pick, left: () => left };
  }
});
