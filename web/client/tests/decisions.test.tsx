// @vitest-environment jsdom
/** Each decision goes out as it is made, against the real server: what was approved runs, whatever the user does next. */

import { Chat } from '@ai-sdk/react';
import type { UIMessage } from 'ai';
import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { CONFIRMATION_TOOL, DecisionSender, defineClientTools } from '../src/index.js';
import { ChatPage, type PageOptions } from './chat-page.js';
import { startServer, type Server } from './server.js';

const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';
const UPDATE = 'call update_database {"query":"orders","set":{"status":"sent"}}';
const TRACK = 'call change_bgm {"track_name":"jazz"}';

let server: Server;
let page: ChatPage;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());
afterEach(() => page.close());

/** The words of the audit about this tool, in their order. */
async function audited(tool: string): Promise<string[]> {
  return (await server.audit(page.id)).filter(({ toolName }) => toolName === tool).map(({ kind }) => kind);
}

async function untilAudited(tool: string, kind: string): Promise<void> {
  for (;;) {
    if ((await audited(tool)).includes(kind)) return;
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

const MODES = (['sse', 'live'] as const).flatMap((mode) => (['native', 'adk'] as const).map((dialect) => ({ mode, dialect })));

describe.each(MODES)('over $mode, dialect $dialect', (options) => {
  const open = async (say: string, more: Partial<PageOptions> = {}) => {
    page = new ChatPage({ server, ...options, ...more } as PageOptions);
    await page.say(say);
  };

  it.each([true, false])(
    'one of two decided (%s), then the user writes on: that one counts, the other is superseded',
    async (approved) => {
      await open(`${PAY} && ${UPDATE}`);
      await page.answer('process_payment', approved, approved ? undefined : 'no');
      await untilAudited('process_payment', approved ? 'tool.finished' : 'approval.denied');
      page.question('update_database');
      await page.say('say never mind');
      expect(page.text).toBe('never mind');
      expect(await audited('process_payment')).toEqual(
        approved
          ? ['approval.requested', 'approval.approved', 'tool.started', 'tool.finished']
          : ['approval.requested', 'approval.denied'],
      );
      expect(await audited('update_database')).toEqual(['approval.requested', 'approval.superseded']);
      expect(page.decisions).toHaveLength(1);
      expect(page.sent).toHaveLength(2);
    },
  );

  it('one after the other: each is sent, and the chat shows all of it once', async () => {
    await open(`${PAY} && ${UPDATE}`);
    await page.answer('process_payment', true);
    await untilAudited('process_payment', 'tool.finished');
    if (options.dialect === 'native') await page.until(() => expect(page.tool('process_payment').state).toBe('output-available'));
    expect(page.chat.status, 'the chat stays free').toBe('ready');
    await page.answer('update_database', false);
    await page.rest();
    await expectAnswered({ process_payment: 'output-available', update_database: 'output-denied' });
    expect(page.sent).toHaveLength(2);
  });

  it('both at once: none is lost, and each runs once', async () => {
    await open(`${PAY} && ${UPDATE}`);
    const first = page.question('process_payment');
    const second = page.question('update_database');
    void page.chat.addToolApprovalResponse({ id: first, approved: true });
    await page.chat.addToolApprovalResponse({ id: second, approved: true });
    await page.until(() => expect(page.text).not.toBe(''));
    await page.rest();
    await expectAnswered({ process_payment: 'output-available', update_database: 'output-available' });
    for (const tool of ['process_payment', 'update_database']) {
      expect((await audited(tool)).filter((kind) => kind === 'tool.started')).toHaveLength(1);
    }
    expect(page.sent.length + page.decisions.length).toBeLessThanOrEqual(3);
  });

  it('a client tool next to an open question: its approval goes out with its output', async () => {
    const clientTools = defineClientTools({ change_bgm: () => ({ playing: 'jazz' }) }, { storage: null });
    await open(`${TRACK} && ${PAY}`, { clientTools });
    await page.answer('change_bgm', true);
    await untilAudited('change_bgm', 'tool.finished');
    expect(page.decisions).toHaveLength(1);
    await page.answer('process_payment', true);
    await page.rest();
    await expectAnswered({ change_bgm: 'output-available', process_payment: 'output-available' });
  });

  it('a decision that the network lost counts, though the chat was loaded again meanwhile', async () => {
    await open(`${PAY} && ${UPDATE}`);
    const { chat } = page;
    const id = page.question('process_payment');
    let isDown = true;
    const sender = new DecisionSender({
      baseUrl: server.url,
      dialect: options.dialect,
      fetch: (url, init) => (isDown ? Promise.reject(new TypeError('failed to fetch')) : fetch(url, init)),
    });
    const other = new Chat<UIMessage>({ id: chat.id, messages: structuredClone(chat.messages) });
    const loaded = structuredClone(chat.messages);
    await (await sender.respond(other, { id, approved: true })).shown;
    other.messages = loaded;
    isDown = false;
    await sender.flush(other);
    await untilAudited('process_payment', 'tool.finished');
    expect(await audited('update_database')).toEqual(['approval.requested']);
  });

  async function expectAnswered(states: Record<string, string>): Promise<void> {
    expect(page.chat.error).toBeUndefined();
    expect(page.chat.messages).toHaveLength(2);
    expect(page.text).not.toBe('');
    const calls = page.tools.filter(({ type }) => type !== `tool-${CONFIRMATION_TOOL}`);
    expect(Object.fromEntries(calls.map(({ type, state }) => [type.slice('tool-'.length), state]))).toEqual(states);
    const stored = await server.messages(page.id, `?dialect=${options.dialect}`);
    const parts = (messages: readonly { parts: unknown }[]) =>
      JSON.parse(JSON.stringify(messages.map(({ parts }) => parts))) as unknown;
    expect(parts(page.chat.messages)).toEqual(parts(stored));
  }
});
