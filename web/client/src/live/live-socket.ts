/**
 * One WebSocket that stays: connects again after losses, measures the round trip, and says how it is.
 *
 * ```
 *            connect()                 opened
 *   idle ───────────────▶ connecting ─────────▶ open
 *     ▲                    ▲      │               │ lost, or a close that says "come again"
 *     │ close()            │      │ failed        ▼
 *     └──── any state      └──── waiting ◀────────┘
 *                                 a close that says "do not come again", no ticket, or no socket ──▶ closed
 * ```
 */

import { BridgeError } from '../bridge-requests.js';
import { Value, type Observable } from '../value.js';
import type { ClientFrame } from './frames.js';

/** How a live connection is. */
export type ConnectionState =
  | { readonly status: 'idle' }
  | { readonly status: 'connecting'; readonly attempt: number }
  | { readonly status: 'open' }
  | { readonly status: 'waiting'; readonly attempt: number; readonly retryInMs: number }
  | { readonly status: 'closed'; readonly code: number | undefined; readonly reason: string };

/** The options and callbacks of a socket. */
export interface LiveSocketOptions {
  /** The address, asked for before each attempt: a ticket serves once. */
  address: () => Promise<string>;
  onText: (text: string) => void;
  onBinary: (bytes: ArrayBuffer) => void;
  /** Each time that the socket is open. */
  onOpen: () => void;
  /** Each time that an open socket is lost, before the next attempt. */
  onLost: () => void;
  /** When it is closed for good. */
  onClosed: (reason: string) => void;
  /** Replaces the global `WebSocket`. */
  WebSocket?: typeof globalThis.WebSocket | undefined;
  /** The shortest pause before an attempt; doubled each time. */
  minRetryMs?: number | undefined;
  maxRetryMs?: number | undefined;
  pingIntervalMs?: number | undefined;
}

const MIN_RETRY_MS = 500;
/** A server that is away for long is asked twice a minute. */
const MAX_RETRY_MS = 30_000;
/** Shorter than the minute after which home routers forget a connection. */
const PING_INTERVAL_MS = 15_000;
/** So many pings without any frame in between mean that the connection is gone. */
const SILENT_PINGS = 2;

/** Codes after which reconnecting automatically does not help; see PROTOCOL.md. */
const FINAL_CODES: ReadonlySet<number> = new Set([1009, 4401, 4404, 4409, 4429]);

export class LiveSocket {
  readonly #options: LiveSocketOptions;
  readonly #state = new Value<ConnectionState>({ status: 'idle' });
  readonly #roundTripMs = new Value<number | undefined>(undefined);
  #socket: WebSocket | undefined;
  /** Counts connections and closes, so that what belongs to an earlier one is passed over. */
  #generation = 0;
  #attempt = 0;
  #retryInMs: number | undefined;
  #retryTimer: ReturnType<typeof setTimeout> | undefined;
  #pingTimer: ReturnType<typeof setInterval> | undefined;
  #silentPings = 0;

  constructor(options: LiveSocketOptions) {
    this.#options = options;
  }

  get state(): Observable<ConnectionState> {
    return this.#state;
  }

  get roundTripMs(): Observable<number | undefined> {
    return this.#roundTripMs;
  }

  get isOpen(): boolean {
    return this.#state.get().status === 'open';
  }

