/** The stream of one turn as a chat reads it: it outlives the connection, and never tells anything twice. */

import type { UIMessage, UIMessageChunk } from 'ai';

import type { SdkVersion } from '../sdk-version.js';
import { chunksOf } from './chunks-of.js';
import { DeliveredMessage } from './delivered-message.js';

export class TurnStream {
  readonly readable: ReadableStream<UIMessageChunk>;
  /** The message that it tells, once that is known. */
  messageId: string | undefined;
  #controller!: ReadableStreamDefaultController<UIMessageChunk>;
  #delivered: DeliveredMessage;
  #isOpen = true;
  #hasBegun = false;

  /** `message` is the one that the chat folds this stream onto. */
  constructor(message?: UIMessage, sdk?: SdkVersion) {
    this.#delivered = new DeliveredMessage(message, sdk);
    this.readable = new ReadableStream({
      start: (controller) => {
        this.#controller = controller;
      },
      cancel: () => {
        this.#isOpen = false;
      },
    });
  }

  /** Whether the chat still reads. */
  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Whether the chat has been given anything. */
  get hasBegun(): boolean {
    return this.#hasBegun;
  }

  /** A connection begins to stream the turn; `repeats` if it is known to begin with the message's first chunk. */
  begin(repeats?: boolean): void {
    this.#delivered.begin(repeats);
  }

  push(chunk: UIMessageChunk): void {
    try {
      this.#enqueue(this.#delivered.take(chunk));
    } catch (error) {
      this.fail(error as Error);
    }
  }

  end(): void {
    this.#enqueue(this.#delivered.end());
    if (this.#isOpen) this.#controller.close();
    this.#isOpen = false;
  }

  fail(error: Error): void {
    if (this.#isOpen) this.#controller.error(error);
    this.#isOpen = false;
  }

  #enqueue(chunks: readonly UIMessageChunk[]): void {
    if (!this.#isOpen) return;
    for (const chunk of chunks) {
      this.#hasBegun = true;
      this.#controller.enqueue(chunk);
    }
  }
}

/**
 * A turn that nobody asked for, before the chat takes it. The chat's resume begins with an empty message; a stream that
 * only adds to a message which the chat has is therefore led by that message.
 */
export class ServerTurn {
  readonly messageId: string;
  readonly #seed: UIMessage | undefined;
  readonly #sdk: SdkVersion;
  readonly #probe: DeliveredMessage;
  readonly #held: UIMessageChunk[] = [];
  #isDecided: boolean;
  readonly stream: TurnStream;
  /** Whether it brings anything that the chat does not have. */
  get hasNews(): boolean {
    return this.#probe.hasNews;
  }

  constructor(messageId: string, seed: UIMessage | undefined, sdk: SdkVersion, isPast: boolean) {
    this.messageId = messageId;
    this.#seed = seed;
    this.#sdk = sdk;
    this.#probe = new DeliveredMessage(seed, 7);
    this.#probe.begin(isPast ? true : undefined);
    this.#isDecided = seed === undefined || isPast;
    this.stream = new TurnStream(undefined, sdk);
    this.stream.messageId = messageId;
    this.stream.begin();
  }

  push(chunk: UIMessageChunk): void {
    this.#probe.take(chunk);
    if (this.#isDecided) {
      this.stream.push(chunk);
      return;
    }
    this.#held.push(chunk);
    if (this.#probe.isDecided) this.#release();
  }

  end(): void {
    this.#probe.end();
    if (!this.#isDecided) this.#release();
    this.stream.end();
  }

  #release(): void {
    this.#isDecided = true;
    const [start, ...rest] = this.#held.splice(0);
    if (start !== undefined) this.stream.push(start);
    if (!this.#probe.repeats && this.#seed !== undefined) {
      for (const chunk of chunksOf(this.#seed, this.#sdk)) this.stream.push(chunk);
    }
    for (const chunk of rest) this.stream.push(chunk);
  }
}
