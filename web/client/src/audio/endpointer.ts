/**
 * Turns "speech or not" of single frames into utterances, the same for every detector.
 *
 * ```
 *              64 ms of speech within 112 ms
 *   silence ──────────────────────────────────▶ speech
 *      ▲                                           │
 *      └───────────────────────────────────────────┘
 *                     500 ms of silence
 * ```
 */

export interface EndpointerOptions {
  /** The length of a frame. */
  frameMs: number;
  startMs?: number;
  windowMs?: number;
  endMs?: number;
}

const START_MS = 64;
const WINDOW_MS = 112;
/** Shorter pauses are made within a sentence. */
const END_MS = 500;

export class Endpointer {
  readonly #startFrames: number;
  readonly #endFrames: number;
  readonly #window: boolean[];
  #at = 0;
  #silentFrames = 0;
  #isSpeech = false;

  constructor({ frameMs, startMs = START_MS, windowMs = WINDOW_MS, endMs = END_MS }: EndpointerOptions) {
    this.#startFrames = Math.ceil(startMs / frameMs);
    this.#endFrames = Math.ceil(endMs / frameMs);
    this.#window = new Array<boolean>(Math.max(Math.round(windowMs / frameMs), this.#startFrames)).fill(false);
  }

  /** Whether an utterance is under way. */
  get isSpeech(): boolean {
    return this.#isSpeech;
  }

  /** Takes a frame; says whether an utterance begins or ends with it. */
  take(hasSpeech: boolean): 'start' | 'end' | undefined {
    this.#window[this.#at] = hasSpeech;
    this.#at = (this.#at + 1) % this.#window.length;
    this.#silentFrames = hasSpeech ? 0 : this.#silentFrames + 1;
    if (!this.#isSpeech && this.#window.filter(Boolean).length >= this.#startFrames) {
      this.#isSpeech = true;
      return 'start';
    }
    if (this.#isSpeech && this.#silentFrames >= this.#endFrames) {
      this.#isSpeech = false;
      this.#window.fill(false);
      return 'end';
    }
    return undefined;
  }
}
