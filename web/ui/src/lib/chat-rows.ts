/** The list of chats: the newest, which are asked for again and again, and behind them others that were asked for once. */
import type { ChatPage, ChatRow } from './api';

/**
 * The newest page with what is known of the chats behind it.
 *
 * What was listed and is not on the page is older than its end, or it was deleted.
 */
export function withOlder({ rows, next }: ChatPage, before: readonly ChatRow[]): ChatRow[] {
  const last = rows.at(-1);
  if (last === undefined || next === undefined) return rows;
  return merged(
    rows,
    before.filter((row) => compare(row, last) > 0),
  );
}

/** Both lists as one, in the server's order; what the first has of a chat counts. */
export function merged(first: readonly ChatRow[], second: readonly ChatRow[]): ChatRow[] {
  const known = new Set(first.map(({ id }) => id));
  return [...first, ...second.filter(({ id }) => !known.has(id))].sort(compare);
}

/** What changed last comes first. */
function compare(one: ChatRow, other: ChatRow): number {
  return other.updatedAt - one.updatedAt || (one.id < other.id ? 1 : -1);
}
