/**
 * Knows what of a message has reached the chat, and passes on only what is new in a stream that repeats it.
 *
 * After a reconnect the server sends the running message from its first chunk, with texts in other pieces than before.
 * Ids are the same, so every chunk can be compared with what the chat has: texts and inputs by length, calls by
 * progress, steps and parts without ids by number.
 */

import type { UIMessage, UIMessageChunk } from 'ai';

import { chunksOf } from './chunks-of.js';

type Chunk = { type: string; [field: string]: unknown };

export class DeliveredMessage {
  /** Lengths of texts, and how often each other chunk was delivered, by key. */
  readonly #delivered = new Map<string, number>();
  /** The same for the stream that repeats the message. */
  #repeated: Map<string, number> | undefined;
  readonly #held: UIMessageChunk[] = [];
  #isDecided = false;
  /** Whether a stream has brought anything new. */
  hasNews = false;

  /** `message` is what the chat has already. */
  constructor(message?: UIMessage) {
    if (message === undefined) return;
    for (const chunk of chunksOf(message, 7)) this.#note(chunk as Chunk, this.#delivered);
  }

  /** Whether it is known if the stream repeats the message. */
  get isDecided(): boolean {
    return this.#isDecided;
  }

  /** Whether the stream repeats the message instead of continuing it. */
  get repeats(): boolean {
    return this.#repeated !== undefined;
  }

  /** Call it before each stream; leave `repeats` out if its first chunks have to show it. */
  begin(repeats?: boolean): void {
    this.#repeated = repeats === true ? new Map() : undefined;
    this.#held.length = 0;
    this.#isDecided = repeats !== undefined || this.#delivered.size === 0;
    this.hasNews = false;
  }

  /** The chunks that the chat does not have yet; empty while it is unknown whether the stream repeats the message. */
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

  #decide(repeats: boolean): UIMessageChunk[] {
    this.#isDecided = true;
    if (repeats) this.#repeated = new Map();
    return this.#held.splice(0).flatMap((chunk) => this.#pass(chunk as Chunk));
  }

  /** The first chunk with an id decides: one that opens what is there already belongs to a repetition. */
  #verdict(chunk: Chunk): boolean | undefined {
    const key = openingKey(chunk);
    if (key !== undefined) return this.#delivered.has(key);
    return chunk.type.startsWith('tool-output-') || TERMINAL.has(chunk.type) ? false : undefined;
  }

  #pass(chunk: Chunk): UIMessageChunk[] {
    const news = this.#repeated === undefined ? chunk : this.#beyond(chunk, this.#repeated);
    if (news === undefined) return [];
    if (!QUIET.has(chunk.type)) this.hasNews = true;
    this.#note(news, this.#delivered);
    return [news as UIMessageChunk];
  }

  #beyond(chunk: Chunk, repeated: Map<string, number>): Chunk | undefined {
    const text = textOf(chunk);
    if (text === undefined) {
      const key = keyOf(chunk);
      if (key === undefined) return chunk;
      const count = this.#note(chunk, repeated);
      return count > (this.#delivered.get(key) ?? 0) ? chunk : undefined;
    }
    const end = this.#note(chunk, repeated);
    const missing = Math.min(end - (this.#delivered.get(text.key) ?? 0), text.value.length);
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

/** What a chunk is about; `undefined` if delivering it twice does no harm. */
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
