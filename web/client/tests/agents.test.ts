/** Which of the bridge's agents answers: over HTTP and `/live`, by name, by a function and by the address alone. */

import { Chat } from '@ai-sdk/react';
import { DefaultChatTransport, type ChatTransport, type UIMessage } from 'ai';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { WebSocket } from 'ws';

import { type AgentChoice, buildUseChatOptions, listAgents } from '../src/index.js';
import { startServer, type Server } from './server.js';

const SEVERAL = `
[[agents]]
id = "weather"
tools = ["get_weather"]
[[agents]]
id = "bank"
name = "The bank"
tools = ["process_payment"]
`;

let server: Server;
beforeAll(async () => {
  server = await startServer(SEVERAL);
});
afterAll(() => server.stop());

let chats = 0;
const newId = () => `agents-${(chats += 1)}`;

const agentOf = async (id: string) => {
  const stored = await fetch(`${server.url}/api/chats/${id}`);
  return stored.ok ? ((await stored.json()) as { agent: string }).agent : undefined;
};

/** Says something and returns what failed, if anything did. */
async function say(id: string, mode: 'sse' | 'live', agent: AgentChoice | undefined): Promise<Error | undefined> {
  const { live, ...options } = buildUseChatOptions({
    id,
    mode,
    baseUrl: server.url,
    agent,
    ...(mode === 'live' && { WebSocket: WebSocket as unknown as typeof globalThis.WebSocket }),
  });
  const chat = new Chat<UIMessage>(options as { id: string; transport: ChatTransport<UIMessage> });
  await chat.sendMessage({ text: 'say hi' });
  live?.close();
  return chat.error;
}

describe('the agent of a chat', () => {
  it('is one of those that are listed', async () => {
    const agents = await listAgents({ baseUrl: server.url });
    expect(agents.map((agent) => [agent.id, agent.default, agent.status])).toEqual([
      ['weather', true, 'ready'],
      ['bank', false, 'ready'],
    ]);
    expect(agents[1]?.name).toBe('The bank');
    expect(agents[1]?.tools.map(({ name }) => name)).toEqual(['process_payment']);
  });

  for (const mode of ['sse', 'live'] as const) {
    it(`is named by an option, ${mode}`, async () => {
      const [named, asked, silent] = [newId(), newId(), newId()];
      expect(await say(named, mode, 'bank')).toBeUndefined();
      expect(await say(asked, mode, () => 'bank')).toBeUndefined();
      expect(await say(silent, mode, () => undefined)).toBeUndefined();
      expect(await Promise.all([named, asked, silent].map(agentOf))).toEqual(['bank', 'bank', 'weather']);
      // It stays, whoever asks next.
      expect(await say(named, mode, undefined)).toBeUndefined();
      expect((await say(named, mode, 'weather'))?.message).toContain('belongs to the agent "bank"');
      expect(await agentOf(named)).toBe('bank');
    });
  }

  it('is refused over HTTP where there is none of that name', async () => {
    const id = newId();
    expect((await say(id, 'sse', 'nobody'))?.message).toContain('there is no agent "nobody"');
    expect(await agentOf(id)).toBeUndefined();
  });

  it('is named by the address of a stock transport, which resumes there too', async () => {
    const id = newId();
    const transport = new DefaultChatTransport<UIMessage>({ api: `${server.url}/api/agents/bank/chat` });
    const chat = new Chat<UIMessage>({ id, transport });
    await chat.sendMessage({ text: 'say hi' });
    expect(chat.error).toBeUndefined();
    expect(await agentOf(id)).toBe('bank');
    await chat.resumeStream();
    expect([chat.error, chat.messages.length]).toEqual([undefined, 2]);
  });
});
