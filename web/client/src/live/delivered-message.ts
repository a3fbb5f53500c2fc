/**
 * Knows what of a message has reached the chat, and passes on only what is new in a stream that repeats it.
 *
 * After a reconnect the server sends the running message from its first chunk, with texts in other pieces than before.
 * Ids are the same, so every chunk can be compared with what the chat has: texts and inputs by their letters, calls by
 * progress, steps and parts without ids by number.
 *
 * A step that the server had to ask for again, because the machine that asked first is gone, tells something else than what
 * the chat has of it. It is taken back with `reset-step`, and passed on from its beginning.
 */

import type { UIMessage, UIMessageChunk } from 'ai';

import { DEFAULT_SDK, takesStepsBack, type SdkVersion } from '../sdk-version.js';
import { chunksOf } from './chunks-of.js';

type Chunk = { type: string; [field: string]: unknown };

/** A step was begun again, which a chat of this version does not know. */
export class StepBegunAgain extends Error {
  override readonly name = 'StepBegunAgain';

  constructor() {
    super('the answer was begun again; load the chat again');
  }
}

/** What a stream has brought: texts by key, and how often each other chunk came. */
class Brought {
  readonly counts = new Map<string, number>();
  readonly texts = new Map<string, string>();
  /** How often each key came in the current step. */
  readonly #step = new Map<string, number>();
  /** The parts of the current step, in order. */
  readonly parts: string[] = [];

  note(chunk: Chunk): void {
    if (chunk.type === 'start-step') this.#beginStep();
    const part = partOf(chunk);
    if (part !== undefined && !(part.startsWith('call ') && this.parts.includes(part))) this.parts.push(part);
    const text = textOf(chunk);
    const key = text?.key ?? keyOf(chunk);
    if (key === undefined) return;
    if (text === undefined) this.counts.set(key, (this.counts.get(key) ?? 0) + 1);
    else this.texts.set(key, (this.texts.get(key) ?? '') + text.value);
    if (!/^(start|(start|finish)-step)$/.test(chunk.type)) this.#step.set(key, (this.#step.get(key) ?? 0) + 1);
  }

  get steps(): number {
    return this.counts.get('start-step') ?? 0;
  }

  /** The texts of the current step, but for inputs of calls: a complete one is repeated without its pieces. */
  get textsOfStep(): string[] {
    return [...this.#step.keys()].filter((key) => this.texts.has(key) && !key.startsWith('tool-input-'));
  }

  forgetStep(): void {
    for (const [key, count] of this.#step) {
      this.counts.set(key, (this.counts.get(key) ?? 0) - count);
      this.texts.delete(key);
    }
    this.#beginStep();
  }

  #beginStep(): void {
    this.#step.clear();
    this.parts.length = 0;
  }
}

export class DeliveredMessage {
  readonly #sdk: SdkVersion;
  readonly #delivered = new Brought();
  /** The same for the stream that repeats the message. */
  #repeated: Brought | undefined;
  /** The chunks of the step that is being repeated. */
  #step: Chunk[] = [];
  readonly #held: UIMessageChunk[] = [];
  #isDecided = false;
  /** Whether a stream has brought anything new. */
  hasNews = false;

  /** `message` is what the chat has already. */
  constructor(message?: UIMessage, sdk: SdkVersion = DEFAULT_SDK) {
    this.#sdk = sdk;
    if (message === undefined) return;
    for (const chunk of chunksOf(message, 7)) this.#delivered.note(chunk as Chunk);
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
    this.#repeated = repeats === true ? new Brought() : undefined;
    this.#step = [];
    this.#held.length = 0;
    const { counts, texts } = this.#delivered;
    this.#isDecided = repeats !== undefined || counts.size + texts.size === 0;
    this.hasNews = false;
  }

