/**
 * What a player plays, sample by sample: a queue that starts when there is enough, survives stalls, and can be silenced.
 *
 * ```
 *            first samples         enough, or the turn has ended
 *   idle ────────────────▶ filling ───────────────────────────────▶ playing
 *     ▲                       ▲                                      │   │
 *     │ all played, ended     │ ran dry: fill more than before       │   │
 *     └───────────────────────┼──────────────────────────────────────┘   │
 *                             └──────────────────────────────────────────┘
 *   flush: whatever state, a short fade, then idle; what comes late of that turn is dropped
 * ```
 */

import { pcm16ToFloat } from './pcm.js';
import { Resampler } from './resampler.js';

export interface PlayerCoreOptions {
  /** The rate of what is rendered. */
  sampleRate: number;
  /** How much must be there before it starts. */
  startMs?: number;
  /** Called when it starts to play, runs dry, or has played everything. */
  onState?: (state: PlayerState) => void;
}

/** What a player does. */
export type PlayerState = 'idle' | 'filling' | 'playing';

const START_MS = 60;
/** After a stall more is gathered, so that a slow line stalls less often. */
const STALL_FACTOR = 1.5;
const MAX_START_MS = 1000;
/** Long enough not to click, short enough to be silent at once. */
const FADE_MS = 4;
/** A model's longest answer is far shorter; what exceeds it is dropped, so that memory stays bounded. */
const MAX_QUEUED_SECONDS = 600;

export class PlayerCore {
  readonly #options: PlayerCoreOptions;
  readonly #fadeSamples: number;
  /** Rendered samples that wait, oldest first. */
  #queue: Float32Array[] = [];
  #queued = 0;
  /** How far the first piece of the queue is played. */
  #offset = 0;
  #resampler: Resampler | undefined;
  #resampledFrom = 0;
  #turn: number | undefined;
  #flushedTurn: number | undefined;
  #hasEnded = true;
  #startMs: number;
  #state: PlayerState = 'idle';
  /** The sample that was played last, from which a stall fades. */
  #last = 0;
  /** What fades out. */
  #tail: Float32Array | undefined;

  constructor(options: PlayerCoreOptions) {
    this.#options = options;
    this.#startMs = options.startMs ?? START_MS;
    this.#fadeSamples = Math.round((FADE_MS / 1000) * options.sampleRate);
  }

  get state(): PlayerState {
    return this.#state;
  }

  /** Milliseconds that wait to be played. */
  get queuedMs(): number {
    return (this.#queued / this.#options.sampleRate) * 1000;
  }

  /** Queues a piece of speech; one of a turn that was flushed is dropped. */
  push(turn: number, samples: Int16Array, sampleRate: number): void {
    if (turn === this.#flushedTurn) return;
    this.#flushedTurn = undefined;
    if (this.#resampler === undefined || this.#resampledFrom !== sampleRate || (turn !== this.#turn && this.#hasEnded)) {
      this.#drainResampler();
      this.#resampler = new Resampler(sampleRate, this.#options.sampleRate);
      this.#resampledFrom = sampleRate;
    }
    this.#turn = turn;
    this.#hasEnded = false;
    this.#enqueue(this.#resampler.push(pcm16ToFloat(samples)));
    if (this.#state === 'idle') this.#become('filling');
  }

  /** Nothing more of this turn comes: what is there is played to its end. */
  end(turn: number): void {
    if (turn !== this.#turn) return;
    this.#drainResampler();
    this.#hasEnded = true;
  }

  /** Silence at once; late pieces of this turn are dropped. */
  flush(turn: number | undefined = this.#turn): void {
    this.#flushedTurn = turn;
    if (this.#state === 'playing') this.#tail = this.#takeTail();
    this.#queue = [];
    this.#queued = 0;
    this.#offset = 0;
    this.#resampler = undefined;
    this.#hasEnded = true;
    this.#become('idle');
  }

  /** Fills `out` with the next samples, or with silence. */
  render(out: Float32Array): void {
    out.fill(0);
    if (this.#tail !== undefined) {
      const piece = this.#tail.subarray(0, out.length);
      out.set(piece);
      this.#tail = this.#tail.length > out.length ? this.#tail.subarray(out.length) : undefined;
      return;
    }
    if (this.#state === 'filling' && this.#isEnough()) this.#become('playing');
    if (this.#state !== 'playing') return;
    const played = this.#take(out);
    if (this.#queued > 0 || (played === out.length && !this.#hasEnded)) return;
    if (this.#hasEnded) {
      this.#become('idle');
      return;
    }
    this.#fadeOut(out, played);
    this.#startMs = Math.min(this.#startMs * STALL_FACTOR, MAX_START_MS);
    this.#become('filling');
  }

  #isEnough(): boolean {
    return this.#queued > 0 && (this.#hasEnded || this.queuedMs >= this.#startMs);
  }

  #take(out: Float32Array): number {
    let at = 0;
    while (at < out.length && this.#queued > 0) {
      const piece = this.#queue[0] as Float32Array;
      const part = piece.subarray(this.#offset, this.#offset + out.length - at);
      out.set(part, at);
      at += part.length;
      this.#offset += part.length;
      this.#queued -= part.length;
      if (this.#offset === piece.length) {
        this.#queue.shift();
        this.#offset = 0;
      }
    }
    if (at > 0) this.#last = out[at - 1] as number;
    return at;
  }

  /** The next few samples, getting quieter. */
  #takeTail(): Float32Array {
    const tail = new Float32Array(this.#fadeSamples);
    this.#take(tail);
    return tail.map((sample, index) => sample * (1 - (index + 1) / tail.length));
  }

  /** A line that runs dry within this piece: its last sample decays instead of breaking off. */
  #fadeOut(out: Float32Array, from: number): void {
    const tail = new Float32Array(this.#fadeSamples).map((_, index, { length }) => this.#last * (1 - (index + 1) / length));
    const now = tail.subarray(0, out.length - from);
    out.set(now, from);
    if (now.length < tail.length) this.#tail = tail.subarray(now.length);
  }

  #drainResampler(): void {
    if (this.#resampler !== undefined) this.#enqueue(this.#resampler.flush());
    this.#resampler = undefined;
  }

  #enqueue(samples: Float32Array): void {
    const isFull = this.#queued + samples.length > MAX_QUEUED_SECONDS * this.#options.sampleRate;
    if (samples.length === 0 || isFull) return;
    this.#queue.push(samples);
    this.#queued += samples.length;
  }

  #become(state: PlayerState): void {
    if (state === this.#state) return;
    this.#state = state;
    if (state === 'idle') this.#startMs = this.#options.startMs ?? START_MS;
    this.#options.onState?.(state);
  }
}