  /** Connects unless it is connected or about to be. */
  connect(): void {
    const { status } = this.#state.get();
    if (status !== 'idle' && status !== 'closed') return;
    this.#attempt = 0;
    globalThis.addEventListener?.('online', this.#hurry);
    void this.#open();
  }

  /** Sends a frame; false where the socket is not open. */
  send(frame: ClientFrame | Uint8Array<ArrayBuffer>): boolean {
    if (this.#socket === undefined || !this.isOpen) return false;
    this.#socket.send(frame instanceof Uint8Array ? frame : JSON.stringify(frame));
    return true;
  }

  /** Bytes that were handed over and are not on their way. */
  get bufferedBytes(): number {
    return this.#socket?.bufferedAmount ?? 0;
  }

  /** The server goes away, and says when to come again. */
  retryAfter(ms: number): void {
    this.#retryInMs = ms;
  }

  /** The answer to a ping has come. */
  pong(timestamp: unknown): void {
    if (typeof timestamp === 'number') this.#roundTripMs.set(Math.max(0, performance.now() - timestamp));
  }

  /** Closes in order, and stays closed until `connect`. */
  close(): void {
    this.#release();
    globalThis.removeEventListener?.('online', this.#hurry);
    this.#state.set({ status: 'idle' });
  }

  async #open(): Promise<void> {
    const generation = ++this.#generation;
    const isCurrent = () => generation === this.#generation;
    this.#attempt += 1;
    this.#state.set({ status: 'connecting', attempt: this.#attempt });
    let address: string;
    try {
      address = await this.#options.address();
    } catch (error) {
      if (!isCurrent()) return;
      const isRefused = error instanceof BridgeError && error.status >= 400 && error.status < 500;
      if (isRefused) this.#finish(undefined, error.message);
      else this.#retry();
      return;
    }
    if (!isCurrent()) return;
    let socket: WebSocket;
    try {
      socket = new (this.#options.WebSocket ?? globalWebSocket())(address);
    } catch (error) {
      // An address that no socket takes, or no socket at all: another attempt would end like this one.
      this.#finish(undefined, error instanceof Error ? error.message : String(error));
      return;
    }
    socket.binaryType = 'arraybuffer';
    this.#socket = socket;
    socket.onopen = () => isCurrent() && this.#opened();
    socket.onmessage = ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (!isCurrent()) return;
      this.#silentPings = 0;
      if (typeof data === 'string') this.#options.onText(data);
      else this.#options.onBinary(data);
    };
    socket.onclose = ({ code, reason }) => isCurrent() && this.#lost(code, reason);
  }

  #opened(): void {
    this.#attempt = 0;
    this.#silentPings = 0;
    this.#state.set({ status: 'open' });
    this.#ping();
    this.#pingTimer = setInterval(() => this.#ping(), this.#options.pingIntervalMs ?? PING_INTERVAL_MS);
    this.#options.onOpen();
  }

  #ping(): void {
    if (this.#silentPings >= SILENT_PINGS) {
      this.#lost(undefined, 'the server does not respond');
      return;
    }
    this.#silentPings += 1;
    this.send({ type: 'ping', timestamp: performance.now() });
  }

  #lost(code: number | undefined, reason: string): void {
    const wasOpen = this.isOpen;
    this.#release();
    if (code !== undefined && FINAL_CODES.has(code)) {
      this.#finish(code, reason);
      return;
    }
    this.#retry();
    if (wasOpen) this.#options.onLost();
  }

  #retry(): void {
    const { minRetryMs = MIN_RETRY_MS, maxRetryMs = MAX_RETRY_MS } = this.#options;
    const longest = Math.min(maxRetryMs, minRetryMs * 2 ** Math.min(this.#attempt, 16));
    // Spread over half of the pause, so that many clients do not come back at once.
    const retryInMs = this.#retryInMs ?? longest * (0.5 + Math.random() / 2);
    this.#retryInMs = undefined;
    this.#state.set({ status: 'waiting', attempt: this.#attempt, retryInMs });
    this.#retryTimer = setTimeout(() => void this.#open(), retryInMs);
  }

  readonly #hurry = (): void => {
    if (this.#state.get().status !== 'waiting') return;
    clearTimeout(this.#retryTimer);
    void this.#open();
  };

  #finish(code: number | undefined, reason: string): void {
    this.#release();
    globalThis.removeEventListener?.('online', this.#hurry);
    this.#state.set({ status: 'closed', code, reason });
    this.#options.onClosed(reason === '' ? `the connection was closed with ${code}` : reason);
  }

  #release(): void {
    this.#generation += 1;
    clearTimeout(this.#retryTimer);
    clearInterval(this.#pingTimer);
    const socket = this.#socket;
    this.#socket = undefined;
    socket?.close(1000);
  }
}

/** Node.js has one from version 22 on. */
function globalWebSocket(): typeof WebSocket {
  if (globalThis.WebSocket !== undefined) return globalThis.WebSocket;
  throw new Error('WebSocket is not available; pass one as the option WebSocket, such as that of the package ws');
}
