/** Tools that a page declares with the library: told to the model, run in the page, over HTTP and `/live`. */

import { Chat } from '@ai-sdk/react';
import type { ChatInit, UIMessage } from 'ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';

import { buildUseChatOptions, defineClientTools, type DeclaredTools } from '../src/index.js';
import { startServer, WAIT_LIMIT_MS, type Server } from './server.js';

let server: Server;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());

let chats = 0;

const OPEN_TAB = {
  description: 'Opens a tab of the page.',
  inputSchema: { type: 'object', properties: { tab: { type: 'string' } } },
};

function newChat(mode: 'sse' | 'live', tools?: DeclaredTools) {
  const opened: string[] = [];
  const execute = ({ tab }: { tab: string }) => {
    opened.push(tab);
    return { opened: tab };
  };
  const definition = tools === undefined ? { ...OPEN_TAB, execute } : { execute };
  const clientTools = defineClientTools({ open_tab: definition }, { storage: null });
  const { live, ...options } = buildUseChatOptions({
    id: `declared-${(chats += 1)}`,
    mode,
    baseUrl: server.url,
    clientTools,
    ...(tools !== undefined && { tools }),
    ...(mode === 'live' && { WebSocket: WebSocket as unknown as typeof globalThis.WebSocket }),
  });
  return { chat: new Chat<UIMessage>(options as ChatInit<UIMessage>), clientTools, opened, live };
}

describe('tools that a page declares', () => {
  for (const mode of ['sse', 'live'] as const) {
    it(`are called by the model and run here, ${mode}`, { timeout: WAIT_LIMIT_MS }, async () => {
      for (const tools of [undefined, [{ name: 'open_tab', ...OPEN_TAB }], () => [{ name: 'open_tab', ...OPEN_TAB }]]) {
        const { chat, clientTools, opened, live } = newChat(mode, tools);
        await chat.sendMessage({ text: 'call open_tab {"tab":"mail"}' });
        expect(chat.error).toBeUndefined();
        await clientTools.run(chat);
        await expect
          .poll(() => [chat.status, JSON.stringify(chat.messages.at(-1))], { timeout: WAIT_LIMIT_MS })
          .toEqual(['ready', expect.stringMatching(/"opened":"mail".*"type":"text"/)]);
        expect(opened).toEqual(['mail']);
        live?.close();
      }
    });
  }

  it('are those that say something to the model', () => {
    const execute = () => null;
    expect(defineClientTools({ plain: execute, other: { execute } }).declared).toBeUndefined();
    const tools = defineClientTools({ plain: execute, told: { execute, description: 'Does it.', approval: true } });
    expect(tools.declared).toEqual([{ name: 'told', description: 'Does it.', approval: true }]);
  });
});