  /**
   * The chunks that the chat does not have yet; empty while it is unknown whether the stream repeats the message. Throws
   * {@link StepBegunAgain} where a step has to be taken back and cannot.
   */
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
    if (repeats) this.#repeated = new Brought();
    return this.#held.splice(0).flatMap((chunk) => this.#pass(chunk as Chunk));
  }

  /** The first chunk with an id decides: one that opens what is there already belongs to a repetition. */
  #verdict(chunk: Chunk): boolean | undefined {
    const key = openingKey(chunk);
    if (key !== undefined) return this.#delivered.counts.has(key);
    return chunk.type.startsWith('tool-output-') || TERMINAL.has(chunk.type) ? false : undefined;
  }

  #pass(chunk: Chunk): UIMessageChunk[] {
    const repeated = this.#repeated;
    const news = repeated === undefined ? [chunk] : this.#beyond(chunk, repeated);
    for (const one of news) {
      if (!QUIET.has(one.type)) this.hasNews = true;
      this.#delivered.note(one);
    }
    return news as UIMessageChunk[];
  }

  #beyond(chunk: Chunk, repeated: Brought): Chunk[] {
    const takenBack = this.#endsShort(chunk, repeated) ? this.#takeBack() : [];
    if (chunk.type === 'start-step') this.#step = [];
    else this.#step.push(chunk);
    repeated.note(chunk);
    if (this.#isElsewhere(repeated)) return this.#takeBack();
    const text = textOf(chunk);
    if (text === undefined) {
      const key = keyOf(chunk);
      const isNew = key === undefined || (repeated.counts.get(key) ?? 0) > (this.#delivered.counts.get(key) ?? 0);
      if (isNew) return [...takenBack, chunk];
      // The end of a message that has ended meanwhile tells nothing of it.
      const { messageMetadata } = chunk;
      return messageMetadata === undefined ? takenBack : [...takenBack, { type: 'message-metadata', messageMetadata }];
    }
    const had = this.#delivered.texts.get(text.key) ?? '';
    const now = repeated.texts.get(text.key) ?? '';
    if (had.startsWith(now)) return [];
    if (now.startsWith(had)) return [{ ...chunk, [text.field]: now.slice(had.length) }];
    return this.#takeBack();
  }

  /** Whether the stream repeats the last step that the chat has. */
  #isInLastStep(repeated: Brought): boolean {
    return repeated.steps > 0 && repeated.steps === this.#delivered.steps;
  }

  /** Whether the last part of the repeated step is not the one that the chat has in its place. */
  #isElsewhere(repeated: Brought): boolean {
    const place = repeated.parts.length - 1;
    const had = this.#delivered.parts[place];
    return this.#isInLastStep(repeated) && had !== undefined && had !== repeated.parts[place];
  }

  /** Whether the repeated step ends here without all that the chat has of it. */
  #endsShort(chunk: Chunk, repeated: Brought): boolean {
    const isEnd = /^(start|finish)-step$/.test(chunk.type) || TERMINAL.has(chunk.type);
    if (!isEnd || !this.#isInLastStep(repeated)) return false;
    const { texts, textsOfStep, parts } = this.#delivered;
    return repeated.parts.length < parts.length || textsOfStep.some((key) => repeated.texts.get(key) !== texts.get(key));
  }

  /** Takes the last step back; what the stream has brought of it follows. */
  #takeBack(): Chunk[] {
    if (!takesStepsBack(this.#sdk)) throw new StepBegunAgain();
    this.#delivered.forgetStep();
    return [{ type: 'reset-step' }, ...this.#step];
  }
}

const TERMINAL: ReadonlySet<string> = new Set(['finish', 'abort', 'error']);

/** Chunks that every repetition has and that change nothing. */
const QUIET: ReadonlySet<string> = new Set(['start', 'finish', 'message-metadata', 'start-step', 'finish-step']);

/** The part that a chunk adds to the message. */
function partOf(chunk: Chunk): string | undefined {
  const { type, id, toolCallId } = chunk;
  if (/^(text|reasoning)-start$/.test(type)) return `${type} ${String(id)}`;
  if (/^tool-input-(start|available|error)$/.test(type)) return `call ${String(toolCallId)}`;
  return nameless(chunk);
}

const NAMELESS = /^(file|source-url|source-document|custom|reasoning-file)$/;
const SIGNED = /^(reasoning-)?file$/;

function openingKey(chunk: Chunk): string | undefined {
  return /^(text|reasoning|tool-input)-(start|available|error)$/.test(chunk.type) ? keyOf(chunk) : undefined;
}

function textOf(chunk: Chunk): { key: string; field: string; value: string } | undefined {
  const field = ['delta', 'inputTextDelta'].find((field) => field in chunk);
  return field === undefined ? undefined : { key: namedKey(chunk), field, value: String(chunk[field]) };
}

/** What a chunk is about; `undefined` if delivering it twice does no harm. */
function keyOf(chunk: Chunk): string | undefined {
  const { type, toolCallId, preliminary } = chunk;
  if (/^(start|(start|finish)-step)$/.test(type)) return type;
  if (/^((text|reasoning)-(start|end)$|tool-(input|approval)-)/.test(type)) return namedKey(chunk);
  if (type.startsWith('tool-output-')) return preliminary === true ? undefined : `output ${String(toolCallId)}`;
  return nameless(chunk);
}

/** A part without an id, by what it has; the signature in the address of a file may be new. */
function nameless(chunk: Chunk): string | undefined {
  const { type, id, transient, url } = chunk;
  const isNameless = type.startsWith('data-') ? id === undefined && transient !== true : NAMELESS.test(type);
  if (!isNameless) return undefined;
  return SIGNED.test(type) ? `${type} ${String(url).split('?', 1)[0]}` : JSON.stringify(chunk);
}

function namedKey({ type, id, approvalId, toolCallId }: Chunk): string {
  return `${type} ${String(id ?? approvalId ?? toolCallId)}`;
}
