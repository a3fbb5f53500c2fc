/**
 * What a recorder sends: the microphone at 16 kHz in pieces of 20 ms, with what was said just before the gate opened.
 *
 * The gate is `closed`, `open`, or moved by the `voice`: then it opens when somebody begins to speak and closes when
 * nobody has spoken for half a second. While it is muted the microphone is heard as silence, which ends what was being said
 * as every silence does.
 */

import { floatToPcm16, levelOf } from './pcm.js';
import { Resampler } from './resampler.js';
import { VoiceActivityDetector } from './voice-activity-detector.js';

/** What opens the way for what is recorded. */
export type Gate = 'closed' | 'open' | 'voice';

/** A piece of what was recorded. */
export interface RecordedChunk {
  /** 16-bit samples at 16 kHz. */
  readonly samples: Int16Array<ArrayBuffer>;
  /** Whether it was recorded before the gate opened. */
  readonly preRoll: boolean;
  /** Whether the gate closes behind it. */
  readonly last: boolean;
}

export interface RecorderCoreOptions {
  /** The rate of what comes in. */
  sampleRate: number;
  chunkMs?: number | undefined;
  preRollMs?: number | undefined;
  onChunk: (chunk: RecordedChunk) => void;
  /** The loudness of each piece, whatever the gate. */
  onLevel: (level: number) => void;
  onSpeech: (event: 'start' | 'end') => void;
}

/** The rate that models listen to. */
export const RECORDER_SAMPLE_RATE = 16_000;
const CHUNK_MS = 20;
/** A key is pressed about this long after one has begun to speak. */
const PRE_ROLL_MS = 300;
/** A detector needs up to this long to be sure. */
const VOICE_PRE_ROLL_MS = 500;

export class RecorderCore {
  readonly #options: RecorderCoreOptions;
  readonly #resampler: Resampler;
  readonly #detector: VoiceActivityDetector;
  readonly #chunk: Float32Array;
  #filled = 0;
  #gate: Gate = 'closed';
  #isOpen = false;
  #isMuted = false;
  /** What was recorded last while the gate was closed. */
  #before: Int16Array<ArrayBuffer>[] = [];

  constructor(options: RecorderCoreOptions) {
    this.#options = options;
    this.#resampler = new Resampler(options.sampleRate, RECORDER_SAMPLE_RATE);
    this.#chunk = new Float32Array(((options.chunkMs ?? CHUNK_MS) / 1000) * RECORDER_SAMPLE_RATE);
    this.#detector = new VoiceActivityDetector({ onStart: () => this.#speech('start'), onEnd: () => this.#speech('end') });
  }

  set gate(gate: Gate) {
    if (gate === this.#gate) return;
    this.#gate = gate;
    const opens = gate === 'open' || (gate === 'voice' && this.#detector.isSpeech);
    if (opens) this.#open();
    else this.#close();
  }

  set isMuted(isMuted: boolean) {
    this.#isMuted = isMuted;
    if (isMuted) this.#before = [];
  }

  /** Takes samples of the microphone, one channel. */
  push(samples: Float32Array): void {
    const resampled = this.#resampler.push(this.#isMuted ? new Float32Array(samples.length) : samples);
    this.#detector.push(resampled);
    for (let at = 0; at < resampled.length; ) {
      const piece = resampled.subarray(at, at + this.#chunk.length - this.#filled);
      this.#chunk.set(piece, this.#filled);
      this.#filled += piece.length;
      at += piece.length;
      if (this.#filled === this.#chunk.length) this.#emit(false);
    }
  }

  #speech(event: 'start' | 'end'): void {
    this.#options.onSpeech(event);
    if (this.#gate !== 'voice') return;
    if (event === 'start') this.#open();
    else this.#close();
  }

  #open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    for (const samples of this.#before.splice(0)) this.#options.onChunk({ samples, preRoll: true, last: false });
  }

  #close(): void {
    if (!this.#isOpen) return;
    this.#emit(true);
    this.#isOpen = false;
  }

  #emit(last: boolean): void {
    const floats = this.#chunk.subarray(0, this.#filled);
    this.#filled = 0;
    const samples = floatToPcm16(floats);
    if (!last) this.#options.onLevel(levelOf(floats));
    if (this.#isOpen) {
      this.#options.onChunk({ samples, preRoll: false, last });
      return;
    }
    this.#before.push(samples);
    const preRollMs = this.#options.preRollMs ?? (this.#gate === 'voice' ? VOICE_PRE_ROLL_MS : PRE_ROLL_MS);
    const most = (preRollMs / 1000) * RECORDER_SAMPLE_RATE;
    while (this.#before.length * this.#chunk.length > most) this.#before.shift();
  }
}
