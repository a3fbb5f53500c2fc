/** What the user wrote and the server does not have yet: drafts and messages that wait, kept in this browser. */
import type { FileUIPart } from 'ai';

export interface Waiting {
  /** Becomes the message's id, so that it cannot be sent twice. */
  id: string;
  text: string;
  files: FileUIPart[];
}

export function keptDraft(chat: string): string {
  return read<string>(`draft.${chat}`) ?? '';
}

export function keepDraft(chat: string, text: string): void {
  write(`draft.${chat}`, text === '' ? null : text);
}

export function keptQueue(chat: string): Waiting[] {
  const found = read<Waiting[]>(`queue.${chat}`);
  return Array.isArray(found) ? found : [];
}

export function keepQueue(chat: string, queue: Waiting[]): void {
  write(`queue.${chat}`, queue.length === 0 ? null : queue);
}

export function forget(chat: string): void {
  keepDraft(chat, '');
  keepQueue(chat, []);
}

function read<T>(key: string): T | null {
  try {
    return JSON.parse(localStorage.getItem(`adk-bridge.${key}`) ?? 'null') as T | null;
  } catch {
    return null;
  }
}

function write(key: string, value: unknown): void {
  try {
    if (value === null) localStorage.removeItem(`adk-bridge.${key}`);
    else localStorage.setItem(`adk-bridge.${key}`, JSON.stringify(value));
  } catch {
    // A browser that keeps nothing still sends.
  }
}
