/** Reads a chunk log back, request by request. */
import type { UIMessageChunk } from 'ai';

export interface Recorded {
  id: number;
  chunks: { at: number; chunk: UIMessageChunk }[];
}

/** The answers in a log; none if it is no log. Lines that cannot be read are passed over. */
export function recordedRequests(text: string): Recorded[] {
  const byId = new Map<number, Recorded>();
  for (const line of text.split('\n')) {
    const entry = entryOf(line);
    if (entry === undefined) continue;
    const recorded = byId.get(entry.request) ?? { id: entry.request, chunks: [] };
    byId.set(entry.request, recorded);
    recorded.chunks.push({ at: entry.at, chunk: entry.data });
  }
  // A continuation has no beginning of its own: it cannot be folded alone.
  return [...byId.values()].filter(({ chunks }) => chunks.some(({ chunk }) => chunk.type === 'start-step'));
}

function entryOf(line: string): { request: number; at: number; data: UIMessageChunk } | undefined {
  try {
    const { request, at, direction, data } = JSON.parse(line) as Record<string, unknown>;
    const isChunk = direction === 'in' && typeof data === 'object' && data !== null && 'type' in data;
    if (!isChunk || typeof request !== 'number' || typeof at !== 'number') return undefined;
    return { request, at, data: data as UIMessageChunk };
  } catch {
    return undefined;
  }
}
