/** Samples, exactly: forms, rates, files, and what a player renders. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { floatToPcm16, levelOf, pcm16ToFloat, wavOf } from '../src/audio/pcm.js';
import { PlayerCore } from '../src/audio/player-core.js';
import { RecorderCore, type RecordedChunk } from '../src/audio/recorder-core.js';
import { Resampler } from '../src/audio/resampler.js';
import { join, speak } from './speech-samples.js';

describe('pcm', () => {
  it('floats become the nearest sample, and clip', () => {
    const floats = [0, 1, -1, 0.5, -0.5, 2, -2, 1 / 0x7fff, -1 / 0x8000, 0.4 / 0x7fff];
    expect([...floatToPcm16(Float32Array.from(floats))]).toEqual([0, 32767, -32768, 16384, -16384, 32767, -32768, 1, -1, 0]);
  });

  it('every sample survives the way through floats', () => {
    const all = Int16Array.from({ length: 0x10000 }, (_, index) => index - 0x8000);
    expect(floatToPcm16(pcm16ToFloat(all))).toEqual(all);
  });

  it('a WAV file has its 44 bytes of header', () => {
    const file = wavOf(Int16Array.of(1, -2), 24_000);
    expect(Buffer.from(file).toString('hex')).toBe(
      '52494646' +
        '28000000' +
        '57415645' +
        '666d7420' +
        '10000000' +
        '0100' +
        '0100' +
        'c05d0000' +
        '80bb0000' +
        '0200' +
        '1000' +
        '64617461' +
        '04000000' +
        '0100feff',
    );
  });

  it('loudness is the root of the mean square', () => {
    expect(levelOf(Float32Array.of(0.5, -0.5, 0.5, -0.5))).toBe(0.5);
    expect(levelOf(new Float32Array())).toBe(0);
  });
});

const RATES: [number, number][] = [
  [48_000, 16_000],
  [44_100, 16_000],
  [24_000, 48_000],
  [24_000, 44_100],
  [16_000, 16_000],
  [96_000, 16_000],
  [22_050, 16_000],
  [47_999, 16_000],
];

function resample(from: number, to: number, pieces: readonly Float32Array[]): Float32Array {
  const resampler = new Resampler(from, to);
  return join([...pieces.map((piece) => resampler.push(piece)), resampler.flush()]);
}

function sine(rate: number, hertz: number, seconds = 0.2): Float32Array {
  return Float32Array.from({ length: rate * seconds }, (_, index) => Math.sin((2 * Math.PI * hertz * index) / rate));
}

/** How far below the wanted signal the difference lies, in dB, away from the edges. */
function distortion(found: Float32Array, wanted: Float32Array): number {
  const edge = Math.floor(wanted.length / 5);
  let error = 0;
  let energy = 0;
  for (let index = edge; index < wanted.length - edge; index += 1) {
    error += ((found[index] as number) - (wanted[index] as number)) ** 2;
    energy += (wanted[index] as number) ** 2;
  }
  return 10 * Math.log10(error / energy);
}

describe('Resampler', () => {
  it.each(RATES)('%s to %s: tones stay what they are, and where they are', (from, to) => {
    for (const [hertz, most] of [
      [100, -60],
      [440, -60],
      [1000, -60],
      [3000, -60],
      [5500, -60],
      [6500, -40],
    ] as const) {
      const found = resample(from, to, [sine(from, hertz)]);
      expect(distortion(found, sine(to, hertz)), `${hertz} Hz`).toBeLessThan(most);
    }
  });

  it.each([
    [48_000, 16_000],
    [44_100, 16_000],
    [96_000, 16_000],
  ])('%s to %s: what is above half the rate is gone', (from, to) => {
    for (const hertz of [9500, 12_000, 15_000, 19_000]) {
      const found = resample(from, to, [sine(from, hertz)]).slice(to / 20, -to / 20);
      expect(20 * Math.log10(levelOf(found)), `${hertz} Hz`).toBeLessThan(-60);
    }
  });

  it.each(RATES)('%s to %s: a constant stays, and the length is right', (from, to) => {
    const found = resample(from, to, [new Float32Array(from).fill(0.25)]);
    expect(Math.abs(found.length - to)).toBeLessThanOrEqual(1);
    expect(found.slice(to / 5, -to / 5).every((sample) => Math.abs(sample - 0.25) < 1e-3)).toBe(true);
  });

  it('pieces make no difference', () => {
    fc.assert(
      fc.property(
        fc.constantFrom(...RATES),
        fc.array(fc.integer({ min: 0, max: 700 }), { minLength: 1, maxLength: 12 }),
        ([from, to], sizes) => {
          const whole = sine(from, 700, sizes.reduce((a, b) => a + b, 0) / from);
          let at = 0;
          const pieces = sizes.map((size) => whole.subarray(at, (at += size)));
          expect(resample(from, to, pieces)).toEqual(resample(from, to, [whole]));
        },
      ),
      { numRuns: 30 },
    );
  });
});

