/**
 * Changes the rate of a stream of samples, piece by piece, as if it were one piece.
 *
 * A polyphase filter: each output sample lies between two input samples at one of a few distances (phases), and for each
 * phase the taps of a windowed sinc are computed once.
 */

/** Zero crossings of the sinc on each side; more than that is inaudible in speech. */
const ZERO_CROSSINGS = 16;
/** How much of the band below the cut stays; the rest is for the filter to fall off. */
const ROLL_OFF = 0.94;
/** Shape of the Kaiser window; about 80 dB of attenuation. */
const KAISER_BETA = 8;
/** Rates that have almost nothing in common are approximated by so many phases. */
const MAX_PHASES = 1024;

/** A stream of samples at one rate, made into one at another. */
export class Resampler {
  readonly #from: number;
  readonly #to: number;
  readonly #halfWidth: number;
  readonly #phases: number;
  readonly #taps: Float32Array[];
  /** Input that may still be needed; the first sample has the index `#start`. */
  #input: Float32Array;
  #start: number;
  /** Output samples made so far. */
  #made = 0;

  constructor(from: number, to: number) {
    this.#from = from;
    this.#to = to;
    const common = greatestCommonDivisor(from, to);
    const scale = Math.min(1, to / from);
    this.#halfWidth = from === to ? 0 : Math.ceil(ZERO_CROSSINGS / scale);
    this.#phases = Math.min(to / common, MAX_PHASES);
    this.#taps = Array.from({ length: this.#phases }, (_, phase) =>
      tapsOf(phase / this.#phases, this.#halfWidth, scale * ROLL_OFF),
    );
    // Silence before the first sample, so that it is not delayed.
    this.#input = new Float32Array(Math.max(this.#halfWidth - 1, 0));
    this.#start = -this.#input.length;
  }

  /** The output that these samples make possible. */
  push(samples: Float32Array): Float32Array<ArrayBuffer> {
    if (this.#from === this.#to) return Float32Array.from(samples);
    const input = new Float32Array(this.#input.length + samples.length);
    input.set(this.#input);
    input.set(samples, this.#input.length);
    const end = this.#start + input.length;
    // The last output whose taps lie within the input.
    const count = Math.max(0, Math.ceil(((end - this.#halfWidth) * this.#to) / this.#from) - this.#made);
    const out = new Float32Array(count);
    for (let index = 0; index < count; index += 1) out[index] = this.#at(this.#made + index, input);
    this.#made += count;
    const next = Math.floor((this.#made * this.#from) / this.#to) - this.#halfWidth + 1;
    const keep = Math.max(0, next - this.#start);
    this.#input = input.slice(keep);
    this.#start += keep;
    return out;
  }

  /** What is left when nothing more comes. */
  flush(): Float32Array<ArrayBuffer> {
    return this.push(new Float32Array(this.#halfWidth));
  }

  #at(number: number, input: Float32Array): number {
    const place = number * this.#from;
    const whole = Math.floor(place / this.#to);
    const phase = Math.floor(((place - whole * this.#to) * this.#phases) / this.#to);
    const taps = this.#taps[phase] as Float32Array;
    const first = whole - this.#halfWidth + 1 - this.#start;
    let sum = 0;
    for (let tap = 0; tap < taps.length; tap += 1) sum += (taps[tap] as number) * (input[first + tap] as number);
    return sum;
  }
}

/** Taps for an output that lies `distance` behind an input sample; `cut` is the cut-off, 1 being half the input rate. */
function tapsOf(distance: number, halfWidth: number, cut: number): Float32Array {
  const taps = new Float32Array(halfWidth * 2);
  let sum = 0;
  for (let tap = 0; tap < taps.length; tap += 1) {
    const x = tap - halfWidth + 1 - distance;
    taps[tap] = cut * sinc(cut * x) * kaiser(x / halfWidth);
    sum += taps[tap] as number;
  }
  // A constant stays what it is, at every phase.
  return taps.map((tap) => tap / sum);
}

function sinc(x: number): number {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

function kaiser(x: number): number {
  return Math.abs(x) >= 1 ? 0 : bessel(KAISER_BETA * Math.sqrt(1 - x * x)) / bessel(KAISER_BETA);
}

/** The modified Bessel function of order zero. */
function bessel(x: number): number {
  let sum = 1;
  let term = 1;
  for (let k = 1; term > sum * 1e-12; k += 1) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

function greatestCommonDivisor(a: number, b: number): number {
  return b === 0 ? a : greatestCommonDivisor(b, a % b);
}
