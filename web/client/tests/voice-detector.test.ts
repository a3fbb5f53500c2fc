/** The detector on speech of many voices in many noises, and on noises alone. */

import { describe, expect, it } from 'vitest';

import { Endpointer } from '../src/audio/endpointer.js';
import { DETECTOR_FRAME, VoiceDetector } from '../src/audio/voice-detector.js';
import { join, mix, noise, scaled, speak } from './speech-samples.js';

const PHRASES = [
  'What is the weather in Tokyo?',
  'Stop.',
  'Search the database and update it, please.',
  'Yes',
  'Play some jazz music.',
  'Where am I right now?',
  'Pay Hanako fifty dollars.',
  'No, wait a moment.',
  'Could you tell me a story about a very small dragon?',
];
const VOICES: [string, number, number][] = [
  ['en-us', 50, 160],
  ['en-gb+f2', 70, 175],
  ['en-us+m3', 25, 140],
  ['en-us+f5', 85, 190],
  ['en-gb', 40, 120],
];
const NOISES = ['white', 'pink', 'brown', 'fan', 'hum'] as const;

/** When utterances begin and end, in samples. */
function detect(samples: Float32Array): { start: number; end: number | undefined }[] {
  const detector = new VoiceDetector();
  const endpointer = new Endpointer({ frameMs: 16 });
  const found: { start: number; end: number | undefined }[] = [];
  for (let at = 0; at + DETECTOR_FRAME <= samples.length; at += DETECTOR_FRAME) {
    const event = endpointer.take(detector.take(samples.subarray(at, at + DETECTOR_FRAME), endpointer.isSpeech));
    if (event === 'start') found.push({ start: at + DETECTOR_FRAME, end: undefined });
    const last = found.at(-1);
    if (event === 'end' && last !== undefined) last.end = at + DETECTOR_FRAME;
  }
  return found;
}

const silence = (seconds: number) => new Float32Array(seconds * 16_000);
const ms = (samples: number) => Math.round(samples / 16);

describe('VoiceDetector', () => {
  it('finds every utterance, soon, and lets go of it', () => {
    const onsets: number[] = [];
    const ends: number[] = [];
    let falseStarts = 0;
    PHRASES.forEach((phrase, p) => {
      VOICES.forEach(([voice, pitch, speed], v) => {
        const speech = trimmed(scaled(speak(phrase, voice, pitch, speed), 0.08));
        const samples = join([silence(1.5), speech, silence(1.5)]);
        // Between 14 and 32 dB below the speech.
        const level = 0.08 / 10 ** ((14 + ((p * 7 + v * 5) % 4) * 6) / 20);
        const heard = mix(
          samples,
          noise(NOISES[(p + v) % NOISES.length] ?? 'white', samples.length / 16_000, level, p * 10 + v + 1),
        );
        const found = detect(heard);
        const begins = 1.5 * 16_000;
        const ours = found.filter(({ start }) => start > begins && start < begins + speech.length);
        expect(ours.length, `${phrase} by ${voice}: ${JSON.stringify(found)}`).toBeGreaterThan(0);
        expect(found.at(-1)?.end, `never released: ${phrase} by ${voice}`).toBeDefined();
        falseStarts += found.length - ours.length;
        onsets.push(ms((ours[0]?.start ?? 0) - begins));
        ends.push(ms((found.at(-1)?.end ?? 0) - begins - speech.length));
      });
    });
    const at = (values: number[], share: number) => [...values].sort((a, b) => a - b)[Math.floor(values.length * share)] ?? 0;
    expect(falseStarts).toBeLessThanOrEqual(2);
    expect(at(onsets, 0.5)).toBeLessThanOrEqual(200);
    expect(at(onsets, 0.95)).toBeLessThanOrEqual(450);
    expect(at(ends, 0.95)).toBeLessThanOrEqual(800);
  });

  it('starts at no noise alone', () => {
    const samples = join([
      noise('white', 6, 0.02, 3),
      noise('keys', 8, 0.03, 4),
      noise('pink', 6, 0.03, 5),
      noise('hum', 5, 0.05, 6),
      silence(3),
      noise('fan', 6, 0.02, 7),
      noise('brown', 6, 0.05, 8),
    ]);
    expect(detect(samples)).toEqual([]);
  });
});

/** Without the silence that the synthesiser puts around its words. */
function trimmed(samples: Float32Array): Float32Array {
  const isLoud = (sample: number) => Math.abs(sample) > 0.01;
  return samples.slice(samples.findIndex(isLoud), samples.findLastIndex(isLoud) + 1);
}
