// @vitest-environment jsdom
/** Every approval that is tried over HTTP with the AI SDK's own parts, over `/live` with this library's. */

import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';

import { APPROVALS } from '../../chat/approval-table.mjs';
import { CONFIRMATION_TOOL } from '../src/index.js';
import { toolNameOf } from '../src/tool-parts.js';
import { ChatPage } from './chat-page.js';
import { startServer, type Server } from './server.js';

let server: Server;
let page: ChatPage | undefined;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());
afterEach(() => page?.close());

describe.each(['native', 'adk'] as const)('over /live, dialect %s', (dialect) => {
  it.each(APPROVALS)('$name', async ({ say, rounds, states, text }) => {
    page = new ChatPage({ server, mode: 'live', dialect });
    await page.say(say);
    for (const [index, round] of rounds.entries()) {
      for (const [tool, verdict] of Object.entries(round)) {
        expect(page.sent, 'the chat sends nothing before the last question was answered').toHaveLength(index + 1);
        const { approved, reason } = typeof verdict === 'object' ? verdict : { approved: verdict, reason: undefined };
        await page.answer(tool, approved, reason);
      }
      await page.rest();
    }
    expect(page.sent).toHaveLength(rounds.length + 1);
    expect(page.chat.messages).toHaveLength(2);
    const calls = page.tools.filter((part) => toolNameOf(part) !== CONFIRMATION_TOOL);
    expect(Object.fromEntries(calls.map((part) => [toolNameOf(part), part.state]))).toEqual(states);
    expect(page.text.replaceAll('\n', ' ')).toMatch(text);
  });
});
