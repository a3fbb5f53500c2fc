/**
 * Whether the server can be reached, and the list of chats, which is what it is asked for.
 *
 * ```text
 *               answer                    no answer
 *  connecting ─────────▶ online ─────────────────────▶ reconnecting (a longer wait each time)
 *                          ▲                                │  ▲
 *                          └──────────── answer ────────────┘  │ the browser is online again
 *                                                     offline ─┘ (the browser has no network)
 * ```
 *
 * The list is asked for again every few seconds: that tells of a lost connection, of other browsers' chats and of
 * approvals that wait, with no connection held open per tab (browsers allow six).
 */
import { type AgentInfo, api, type ChatPage, type ChatRow, Refusal, type StoredChat } from './api';
import { merged, withOlder } from './chat-rows';
import { createStore } from './store';
import { onTabsChange } from './tabs';

export type Connection = { phase: 'connecting' | 'online' | 'offline' | 'locked' } | { phase: 'reconnecting'; retryAt: number };

const POLL_MS = 4_000;
/** A hidden page shows only its title. */
const HIDDEN_POLL_MS = 15_000;
/** Apps of an ADK server come and go while the page is open. */
const AGENTS_MS = 30_000;
const RETRY_MS = [1_000, 2_000, 4_000, 8_000, 15_000];

export const connection = createStore<Connection>({ phase: 'connecting' });
export const chats = createStore<ChatRow[] | null>(null);
/** Whether there are chats behind those that are listed. */
export const hasOlder = createStore(false);
/** The server's agents, the default first. */
export const agents = createStore<readonly AgentInfo[] | null>(null);
/** Counts how often the server was lost and found again; `restarted` tells whether it is another process. */
export const recoveries = createStore({ count: 0, restarted: false });

/** The address of the chats behind those that are listed. */
let next: string | undefined;
let hasLoadedOlder = false;
/** The chat that was there before the list. */
let opened: ChatRow | undefined;
let timer: ReturnType<typeof setTimeout> | undefined;
let failures = 0;
let agentsAt = 0;
let asking: Promise<void> | undefined;

export function startConnection(): void {
  window.addEventListener('online', () => void refresh());
  window.addEventListener('offline', () => connection.set({ phase: 'offline' }));
  document.addEventListener('visibilitychange', () => void refresh());
  onTabsChange(() => void refresh());
  void refresh();
}

/** Asks the server at once, whatever was planned; the answer also tells whether it is there. */
export function refresh(): Promise<void> {
  asking ??= ask().finally(() => {
    asking = undefined;
  });
  return asking;
}

/** Asks with what has just changed, such as the key; a question that is under way was asked without it. */
export async function checkAgain(): Promise<void> {
  await asking;
  await refresh();
}

/** Lists the chats behind those that are listed. They are not asked for again: one that changes becomes one of the newest. */
export async function loadOlder(): Promise<void> {
  if (next === undefined) return;
  const page = await api.chats(next);
  hasLoadedOlder = true;
  setNext(page.next);
  chats.set((before) => merged(page.rows, before ?? []));
}

/** Lists the chats whose titles have these words, wherever they are. */
export async function findChats(words: string, signal: AbortSignal): Promise<void> {
  let address: string | undefined = `?q=${encodeURIComponent(words)}`;
  while (address !== undefined) {
    const page: ChatPage = await api.chats(address);
    if (signal.aborted) return;
    chats.set((before) => merged(before ?? [], page.rows));
    // A page without chats only says that the search goes on.
    address = page.rows.length === 0 ? page.next : undefined;
  }
}

/** Lists a chat that was opened by its address, however old it is. */
export function listOpened({ id, title, createdAt, updatedAt, agent }: StoredChat): void {
  const row = { id, title, createdAt, updatedAt, agent, pendingApprovals: 0, pendingOutputs: [] };
  const listed = chats.get();
  if (listed === null) opened = row;
  else if (hasOlder.get() && !listed.some((other) => other.id === id)) chats.set(merged(listed, [row]));
}

/** What was done here to a chat that is not asked for again. */
export function changeListed(id: string, change: (row: ChatRow) => ChatRow[]): void {
  chats.set((before) => before?.flatMap((row) => (row.id === id ? change(row) : [row])) ?? null);
}

function setNext(address: string | undefined): void {
  next = address;
  hasOlder.set(address !== undefined);
}

async function ask(): Promise<void> {
  clearTimeout(timer);
  try {
    const isDue = failures > 0 || (agents.get()?.length ?? 0) === 0 || Date.now() - agentsAt > AGENTS_MS;
    const [page, found] = await Promise.all([api.chats(), isDue ? api.agents() : null]);
    if (!hasLoadedOlder || page.next === undefined) setNext(page.next);
    chats.set((before) => {
      const rows = withOlder(page, before ?? (opened ? [opened] : []));
      return JSON.stringify(before) === JSON.stringify(rows) ? before : rows;
    });
    recovered(found);
    timer = setTimeout(() => void refresh(), document.hidden ? HIDDEN_POLL_MS : POLL_MS);
  } catch (problem) {
    failed(problem);
  }
}

function recovered(found: readonly AgentInfo[] | null): void {
  const before = agents.get();
  const wasLost = failures > 0 && before !== null;
  failures = 0;
  if (found !== null) {
    agentsAt = Date.now();
    if (JSON.stringify(found) !== JSON.stringify(before)) agents.set(found);
  }
  connection.set((state) => (state.phase === 'online' ? state : { phase: 'online' }));
  if (wasLost) {
    const restarted = found !== null && found[0]?.instance !== before[0]?.instance;
    recoveries.set(({ count }) => ({ count: count + 1, restarted }));
  }
}

function failed(problem: unknown): void {
  if (problem instanceof Refusal && problem.status === 401) {
    connection.set({ phase: 'locked' });
    return;
  }
  failures += 1;
  if (!navigator.onLine) {
    connection.set({ phase: 'offline' });
    return;
  }
  const wait = RETRY_MS[Math.min(failures, RETRY_MS.length) - 1] ?? POLL_MS;
  connection.set({ phase: 'reconnecting', retryAt: Date.now() + wait });
  timer = setTimeout(() => void refresh(), wait);
}
