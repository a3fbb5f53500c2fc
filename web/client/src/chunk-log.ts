/**
 * Keeps everything that crossed a transport, with times, and plays it back: for bug reports and for tests of pages.
 *
 * One JSON object per line: requests (`send`, `resume`), the chunks of their answers, how they ended, and what a live
 * connection reported in addition. A playback answers the n-th request with what the n-th request was answered with.
 *
 * Logs of adk-stream-protocol are read too. They hold chunks without their requests: a `[DONE]` ends an answer, or the
 * `start` of the next one, or, where a question was asked, the end of its step: there its front end stops reading.
 */

import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai';

import type { LiveChatTransport, LiveEvents } from './live/live-chat-transport.js';
import { watched } from './watched-stream.js';

/** One line of a log; `at` counts milliseconds from the log's beginning, `request` the requests. */
export type ChunkLogEntry =
  | { at: number; request: number; kind: 'send'; trigger: string; messageId?: string; messages: UIMessage[]; body?: object }
  | { at: number; request: number; kind: 'resume' }
  | { at: number; request: number; kind: 'chunk'; chunk: UIMessageChunk }
  | { at: number; request: number; kind: 'end' | 'nothing' }
  | { at: number; request: number; kind: 'error'; message: string }
  | { at: number; request?: undefined; kind: 'event'; name: string; event: unknown };

/** An entry before it is given its place in time. */
type News = ChunkLogEntry extends infer Entry ? (Entry extends unknown ? Omit<Entry, 'at'> : never) : never;

/** Everything outside of the chat's streams, except audio, which would be most of a log. */
const EVENTS: readonly (keyof LiveEvents)[] = ['turn-start', 'turn-end', 'interrupted', 'modality', 'data', 'error', 'stale'];

/** More entries than a long conversation has; the oldest go first. */
const MAX_ENTRIES = 100_000;

/** A log of one chat. */
export class ChunkLog {
  readonly #began = performance.now();
  #entries: ChunkLogEntry[] = [];
  #requests = 0;

  /** Everything that was kept, oldest first. */
  get entries(): readonly ChunkLogEntry[] {
    return this.#entries;
  }

  /** The same transport, with everything that crosses it kept. */
  record<Message extends UIMessage>(transport: ChatTransport<Message>): ChatTransport<Message> {
    return {
      resumeStreamIsReplay: transport.resumeStreamIsReplay ?? true,
      sendMessages: (options) => {
        const request = this.#requests++;
        const { trigger, messageId, messages, body } = options;
        const more = { ...(messageId !== undefined && { messageId }), ...(body !== undefined && { body }) };
        this.#keep({ request, kind: 'send', trigger, messages: structuredClone(messages), ...more });
        return this.#answer(request, () => transport.sendMessages(options)) as Promise<ReadableStream<UIMessageChunk>>;
      },
      reconnectToStream: (options) => {
        const request = this.#requests++;
        this.#keep({ request, kind: 'resume' });
        return this.#answer(request, () => transport.reconnectToStream(options));
      },
    };
  }

  /** Logs what a live connection reports outside of its turns, and its state; returns a function that ends this. */
  follow(live: Pick<LiveChatTransport, 'on' | 'connection'>): () => void {
    const keep = (name: string, event: unknown) => this.#keep({ kind: 'event', name, event: structuredClone(event) });
    const stops = EVENTS.map((name) => live.on(name, (event) => keep(name, event)));
    stops.push(live.connection.subscribe(() => keep('connection', live.connection.get())));
    return () => stops.forEach((stop) => stop());
  }

  /** The log as lines of JSON. */
  toJsonl(): string {
    return this.#entries.map((entry) => `${JSON.stringify(entry)}\n`).join('');
  }

  /** Hands the log to the user as a file; only in a browser. */
  download(name = 'chunk-log.jsonl'): void {
    const url = URL.createObjectURL(new Blob([this.toJsonl()], { type: 'application/jsonl' }));
    Object.assign(document.createElement('a'), { href: url, download: name }).click();
    URL.revokeObjectURL(url);
  }

