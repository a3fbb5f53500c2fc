/** Reads a chunk log back, answer by answer: the inspector's own, and those that the library's `ChunkLog` writes. */
import type { UIMessageChunk } from 'ai';

export interface Recorded {
  id: number;
  chunks: { at: number; chunk: UIMessageChunk }[];
}

interface Entry {
  request: number;
  at: number;
  chunk: UIMessageChunk;
}

/** The answers in a log; none if it is no log. Lines that cannot be read are passed over. */
export function recordedAnswers(text: string): Recorded[] {
  const answers: Recorded[] = [];
  const open = new Map<number, Recorded>();
  for (const entry of text.split('\n').flatMap((line) => entryOf(line) ?? [])) {
    let answer = open.get(entry.request);
    // One connection carries many turns, one after the other.
    if (answer === undefined || (entry.chunk.type === 'start' && answer.chunks.length > 0)) {
      answer = { id: answers.length, chunks: [] };
      answers.push(answer);
      open.set(entry.request, answer);
    }
    answer.chunks.push({ at: entry.at, chunk: entry.chunk });
  }
  // A continuation has no beginning of its own: it cannot be folded alone.
  return answers.filter(({ chunks }) => chunks.some(({ chunk }) => chunk.type === 'start-step'));
}

function entryOf(line: string): Entry | undefined {
  try {
    const { request, at, direction, kind, data, chunk = data } = JSON.parse(line) as Record<string, unknown>;
    const isChunk = direction === 'in' || kind === 'chunk';
    if (!isChunk || typeof request !== 'number' || typeof at !== 'number') return undefined;
    return typeof chunk === 'object' && chunk !== null && 'type' in chunk && !isControl(chunk.type)
      ? { request, at, chunk: chunk as UIMessageChunk }
      : undefined;
  } catch {
    return undefined;
  }
}

/** Frames of a live connection that are no part of a message. */
function isControl(type: unknown): boolean {
  return ['pong', 'turn-start', 'turn-end', 'interrupted', 'modality', 'reconnect'].includes(String(type));
}
