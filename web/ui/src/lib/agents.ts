/** Which agent answers: that of the open chat, or the one that the user chose for a new one. */
import type { AgentInfo } from './api';
import { agents, chats } from './connection';
import { currentChatId, onRoute } from './route';
import { createKeptStore, createStore } from './store';

/** The agent that was chosen last, for the next new chat; empty where nobody chose. */
export const chosenAgent = createKeptStore('adk-bridge.agent', '', (value): value is string => typeof value === 'string');

/** The agent of the open chat; `null` while none is known. */
export const agent = createStore<AgentInfo | null>(null);

/** The id of the agent that a chat belongs to; `undefined` before its first message. */
export function agentIdOf(chatId: string): string | undefined {
  return chats.get()?.find(({ id }) => id === chatId)?.agent ?? undefined;
}

/** The agent of new chats: the chosen one as long as it is there, or the default. */
export function nextAgent(): AgentInfo | undefined {
  const all = agents.get() ?? [];
  return all.find(({ id }) => id === chosenAgent.get()) ?? all.find((one) => one.default) ?? all[0];
}

/** What a request of a chat names: nothing where there is no choice, or the server knows. */
export function wantedAgent(chatId: string): string | undefined {
  return (agents.get()?.length ?? 0) > 1 && agentIdOf(chatId) === undefined ? nextAgent()?.id : undefined;
}

function update(): void {
  const id = agentIdOf(currentChatId());
  agent.set((id === undefined ? nextAgent() : agents.get()?.find((one) => one.id === id)) ?? null);
}

for (const store of [agents, chats, chosenAgent]) store.subscribe(update);
onRoute(update);
update();
