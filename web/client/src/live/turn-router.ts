/**
 * Sorts what comes over one connection into turns, and routes each to the stream that waits for it.
 *
 * ```
 *   turn-start, start{messageId} ─┬─ of the stream that the last connection lost ─▶ goes on there, nothing twice
 *                                 ├─ what a waiting send expects ─────────────────▶ the stream of that send
 *                                 └─ otherwise ───────────────────────────────────▶ a turn that the server began
 *   start without turn-start: what has happened before this connection; taken whole, then as above, and passed over
 *                                 where it brings nothing new
 *   [DONE] ends the stream, the connection stays
 * ```
 */

import type { UIMessage, UIMessageChunk } from 'ai';

import type { SdkVersion } from '../sdk-version.js';
import { ServerTurn, type TurnStream } from './turn-stream.js';

/** One call of `sendMessages`. */
export interface Send {
  /** The message that it continues; a fresh one if undefined. */
  readonly continues: UIMessage | undefined;
  /** The messages that there are already. */
  readonly knownIds: ReadonlySet<string>;
  readonly stream: TurnStream;
}

/** What the router asks and reports. */
export interface TurnRouterOptions {
  sdk: SdkVersion;
  /** The message of this id that the chat has. */
  messageOf: (id: string) => UIMessage | undefined;
  /** A turn that the server began waits to be taken. */
  onServerTurn: () => void;
  /** A turn has ended unseen: the chat's messages have to be loaded again. */
  onStale: () => void;
}

type Target = TurnStream | ServerTurn;

/** A server lets this many turns wait for a client; more are not kept here either. */
const MAX_SERVER_TURNS = 16;

export class TurnRouter {
  readonly #options: TurnRouterOptions;
  readonly #sends: Send[] = [];
  readonly #serverTurns: ServerTurn[] = [];
  /** Whether `turn-start` has come and `start` has not. */
  #isAnnounced = false;
  /** Where the current chunks go. */
  #target: Target | undefined;
  /** What has happened before, as far as it has come. */
  #past: UIMessageChunk[] | undefined;
  /** Streams whose connection was lost. */
  readonly #torn = new Set<TurnStream>();

  constructor(options: TurnRouterOptions) {
    this.#options = options;
  }

  /** A send that was handed to the connection, or waits for one. */
  expect(send: Send): void {
    this.#sends.push(send);
  }

  /** Removes a send that no longer waits for its turn. */
  drop(send: Send): void {
    const index = this.#sends.indexOf(send);
    if (index !== -1) this.#sends.splice(index, 1);
  }

  /** The sends whose turn has not begun, oldest first. */
  get waiting(): readonly Send[] {
    return this.#sends;
  }

  /** Whether a stream of the last connection waits to continue. */
  get isTorn(): boolean {
    return this.#torn.size > 0;
  }

  /** The message that is being streamed. */
  get currentMessageId(): string | undefined {
    return this.#target?.messageId;
  }

  /** How many turns of the server wait to be taken. */
  get serverTurns(): number {
    return this.#serverTurns.length;
  }

  /** Takes the oldest turn that the server began. */
  takeServerTurn(): ServerTurn | undefined {
    return this.#serverTurns.shift();
  }

  /** Puts back a turn that nobody has read. */
  putBack(turn: ServerTurn): void {
    this.#serverTurns.unshift(turn);
  }

  turnStart(): void {
    this.#isAnnounced = true;
  }

  /** Takes one chunk; false where it belongs to no turn. */
  chunk(chunk: UIMessageChunk): boolean {
    if (chunk.type === 'start' && this.#target === undefined && this.#past === undefined) {
      if (this.#isAnnounced) this.#target = this.#targetOf(chunk.messageId ?? '');
      else this.#past = [];
      this.#isAnnounced = false;
    }
    if (this.#target !== undefined) this.#target.push(chunk);
    else if (this.#past !== undefined) this.#past.push(chunk);
    else return false;
    return true;
  }

  done(): void {
    this.#isAnnounced = false;
    if (this.#past !== undefined) {
      this.#takePast(this.#past);
      this.#past = undefined;
    }
    this.#target?.end();
    this.#target = undefined;
  }

  /** The connection is lost; what was being streamed continues with the next one. */
  lost(): void {
    const stream = this.#target instanceof ServerTurn ? this.#target.stream : this.#target;
    if (stream?.isOpen === true) this.#torn.add(stream);
    this.#target = undefined;
    this.#past = undefined;
    this.#isAnnounced = false;
  }

  /** Interrupted streams and these sends do not continue: their turns have ended unseen. */
  giveUp(sends: readonly Send[]): void {
    const streams = [...this.#torn, ...sends.map((send) => send.stream)];
    this.#torn.clear();
    for (const send of sends) this.drop(send);
    // The words by which a chat knows a lost connection.
    for (const stream of streams) stream.fail(new TypeError('network connection lost, and the turn ended in the meantime'));
    if (streams.length > 0) this.#options.onStale();
  }

  /** Nothing more will come. */
  fail(error: Error): void {
    this.lost();
    for (const stream of this.#torn) stream.fail(error);
    this.#torn.clear();
    for (const { stream } of this.#sends.splice(0)) stream.fail(error);
    for (const turn of this.#serverTurns.splice(0)) turn.stream.fail(error);
  }

  #targetOf(messageId: string): Target {
    for (const stream of this.#torn) {
      if (stream.messageId !== messageId) continue;
      this.#torn.delete(stream);
      stream.begin(true);
      return stream;
    }
    const send = this.#sends.find(({ continues, knownIds }) =>
      continues === undefined ? !knownIds.has(messageId) : continues.id === messageId,
    );
    if (send !== undefined) {
      this.drop(send);
      send.stream.messageId = messageId;
      send.stream.begin();
      return send.stream;
    }
    const turn = this.#serverTurn(messageId, false);
    this.#offer(turn);
    return turn;
  }

  #takePast(chunks: readonly UIMessageChunk[]): void {
    const start = chunks[0];
    const messageId = start?.type === 'start' ? (start.messageId ?? '') : '';
    // The send brings answers that the server did not have when it sent this.
    if (this.#sends.some(({ continues }) => continues?.id === messageId)) return;
    const isAwaited =
      [...this.#torn].some((stream) => stream.messageId === messageId) ||
      this.#sends.some(({ continues, knownIds }) => continues === undefined && !knownIds.has(messageId));
    const target = isAwaited ? this.#targetOf(messageId) : this.#serverTurn(messageId, true);
    for (const chunk of chunks) target.push(chunk);
    target.end();
    if (target instanceof ServerTurn && target.hasNews) this.#offer(target);
  }

  #serverTurn(messageId: string, isPast: boolean): ServerTurn {
    const { messageOf, sdk } = this.#options;
    return new ServerTurn(messageId, messageOf(messageId), sdk, isPast);
  }

  #offer(turn: ServerTurn): void {
    this.#serverTurns.push(turn);
    if (this.#serverTurns.length > MAX_SERVER_TURNS) {
      this.#serverTurns.shift();
      this.#options.onStale();
    }
    this.#options.onServerTurn();
  }
}
