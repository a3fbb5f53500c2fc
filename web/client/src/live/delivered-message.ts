/**
 * Knows what of a message has reached the chat, and lets through only what is new in a stream that tells it again.
 *
 * After a reconnect the server tells the running message from its first chunk, with texts in other pieces than before.
 * Ids are the same, so that every chunk can be held against what the chat has: texts and inputs by their length, calls
 * by how far they had come, steps and nameless parts by their number.
 */

import type { UIMessage, UIMessageChunk } from 'ai';

import { chunksOf } from './chunks-of.js';

type Chunk = { type: string; [field: string]: unknown };

export class DeliveredMessage {
  /** Lengths of texts, and how often each other thing was told, by a key. */
  readonly #told = new Map<string, number>();
  /** The same for the stream that tells the message again. */
  #retold: Map<string, number> | undefined;
  readonly #held: UIMessageChunk[] = [];
  #isDecided = false;
  /** Whether a stream has brought anything that was not there. */
  hasNews = false;

  /** `message` is what the chat has already. */
  constructor(message?: UIMessage) {
    if (message === undefined) return;
    for (const chunk of chunksOf(message, 7)) this.#note(chunk as Chunk, this.#told);
  }

  /** Whether it is known if the stream tells the message again. */
  get isDecided(): boolean {
    return this.#isDecided;
  }

  /** Whether the stream tells the message again, rather than going on with it. */
  get tellsAgain(): boolean {
    return this.#retold !== undefined;
  }

  /** To be called before each stream; `tellsAgain` is left out where its first chunks have to tell. */
  begin(tellsAgain?: boolean): void {
    this.#retold = tellsAgain === true ? new Map() : undefined;
    this.#held.length = 0;
    this.#isDecided = tellsAgain !== undefined || this.#told.size === 0;
    this.hasNews = false;
  }

  /** The chunks that the chat does not have yet; empty while it is open whether the stream tells the message again. */
  take(chunk: UIMessageChunk): UIMessageChunk[] {
    if (this.#isDecided) return this.#pass(chunk as Chunk);
    this.#held.push(chunk);
    const verdict = this.#verdict(chunk as Chunk);
    return verdict === undefined ? [] : this.#decide(verdict);
  }

  /** What was held back until the end of the stream. */
  end(): UIMessageChunk[] {
    return this.#isDecided ? [] : this.#decide(false);
  }

  #decide(tellsAgain: boolean): UIMessageChunk[] {
    this.#isDecided = true;
    if (tellsAgain) this.#retold = new Map();
    return this.#held.splice(0).flatMap((chunk) => this.#pass(chunk as Chunk));
  }

  /** The first chunk with an id tells: one that opens what is there already belongs to a repetition. */
  #verdict(chunk: Chunk): boolean | undefined {
    const key = openingKey(chunk);
    if (key !== undefined) return this.#told.has(key);
    return chunk.type.startsWith('tool-output-') || TERMINAL.has(chunk.type) ? false : undefined;
  }

  #pass(chunk: Chunk): UIMessageChunk[] {
    const news = this.#retold === undefined ? chunk : this.#beyond(chunk, this.#retold);
    if (news === undefined) return [];
    if (!QUIET.has(chunk.type)) this.hasNews = true;
    this.#note(news, this.#told);
    return [news as UIMessageChunk];
  }

  #beyond(chunk: Chunk, retold: Map<string, number>): Chunk | undefined {
    const text = textOf(chunk);
    if (text === undefined) {
      const key = keyOf(chunk);
      if (key === undefined) return chunk;
      const count = this.#note(chunk, retold);
      return count > (this.#told.get(key) ?? 0) ? chunk : undefined;
    }
    const end = this.#note(chunk, retold);
    const missing = Math.min(end - (this.#told.get(text.key) ?? 0), text.value.length);
    return missing <= 0 ? undefined : ({ ...chunk, [text.field]: text.value.slice(-missing) });
  }

  #note(chunk: Chunk, counts: Map<string, number>): number {
    const text = textOf(chunk);
    const key = text?.key ?? keyOf(chunk);
    if (key === undefined) return 0;
    const count = (counts.get(key) ?? 0) + (text?.value.length ?? 1);
    counts.set(key, count);
    return count;
  }
}

const TERMINAL: ReadonlySet<string> = new Set(['finish', 'abort', 'error']);

/** Chunks that every repetition has and that change nothing. */
const QUIET: ReadonlySet<string> = new Set(['start', 'finish', 'message-metadata', 'start-step', 'finish-step']);

function openingKey(chunk: Chunk): string | undefined {
  return /^(text|reasoning|tool-input)-(start|available|error)$/.test(chunk.type) ? keyOf(chunk) : undefined;
}

function textOf(chunk: Chunk): { key: string; field: string; value: string } | undefined {
  const field = ['delta', 'inputTextDelta'].find((field) => field in chunk);
  return field === undefined ? undefined : { key: namedKey(chunk), field, value: String(chunk[field]) };
}

/** What a chunk is about; `undefined` where telling it twice does no harm. */
function keyOf(chunk: Chunk): string | undefined {
  const { type, toolCallId, id, transient, preliminary } = chunk;
  if (/^(start|(start|finish)-step)$/.test(type)) return type;
  if (/^((text|reasoning)-(start|end)$|tool-(input|approval)-)/.test(type)) return namedKey(chunk);
  if (type.startsWith('tool-output-')) return preliminary === true ? undefined : `output ${String(toolCallId)}`;
  const isNameless = type.startsWith('data-')
    ? id === undefined && transient !== true
    : /^(file|source-url|source-document|custom|reasoning-file)$/.test(type);
  return isNameless ? JSON.stringify(chunk) : undefined;
}

function namedKey({ type, id, approvalId, toolCallId }: Chunk): string {
  return `${type} ${String(id ?? approvalId ?? toolCallId)}`;
}
