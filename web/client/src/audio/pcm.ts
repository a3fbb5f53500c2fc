/** Samples in the forms that they travel in: floats of Web Audio, 16-bit PCM, WAV files. */

/** Float samples as 16-bit ones; what lies beyond ±1 is clipped. */
export function floatToPcm16(samples: Float32Array): Int16Array<ArrayBuffer> {
  const out = new Int16Array(samples.length);
  for (let index = 0; index < samples.length; index += 1) {
    const value = Math.max(-1, Math.min(1, samples[index] as number));
    out[index] = Math.round(value < 0 ? value * 0x8000 : value * 0x7fff);
  }
  return out;
}

/** 16-bit samples as floats in [-1, 1]. */
export function pcm16ToFloat(samples: Int16Array): Float32Array<ArrayBuffer> {
  const out = new Float32Array(samples.length);
  for (let index = 0; index < samples.length; index += 1) {
    const value = samples[index] as number;
    out[index] = value < 0 ? value / 0x8000 : value / 0x7fff;
  }
  return out;
}

const WAV_HEADER_BYTES = 44;

/** A WAV file of 16-bit mono samples. */
export function wavOf(samples: Int16Array, sampleRate: number): Uint8Array<ArrayBuffer> {
  const data = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  const file = new Uint8Array(WAV_HEADER_BYTES + data.length);
  const view = new DataView(file.buffer);
  const word = (at: number, letters: string) =>
    file.set(
      [...letters].map((letter) => letter.charCodeAt(0)),
      at,
    );
  word(0, 'RIFF');
  view.setUint32(4, WAV_HEADER_BYTES - 8 + data.length, true);
  word(8, 'WAVEfmt ');
  view.setUint32(16, 16, true);
  view.setUint16(20, 1, true);
  view.setUint16(22, 1, true);
  view.setUint32(24, sampleRate, true);
  view.setUint32(28, sampleRate * 2, true);
  view.setUint16(32, 2, true);
  view.setUint16(34, 16, true);
  word(36, 'data');
  view.setUint32(40, data.length, true);
  file.set(data, WAV_HEADER_BYTES);
  return file;
}

/** How loud samples are: the root of their mean square, 0 to 1. */
export function levelOf(samples: Float32Array): number {
  if (samples.length === 0) return 0;
  let sum = 0;
  for (const sample of samples) sum += sample * sample;
  return Math.sqrt(sum / samples.length);
}
