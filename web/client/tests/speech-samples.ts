/** Speech made by espeak-ng, and noises made by rule, for tests of audio. */

import { execFileSync } from 'node:child_process';

import { pcm16ToFloat } from '../src/audio/pcm.js';
import { Resampler } from '../src/audio/resampler.js';

/** Says `text`; samples at 16 kHz. */
export function speak(text: string, voice = 'en-us', pitch = 50, speed = 160): Float32Array {
  let wav: Buffer;
  try {
    wav = execFileSync('espeak-ng', ['--stdout', '-v', voice, '-p', String(pitch), '-s', String(speed), text], {
      maxBuffer: 1 << 26,
      stdio: ['ignore', 'pipe', 'ignore'],
    });
  } catch (error) {
    throw new Error(`espeak-ng is needed for tests of speech (apt-get install espeak-ng): ${String(error)}`);
  }
  const rate = wav.readUInt32LE(24);
  const data = wav.indexOf('data') + 8;
  const samples = new Int16Array(
    wav.buffer.slice(wav.byteOffset + data, wav.byteOffset + wav.length - ((wav.length - data) % 2)),
  );
  const resampler = new Resampler(rate, 16_000);
  return join([resampler.push(pcm16ToFloat(samples)), resampler.flush()]);
}

/** Words as the scripted model hears them: bursts of two tones for each byte, then a silence that ends the turn. */
export function tones(text: string): Int16Array {
  const bytes = [2, ...new TextEncoder().encode(text), 3];
  const burst = 640;
  const step = 960;
  const out = new Int16Array(bytes.length * step + 16 * 700);
  bytes.forEach((byte, index) => {
    const low = 450 + 75 * (byte & 15);
    const high = 1800 + 75 * (byte >> 4);
    for (let at = 0; at < burst; at += 1) {
      const time = (2 * Math.PI * at) / 16_000;
      out[index * step + at] = Math.trunc(7000 * (Math.sin(low * time) + Math.sin(high * time)));
    }
  });
  return out;
}

/** A noise that is the same in every run. */
export function noise(
  kind: 'white' | 'pink' | 'brown' | 'keys' | 'hum' | 'fan',
  seconds: number,
  level: number,
  seed = 1,
): Float32Array {
  const random = generator(seed);
  const out = new Float32Array(seconds * 16_000);
  const state = new Float64Array(4);
  let click = 0;
  for (let index = 0; index < out.length; index += 1) {
    const white = random() * 2 - 1;
    if (kind === 'white') out[index] = white;
    if (kind === 'brown') out[index] = state[0] = 0.995 * (state[0] as number) + 0.1 * white;
    if (kind === 'pink' || kind === 'fan') {
      state[0] = 0.99765 * (state[0] as number) + white * 0.099046;
      state[1] = 0.963 * (state[1] as number) + white * 0.2965164;
      state[2] = 0.57 * (state[2] as number) + white * 1.0526913;
      out[index] =
        ((state[0] + state[1] + state[2] + white * 0.1848) / 4) *
        (kind === 'fan' ? 1 + 0.3 * Math.sin((index / 16_000) * 2 * Math.PI * 7) : 1);
    }
    if (kind === 'hum')
      out[index] =
        Math.sin((index / 16_000) * 2 * Math.PI * 50) + 0.4 * Math.sin((index / 16_000) * 2 * Math.PI * 150) + 0.02 * white;
    if (kind === 'keys') {
      if (random() < 6 / 16_000) click = 1;
      out[index] = click * white * 4 + white * 0.02;
      click *= 0.997;
    }
  }
  return scaled(out, level);
}

/** Samples of this root mean square. */
export function scaled(samples: Float32Array, level: number): Float32Array {
  const now = Math.sqrt(samples.reduce((sum, sample) => sum + sample * sample, 0) / samples.length);
  return samples.map((sample) => Math.max(-1, Math.min(1, (sample * level) / now)));
}

export function mix(a: Float32Array, b: Float32Array): Float32Array {
  return a.map((sample, index) => Math.max(-1, Math.min(1, sample + (b[index % b.length] as number))));
}

export function join(pieces: readonly Float32Array[]): Float32Array {
  const out = new Float32Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}

export function generator(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let value = Math.imul(state ^ (state >>> 15), state | 1);
    value ^= value + Math.imul(value ^ (value >>> 7), value | 61);
    return ((value ^ (value >>> 14)) >>> 0) / 2 ** 32;
  };
}
