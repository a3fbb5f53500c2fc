/** Finds utterances in a stream of samples at 16 kHz that come in pieces of any length. */

import { Endpointer } from './endpointer.js';
import { DETECTOR_FRAME, DETECTOR_SAMPLE_RATE, VoiceDetector } from './voice-detector.js';

/** Options of {@link VoiceActivityDetector}. */
export interface VoiceActivityOptions {
  onStart: () => void;
  onEnd: () => void;
  /** How much silence ends an utterance; 500 ms if left out. */
  endMs?: number | undefined;
}

/** Tells when somebody begins to speak and has spoken; cheap enough for an audio thread. */
export class VoiceActivityDetector {
  readonly #options: VoiceActivityOptions;
  readonly #frame = new Float32Array(DETECTOR_FRAME);
  #filled = 0;
  #detector = new VoiceDetector();
  #endpointer: Endpointer;

  constructor(options: VoiceActivityOptions) {
    this.#options = options;
    this.#endpointer = this.#makeEndpointer();
  }

  /** Whether somebody speaks. */
  get isSpeech(): boolean {
    return this.#endpointer.isSpeech;
  }

  /** Takes the next samples. */
  push(samples: Float32Array): void {
    for (let at = 0; at < samples.length; ) {
      const piece = samples.subarray(at, at + DETECTOR_FRAME - this.#filled);
      this.#frame.set(piece, this.#filled);
      this.#filled += piece.length;
      at += piece.length;
      if (this.#filled === DETECTOR_FRAME) this.#take();
    }
  }

  /** Forgets everything, as if nothing had been heard. */
  reset(): void {
    this.#filled = 0;
    this.#detector = new VoiceDetector();
    this.#endpointer = this.#makeEndpointer();
  }

  #take(): void {
    this.#filled = 0;
    const event = this.#endpointer.take(this.#detector.take(this.#frame, this.#endpointer.isSpeech));
    if (event === 'start') this.#options.onStart();
    if (event === 'end') this.#options.onEnd();
  }

  #makeEndpointer(): Endpointer {
    const frameMs = (DETECTOR_FRAME / DETECTOR_SAMPLE_RATE) * 1000;
    return new Endpointer({ frameMs, ...(this.#options.endMs !== undefined && { endMs: this.#options.endMs }) });
  }
}
