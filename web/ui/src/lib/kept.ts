/** What the user wrote and the server does not have yet: drafts, half-filled forms and messages that wait, kept in this browser. */
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

/** A form that is being filled in, by the call that asks. */
export interface KeptForm {
  entries: Readonly<Record<string, string | boolean>>;
  /** Where it is written as JSON. */
  json: string | undefined;
}

export function keptForm(call: string): KeptForm {
  const { entries = {}, json } = read<Partial<KeptForm>>(`form.${call}`) ?? {};
  return { entries, json };
}

export function keepForm(call: string, form: KeptForm): void {
  const isEmpty = Object.keys(form.entries).length === 0 && form.json === undefined;
  write(`form.${call}`, isEmpty ? null : form);
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