describe('PlayerCore', () => {
  const QUANTUM = 128;
  const render = (core: PlayerCore, count = 1) =>
    join(
      Array.from({ length: count }, () => {
        const out = new Float32Array(QUANTUM);
        core.render(out);
        return out;
      }),
    );
  /** Samples that are never zero, so that silence can be recognised. */
  const ramp = (length: number, from = 1) => Int16Array.from({ length }, (_, index) => 1 + ((index + from) % 30_000));

  it('waits for 60 ms, then plays every sample once, in order, whatever the pieces', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1, maxLength: 20 }), fc.nat(3), (sizes, lead) => {
        const core = new PlayerCore({ sampleRate: 24_000 });
        const total = sizes.reduce((a, b) => a + b, 0);
        const source = ramp(total);
        const out: Float32Array[] = [];
        let at = 0;
        for (const size of sizes) {
          core.push(1, source.subarray(at, at + size), 24_000);
          at += size;
          // Never so fast that it runs dry.
          while (core.queuedMs > 60 + lead * 20 + 6) out.push(render(core));
        }
        core.end(1);
        while (core.state !== 'idle') out.push(render(core));
        const played = join(out);
        const first = played.findIndex((sample) => sample !== 0);
        expect(floatToPcm16(played.slice(first, first + total))).toEqual(source);
        expect(played.slice(first + total).every((sample) => sample === 0)).toBe(true);
      }),
      { numRuns: 30 },
    );
  });

  it('starts with the first quantum when enough comes at once', () => {
    const core = new PlayerCore({ sampleRate: 24_000 });
    core.push(1, ramp(1439), 24_000);
    expect(render(core).every((sample) => sample === 0)).toBe(true);
    core.push(1, ramp(1), 24_000);
    expect(render(core)[0]).not.toBe(0);
  });

  it('a stall fades, gathers more than before, and loses nothing', () => {
    const states: string[] = [];
    const core = new PlayerCore({ sampleRate: 24_000, onState: (state) => states.push(state) });
    const source = ramp(6000);
    core.push(1, source.subarray(0, 1500), 24_000);
    const before = render(core, 14);
    expect(floatToPcm16(before.slice(0, 1500))).toEqual(source.slice(0, 1500));
    const steps = before
      .slice(1499, 1600)
      .map((sample, index, all) => (index === 0 ? 0 : Math.abs(sample - (all[index - 1] as number))));
    expect(Math.max(...steps)).toBeLessThan(0.01);
    expect(before.slice(1600).every((sample) => sample === 0)).toBe(true);
    core.push(1, source.subarray(1500, 1500 + 1500), 24_000);
    expect(
      render(core).every((sample) => sample === 0),
      '62 ms are not enough after a stall',
    ).toBe(true);
    core.push(1, source.subarray(3000), 24_000);
    core.end(1);
    const after = render(core, 40);
    expect(floatToPcm16(after.slice(0, 4500))).toEqual(source.slice(1500));
    expect(states).toEqual(['filling', 'playing', 'filling', 'playing', 'idle']);
  });

  it('a flush is silent within 5 ms and without a jump, and late pieces of the turn are dropped', () => {
    const core = new PlayerCore({ sampleRate: 24_000 });
    core.push(7, new Int16Array(24_000).fill(16_000), 24_000);
    render(core, 20);
    core.flush(7);
    const out = render(core, 10);
    expect(out.slice(120).every((sample) => sample === 0)).toBe(true);
    const jumps = out.map((sample, index) => Math.abs(sample - (index === 0 ? 16_000 / 0x7fff : (out[index - 1] as number))));
    expect(Math.max(...jumps)).toBeLessThan(0.02);
    core.push(7, ramp(5000), 24_000);
    expect(render(core, 5).every((sample) => sample === 0)).toBe(true);
    core.push(8, ramp(5000), 24_000);
    expect(render(core)[0]).toBeGreaterThan(0);
  });

  it('a short turn is played when it has ended, and turns follow each other', () => {
    const core = new PlayerCore({ sampleRate: 24_000 });
    core.push(1, ramp(100), 24_000);
    core.end(2);
    expect(render(core).every((sample) => sample === 0)).toBe(true);
    core.end(1);
    core.push(2, ramp(100, 500), 24_000);
    core.end(2);
    expect(floatToPcm16(render(core, 2)).slice(0, 200)).toEqual(Int16Array.of(...ramp(100), ...ramp(100, 500)));
  });

  it('at another rate it plays what the resampler makes', () => {
    const core = new PlayerCore({ sampleRate: 48_000 });
    const source = ramp(4800);
    for (let at = 0; at < 4800; at += 480) core.push(1, source.subarray(at, at + 480), 24_000);
    core.end(1);
    const wanted = resample(24_000, 48_000, [pcm16ToFloat(source)]);
    const played = render(core, Math.ceil(wanted.length / QUANTUM));
    expect(played.slice(0, wanted.length)).toEqual(wanted);
  });

  it('holds ten minutes at most', () => {
    const core = new PlayerCore({ sampleRate: 24_000 });
    const minute = new Int16Array(24_000 * 60);
    for (let index = 0; index < 12; index += 1) core.push(1, minute, 24_000);
    expect(core.queuedMs).toBe(600_000);
  });
});

