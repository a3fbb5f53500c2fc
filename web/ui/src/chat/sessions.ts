/** The sessions of this page, by chat: those that were opened go on. */
import type { Mode } from '../lib/settings';
import { ChatSession } from './session';

/** Each holds its messages in memory; the oldest that is at rest goes first. */
const MAX_SESSIONS = 12;

const sessions = new Map<string, ChatSession>();

export function sessionOf(id: string, mode: Mode): ChatSession {
  const found = sessions.get(id);
  if (found?.mode === mode) return found;
  // The other mode takes over the same chat, from what the server has of it.
  dropSession(id);
  if (sessions.size >= MAX_SESSIONS) {
    const idle = [...sessions.values()].find((session) => !session.isBusy);
    if (idle !== undefined) dropSession(idle.id);
  }
  const session = new ChatSession(id, mode);
  sessions.set(id, session);
  return session;
}

export function dropSession(id: string): void {
  sessions.get(id)?.close();
  sessions.delete(id);
}