  async #answer(
    request: number,
    ask: () => Promise<ReadableStream<UIMessageChunk> | null>,
  ): Promise<ReadableStream<UIMessageChunk> | null> {
    const failed = (error: unknown) =>
      this.#keep({ request, kind: 'error', message: error instanceof Error ? error.message : String(error) });
    try {
      const stream = await ask();
      if (stream !== null) {
        return watched(stream, {
          chunk: (chunk) => this.#keep({ request, kind: 'chunk', chunk: structuredClone(chunk) }),
          over: (how, error = 'stopped') => (how === 'ended' ? this.#keep({ request, kind: 'end' }) : failed(error)),
        });
      }
      this.#keep({ request, kind: 'nothing' });
      return null;
    } catch (error) {
      failed(error);
      throw error;
    }
  }

  #keep(news: News): void {
    const at = Math.round(performance.now() - this.#began);
    this.#entries.push({ at, ...news } as ChunkLogEntry);
    if (this.#entries.length > MAX_ENTRIES) this.#entries = this.#entries.slice(MAX_ENTRIES / 10);
  }
}

/** Options of {@link playChunkLog}. */
export interface PlayChunkLogOptions {
  /** 1 keeps the times of the recording, 2 is twice as fast; without it everything comes at once. */
  speed?: number;
}

/** Reads lines of JSON as {@link ChunkLog} or adk-stream-protocol write them; says which line is none. */
export function parseChunkLog(jsonl: string): ChunkLogEntry[] {
  const answers = new ForeignAnswers();
  return jsonl.split('\n').flatMap((line, index) => {
    if (line.trim() === '') return [];
    try {
      const entry = JSON.parse(line) as ChunkLogEntry | ForeignEntry;
      if ('kind' in entry && typeof entry.kind === 'string' && typeof entry.at === 'number') return [entry];
      if ('location' in entry && typeof entry.location === 'string' && typeof entry.timestamp === 'number')
        return answers.take(entry);
    } catch {
      // Reported below.
    }
    throw new Error(`line ${index + 1} is not an entry of a chunk log`);
  });
}

/** One line of a log of adk-stream-protocol: a chunk as an object or as an SSE event, or the end of an answer. */
interface ForeignEntry {
  location: string;
  timestamp: number;
  chunk: unknown;
}

/** Numbers the answers in a log that has no requests. */
class ForeignAnswers {
  #began = 0;
  /** Where the log was taken. A chunk that was logged in several places counts in the first of them. */
  #location: string | undefined;
  #request = 0;
  #answer: 'none' | 'open' | 'asked' | 'waiting' = 'none';

  take({ location, timestamp, chunk: logged }: ForeignEntry): ChunkLogEntry[] {
    const chunk = foreignChunk(logged);
    if (chunk === undefined || location !== (this.#location ?? location)) return [];
    // What a connection says outside of answers.
    if (chunk !== DONE && this.#answer === 'none' && chunk.type.startsWith('data-')) return [];
    if (this.#location === undefined) {
      this.#location = location;
      this.#began = timestamp;
    }
    const at = timestamp - this.#began;
    if (chunk === DONE) return this.#end(at);
    const goesOn = this.#answer === 'waiting' && !['finish', 'message-metadata'].includes(chunk.type);
    const ended = chunk.type === 'start' || goesOn ? this.#end(at) : [];
    const begun: ChunkLogEntry = { at, request: this.#request, kind: 'send', trigger: 'submit-message', messages: [] };
    const entries: ChunkLogEntry[] = this.#answer === 'none' ? [begun] : [];
    if (this.#answer === 'none') this.#answer = 'open';
    if (chunk.type === 'tool-approval-request') this.#answer = 'asked';
    if (chunk.type === 'finish-step' && this.#answer === 'asked') this.#answer = 'waiting';
    return [...ended, ...entries, { at, request: this.#request, kind: 'chunk', chunk }];
  }

  #end(at: number): ChunkLogEntry[] {
    if (this.#answer === 'none') return [];
    this.#answer = 'none';
    return [{ at, request: this.#request++, kind: 'end' }];
  }
}

const DONE = '[DONE]';

/** What a socket carries besides chunks, in both directions. */
const FRAMES = [
  ...['message', 'tool_result', 'audio_control', 'audio_chunk', 'video_frame', 'interrupt', 'ping'],
  ...['pong', 'turn-start', 'turn-end', 'interrupted', 'modality', 'reconnect'],
];

/** What an entry holds; nothing for what no front end was sent, such as an event as Python prints it. */
function foreignChunk(logged: unknown): UIMessageChunk | typeof DONE | undefined {
  if (typeof logged === 'string') {
    const text = logged.trim().replace(/^data:\s*/, '');
    if (text === DONE) return DONE;
    return text.startsWith('{') ? foreignChunk(JSON.parse(text)) : undefined;
  }
  const isTyped = typeof logged === 'object' && logged !== null && 'type' in logged && typeof logged.type === 'string';
  return isTyped && !FRAMES.includes(logged.type as string) ? (logged as UIMessageChunk) : undefined;
}

/** A transport that answers as a recorded one was answered, request by request. */
export function playChunkLog<Message extends UIMessage = UIMessage>(
  log: string | readonly ChunkLogEntry[],
  { speed }: PlayChunkLogOptions = {},
): ChatTransport<Message> {
  const entries = typeof log === 'string' ? parseChunkLog(log) : log;
  const of = (kind: string) => entries.filter((entry) => entry.kind === kind).map(({ request }) => request);
  const waiting = { send: of('send'), resume: of('resume') };
  const answer = (kind: 'send' | 'resume', signal: AbortSignal | undefined) => {
    const request = waiting[kind].shift();
    if (request === undefined) return undefined;
    return streamOf(
      entries.filter((entry) => entry.request === request),
      speed,
      signal,
    );
  };
  return {
    resumeStreamIsReplay: true,
    sendMessages: async ({ abortSignal }) => {
      const stream = answer('send', abortSignal);
      if (stream === undefined) throw new Error('the recording has no more requests');
      return stream;
    },
    reconnectToStream: async ({ abortSignal }) => answer('resume', abortSignal) ?? null,
  };
}

/** The answer that these entries tell; none where there was none. */
function streamOf(
  entries: readonly ChunkLogEntry[],
  speed: number | undefined,
  signal: AbortSignal | undefined,
): ReadableStream<UIMessageChunk> | undefined {
  if (entries.some(({ kind }) => kind === 'nothing')) return undefined;
  const rest = [...entries];
  let before = rest.shift()?.at ?? 0;
  return new ReadableStream({
    async pull(controller) {
      const entry = rest.shift();
      if (entry === undefined || entry.kind === 'end') return controller.close();
      if (speed !== undefined) await pause((entry.at - before) / speed, signal);
      before = entry.at;
      if (entry.kind === 'chunk') controller.enqueue(entry.chunk);
      else if (entry.kind === 'error') controller.error(new Error(entry.message));
    },
  });
}

function pause(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      signal?.removeEventListener('abort', finish);
      resolve();
    };
    const timer = setTimeout(finish, ms);
    signal?.addEventListener('abort', finish);
  });
}