describe('RecorderCore', () => {
  const make = (options: object = {}) => {
    const chunks: RecordedChunk[] = [];
    const core = new RecorderCore({
      sampleRate: 16_000,
      onChunk: (chunk) => chunks.push(chunk),
      onLevel: () => {},
      onSpeech: () => {},
      ...options,
    });
    return { core, chunks };
  };
  const ramp = (from: number, length: number) => Float32Array.from({ length }, (_, index) => (from + index) / 0x7fff);

  it('hands out 20 ms pieces with 300 ms from before the gate opened, without a gap', () => {
    const { core, chunks } = make();
    core.push(ramp(0, 16_000));
    core.gate = 'open';
    core.push(ramp(16_000, 3200 + 100));
    core.gate = 'closed';
    core.push(ramp(0, 3200));
    const all = join(chunks.map(({ samples }) => Float32Array.from(samples)));
    expect([...all]).toEqual([...ramp(16_000 - 4800, 4800 + 3300)].map((sample) => Math.round(sample * 0x7fff)));
    expect(chunks.filter(({ preRoll }) => preRoll)).toHaveLength(15);
    expect(chunks.map(({ last }) => last)).toEqual([...Array<boolean>(25).fill(false), true]);
    expect(chunks.slice(0, -1).every(({ samples }) => samples.length === 320)).toBe(true);
  });

  it('records silence while it is muted, and keeps nothing from before for the next gate', () => {
    const { core, chunks } = make();
    core.push(ramp(1, 16_000));
    core.isMuted = true;
    core.push(ramp(1, 1600));
    core.gate = 'open';
    core.push(ramp(1, 3200));
    expect(chunks.filter(({ preRoll }) => preRoll)).toHaveLength(5);
    expect(chunks).toHaveLength(15);
    expect(chunks.every(({ samples }) => samples.every((sample) => sample === 0))).toBe(true);
    core.isMuted = false;
    core.push(ramp(1, 320));
    expect(chunks.at(-1)?.samples[319]).toBe(320);
  });

  it('what was being said ends with a silence when it is muted', () => {
    const speech: string[] = [];
    const { core, chunks } = make({ onSpeech: (event: string) => speech.push(event) });
    const hear = (samples: Float32Array) => {
      for (let at = 0; at < samples.length; at += 128) core.push(samples.subarray(at, at + 128));
    };
    const sentence = speak('Play some jazz music, please.').subarray(0, 16_000);
    core.gate = 'voice';
    hear(sentence);
    expect(speech).toEqual(['start']);
    const said = chunks.length;
    core.isMuted = true;
    hear(sentence);
    expect(speech).toEqual(['start', 'end']);
    expect(chunks.at(-1)?.last).toBe(true);
    expect(chunks.length - said).toBeGreaterThan(15);
    expect(chunks.slice(said + 1).every(({ samples }) => samples.every((sample) => sample === 0))).toBe(true);
  });

  it('tells the level whether the gate is open or not', () => {
    const levels: number[] = [];
    const { core } = make({ onLevel: (level: number) => levels.push(level) });
    core.push(new Float32Array(640).fill(0.25));
    expect(levels).toEqual([0.25, 0.25]);
  });
});
