/**
 * What passed between page and server, for the inspector: every chunk with its time, and sums per request.
 *
 * The library's `ChunkLog` keeps what a chat is handed; this one lies below it, where frames, sizes and requests are seen.
 */
import { createStore } from './store';

export interface LoggedChunk {
  /** Counts all chunks of the page. */
  number: number;
  request: number;
  at: number;
  direction: 'in' | 'out';
  type: string;
  data: unknown;
}

export interface LoggedRequest {
  id: number;
  chat: string;
  transport: string;
  label: string;
  startedAt: number;
  firstChunkAt?: number;
  firstTextAt?: number;
  endedAt?: number;
  bytes: number;
  chunks: number;
  status?: number;
}

/** Older chunks are dropped: the log is for looking at, the server keeps the chat. */
const MAX_CHUNKS = 20_000;
const MAX_REQUESTS = 100;

const chunks: LoggedChunk[] = [];
const requests: LoggedRequest[] = [];
let numbers = 0;

/** Changes at most once per frame. */
export const logVersion = createStore(0);
let announced = false;

export function loggedChunks(): readonly LoggedChunk[] {
  return chunks;
}

export function loggedRequests(): readonly LoggedRequest[] {
  return requests;
}

export function clearLog(): void {
  chunks.length = 0;
  requests.length = 0;
  announce();
}

export function beginRequest(chat: string, transport: string, label: string, body?: unknown): LoggedRequest {
  const request: LoggedRequest = { id: numbers, chat, transport, label, startedAt: Date.now(), bytes: 0, chunks: 0 };
  requests.push(request);
  if (requests.length > MAX_REQUESTS) requests.shift();
  logChunk(request, 'out', label, body ?? null, 0);
  return request;
}

export function logChunk(request: LoggedRequest, direction: 'in' | 'out', type: string, data: unknown, bytes: number): void {
  const at = Date.now();
  numbers += 1;
  if (direction === 'in') {
    request.firstChunkAt ??= at;
    if (type === 'text-delta') request.firstTextAt ??= at;
    request.chunks += 1;
    request.bytes += bytes;
  }
  chunks.push({ number: numbers, request: request.id, at, direction, type, data });
  // Dropped in pieces: shifting at every chunk would move the whole array each time.
  if (chunks.length > MAX_CHUNKS * 1.1) chunks.splice(0, chunks.length - MAX_CHUNKS);
  announce();
}

export function endRequest(request: LoggedRequest): void {
  request.endedAt = Date.now();
  announce();
}

/** The log as lines of JSON, which `replay` and other tools read. */
export function logAsText(): string {
  return `${chunks.map((chunk) => JSON.stringify(chunk)).join('\n')}\n`;
}

function announce(): void {
  if (announced) return;
  announced = true;
  requestAnimationFrame(() => {
    announced = false;
    logVersion.set((version) => version + 1);
  });
}
