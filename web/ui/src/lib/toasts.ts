/** Short notes at the edge of the page, some with a way back. */
import { createStore } from './store';

export interface Toast {
  id: number;
  text: string;
  tone: 'plain' | 'error';
  action?: { label: string; run: () => void };
}

const SHOWN_MS = 6_000;

export const toasts = createStore<Toast[]>([]);
let last = 0;

export function toast(text: string, options: { tone?: Toast['tone']; action?: Toast['action'] } = {}): () => void {
  last += 1;
  const id = last;
  const entry: Toast = { id, text, tone: options.tone ?? 'plain', ...(options.action && { action: options.action }) };
  const remove = () => toasts.set((shown) => shown.filter((other) => other.id !== id));
  toasts.set((shown) => [...shown.slice(-3), entry]);
  setTimeout(remove, SHOWN_MS);
  return remove;
}

export const UNDO_MS = SHOWN_MS;
