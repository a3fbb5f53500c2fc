/**
 * Tells speech from noise in frames of 16 ms, cheaply enough for an audio thread.
 *
 * Two things make speech: it is louder than what was there all the time, and its vowels are periodic at the pitch of a
 * voice. An utterance begins with both, so that keyboards, slams and hiss begin none; while it lasts, loudness is
 * enough, so that consonants and whispered ends belong to it.
 */

/** The rate that frames have. */
export const DETECTOR_SAMPLE_RATE = 16_000;
/** Samples of a frame: 16 ms. */
export const DETECTOR_FRAME = 256;

/** Periodicity is found in a window of 40 ms at half the rate: two periods of the deepest voice. */
const WINDOW = 320;
/** Pitch between 75 and 400 Hz, as lags at half the rate. */
const SHORTEST_LAG = 20;
const LONGEST_LAG = 107;
/** How alike two periods of a vowel are at least; noise stays below. */
const PERIODICITY = 0.6;
/** What is loud so soon after a vowel belongs to the same word. */
const VOWEL_FRAMES = 4;
/** How far above the noise speech lies when it begins, and while it lasts, in dB. */
const START_ABOVE = 9;
const STAY_ABOVE = 6;
/** Nothing below is speech, however quiet the room, in dB below full scale. */
const QUIETEST = -55;
/** The noise is the quietest of this many frames (about 1.5 s); a vowel is shorter. */
const NOISE_FRAMES = 94;
/** A quieter noise counts at once, a louder one little by little: this much of the difference in each frame. */
const NOISE_RISE = 0.02;

export class VoiceDetector {
  readonly #window = new Float32Array(WINDOW);
  readonly #recent = new Float32Array(NOISE_FRAMES).fill(Number.NaN);
  #at = 0;
  #noise: number | undefined;
  #sinceVowel = Number.POSITIVE_INFINITY;
  /** A high-pass of first order, which takes hum and rumble out. */
  #lastIn = 0;
  #lastOut = 0;

  /** Whether this frame of 256 samples at 16 kHz has speech; `isSpeech` where the frame before belongs to an utterance. */
  take(frame: Float32Array, isSpeech: boolean): boolean {
    const loudness = this.#listen(frame);
    const noise = this.#noiseAfter(loudness, isSpeech);
    const above = loudness - noise;
    if (loudness < QUIETEST || above < STAY_ABOVE) {
      this.#sinceVowel = Number.POSITIVE_INFINITY;
      return false;
    }
    if (isSpeech) return true;
    if (above < START_ABOVE) return false;
    this.#sinceVowel = this.#periodicity() >= PERIODICITY ? 0 : this.#sinceVowel + 1;
    return this.#sinceVowel <= VOWEL_FRAMES;
  }

  /** Takes the frame into the window at half the rate, and returns its loudness in dB. */
  #listen(frame: Float32Array): number {
    this.#window.copyWithin(0, frame.length / 2);
    let energy = 0;
    let previous = 0;
    const start = WINDOW - frame.length / 2;
    for (let index = 0; index < frame.length; index += 1) {
      const sample = frame[index] as number;
      // 80 Hz at 16 kHz.
      this.#lastOut = 0.97 * (this.#lastOut + sample - this.#lastIn);
      this.#lastIn = sample;
      energy += this.#lastOut * this.#lastOut;
      if (index % 2 === 1) this.#window[start + (index >> 1)] = (previous + this.#lastOut) / 2;
      previous = this.#lastOut;
    }
    return 10 * Math.log10(energy / frame.length + 1e-10);
  }

  #noiseAfter(loudness: number, isSpeech: boolean): number {
    this.#recent[this.#at] = loudness;
    this.#at = (this.#at + 1) % NOISE_FRAMES;
    let quietest = Number.POSITIVE_INFINITY;
    for (const value of this.#recent) if (value < quietest) quietest = value;
    const noise = this.#noise ?? quietest;
    // The quietest of many frames lies some dB below the mean of a noise.
    const rise = isSpeech ? NOISE_RISE / 4 : NOISE_RISE;
    this.#noise = quietest < noise ? quietest : noise + (quietest - noise) * rise;
    return this.#noise + 3;
  }

  /** The best normalised correlation of the window with itself, one pitch period away. */
  #periodicity(): number {
    const length = WINDOW - LONGEST_LAG;
    let best = 0;
    for (let lag = SHORTEST_LAG; lag <= LONGEST_LAG; lag += 1) {
      let both = 0;
      let first = 1e-9;
      let second = 1e-9;
      for (let index = 0; index < length; index += 1) {
        const a = this.#window[index] as number;
        const b = this.#window[index + lag] as number;
        both += a * b;
        first += a * a;
        second += b * b;
      }
      best = Math.max(best, both / Math.sqrt(first * second));
    }
    return best;
  }
}
