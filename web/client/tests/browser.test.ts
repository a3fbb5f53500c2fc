/** Audio and pictures in a real Chromium with a fake microphone, under a strict content security policy. */

import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join as joinPath } from 'node:path';

import { build } from 'esbuild';
import { chromium, type Browser, type Page } from 'playwright-core';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { floatToPcm16, pcm16ToFloat, wavOf } from '../src/audio/pcm.js';
import { Resampler } from '../src/audio/resampler.js';
import { VoiceActivityDetector } from '../src/audio/voice-activity-detector.js';
import type { BrowserTests } from './browser/page.js';
import { join, mix, noise, scaled, speak } from './speech-samples.js';

const SENTENCES = ['What is the weather in Tokyo?', 'Stop.', 'Play some jazz music, please.', 'Where am I right now?'];
/** WebAssembly is for Silero alone. */
const POLICY = "default-src 'none'; script-src 'self' 'wasm-unsafe-eval'; connect-src 'self'; worker-src 'self'";

const TYPES = [
  ['js', 'text/javascript'],
  ['.wasm', 'application/wasm'],
  ['.onnx', 'application/octet-stream'],
] as const;

let server: Server;
let browser: Browser;
let page: Page;
let directory: string;
const problems: string[] = [];

beforeAll(async () => {
  directory = mkdtempSync(joinPath(tmpdir(), 'adk-bridge-browser-'));
  const microphone = joinPath(directory, 'microphone.wav');
  writeFileSync(microphone, wavOf(microphoneSamples(), 16_000));
  const files = await pageFiles();
  server = createServer(({ url = '/' }, response) => {
    const body = files.get(url);
    response.setHeader('content-security-policy', POLICY);
    response.setHeader('content-type', TYPES.find(([end]) => url.endsWith(end))?.[1] ?? 'text/html');
    response.statusCode = body === undefined ? 404 : 200;
    response.end(body);
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  browser = await chromium.launch({
    executablePath: process.env['CHROMIUM'] ?? '/usr/bin/chromium',
    args: [
      '--no-sandbox',
      '--use-fake-ui-for-media-stream',
      '--use-fake-device-for-media-stream',
      `--use-file-for-fake-audio-capture=${microphone}`,
      '--autoplay-policy=no-user-gesture-required',
    ],
  });
  page = await browser.newPage();
  page.on('console', (message) => problems.push(message.text()));
  page.on('pageerror', (error) => problems.push(String(error)));
  await page.goto(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`);
}, 60_000);
afterAll(async () => {
  await browser?.close();
  server?.close();
  rmSync(directory, { recursive: true, force: true });
});

/** Runs one of the page's tests; everything is said in JSON. */
function run<Name extends keyof BrowserTests>(
  name: Name,
  ...args: Parameters<BrowserTests[Name]>
): Promise<Awaited<ReturnType<BrowserTests[Name]>>> {
  return page.evaluate(
    ([name, args]) => (globalThis as never as { tests: Record<string, (...args: unknown[]) => never> }).tests[name]?.(...args),
    [name, args] as const,
  ) as never;
}

describe('AudioRecorder', () => {
  it.each([
    [undefined, Math.ceil(microphoneSamples().length / 16_000)],
    [44_100, 5],
  ])(
    'records what the microphone hears, and who speaks (context at %s Hz)',
    async (rate, seconds) => {
      const { recorded, independent, level, sampleRate, devices, speech } = await run('record', seconds, rate);
      if (rate !== undefined) expect(sampleRate).toBe(rate);
      const ours = pcm16ToFloat(int16(recorded));
      expect(correlation(ours, float32(independent))).toBeGreaterThanOrEqual(0.98);
      expect(level).toBeGreaterThan(0.02);
      expect(devices).toBeGreaterThan(0);
      // A busy machine drops some of what a fake microphone says, so that only what was recorded can be asked for.
      const heard: string[] = [];
      const detector = new VoiceActivityDetector({ onStart: () => heard.push('start'), onEnd: () => heard.push('end') });
      detector.push(ours);
      expect(heard).toContain('start');
      expect(Math.abs(speech.length - heard.length)).toBeLessThanOrEqual(1);
    },
    60_000,
  );
});

it('AudioRecorder lets go of the microphone, whenever it is closed, and can be opened again', async () => {
  expect(await run('lifecycle')).toEqual({ refusal: 'NotAllowedError', opened: [false], ended: 1, closed: [true], level: 0 });
}, 60_000);

it('VoiceSession hears silence while it is muted, and says when the microphone is gone', async () => {
  expect(await run('mutedAndGone')).toEqual({
    whileMuted: [],
    status: 'off',
    error: 'the microphone was disconnected',
    level: 0,
  });
}, 60_000);

describe('AudioPlayer', () => {
  it.each([
    [24_000, 1],
    [48_000, 2],
    [44_100, 3],
  ])(
    'plays sample by sample under jitter (context at %s Hz)',
    async (rate, seed) => {
      const { played, source } = await run('playJittered', rate, seed);
      const resampler = new Resampler(24_000, rate);
      const wanted = join([resampler.push(pcm16ToFloat(int16(source))), resampler.flush()]);
      const found = float32(played);
      const first = found.findIndex((sample) => sample !== 0);
      const offset = wanted.findIndex((sample) => sample !== 0);
      const heard = found.slice(first - offset, first - offset + wanted.length);
      expect(floatToPcm16(heard)).toEqual(floatToPcm16(wanted));
      expect(found.slice(first - offset + wanted.length).every((sample) => sample === 0)).toBe(true);
    },
    60_000,
  );

  it.each([24_000, 48_000])(
    'sounds within 60 ms and is silent within 20 ms of audio (context at %s Hz)',
    async (rate) => {
      const { firstSound, silence } = await run('latency', rate);
      expect(firstSound).toBeLessThanOrEqual(0.06);
      expect(silence).toBeLessThanOrEqual(0.02);
    },
    60_000,
  );
});

it('CameraFrames takes JPEG pictures and lets go of the camera', async () => {
  const { frames, isShown, left, asked } = await run('pictures');
  for (const [first, second, third, bytes] of frames) {
    expect([first, second, third]).toEqual([0xff, 0xd8, 0xff]);
    expect(bytes).toBeLessThan(100_000);
  }
  expect({ isShown, left, asked }).toEqual({ isShown: true, left: 0, asked: 2 });
}, 60_000);

it.each(['release', 'mute', 'mode', 'stop'] as const)(
  'VoiceSession: the key is held, and its end reported, whatever ends it (%s)',
  async (how) => {
    const { early, status, sent } = await run('pushToTalk', how);
    expect(early).toEqual([]);
    expect(status).toBe('listening');
    const words = sent.filter((word) => word !== 'last');
    expect(words.slice(0, 4)).toEqual(['start', 'before', 'piece', 'stop']);
  },
  60_000,
);

it.each([false, true])(
  'VoiceSession: who begins to speak silences the model, hands-free (Silero: %s)',
  async (silero) => {
    const { states, playing, sent, preRoll, lasts, off } = await run('bargeIn', silero);
    expect(states.slice(0, 2)).toEqual(['listening', 'ready']);
    expect(playing.slice(0, 3)).toEqual(['filling', 'playing', 'idle']);
    expect(preRoll).toBeGreaterThan(0);
    expect(sent).toBeGreaterThan(preRoll);
    expect(lasts).toBeLessThanOrEqual(1);
    expect(off).toBe('off');
  },
  120_000,
);

it('useVoice: the key, the mute and the device of a page, and nothing left open behind it', async () => {
  expect(await run('voiceHook')).toEqual({
    words: ['start', 'stop'],
    left: 0,
    muted: { isMuted: true, level: 0, open: 1 },
    asked: 2,
  });
}, 60_000);

it("SileroDetector finds every sentence, from files of the page's own host", async () => {
  const samples = microphoneSamples();
  const { events, missing } = await run(
    'silero',
    Buffer.from(samples.buffer, samples.byteOffset, samples.byteLength).toString('base64'),
  );
  expect(events.map(({ event }) => event)).toEqual(SENTENCES.flatMap(() => ['start', 'end']));
  expect(missing).toBe('refused');
}, 120_000);

it('nothing was written to the console, and the policy was kept', () => {
  expect(problems).toEqual([]);
});

/** Sentences with pauses of a second, in the noise of a room. */
function microphoneSamples(): Int16Array {
  const spoken = SENTENCES.flatMap((text) => [new Float32Array(16_000), scaled(speak(text), 0.1)]);
  const samples = join([...spoken, new Float32Array(16_000)]);
  return floatToPcm16(mix(samples, noise('pink', samples.length / 16_000, 0.004)));
}

async function pageFiles(): Promise<Map<string, string | Buffer>> {
  const bundle = async (entry: string) => {
    const { outputFiles } = await build({
      entryPoints: [entry],
      bundle: true,
      format: 'esm',
      target: 'es2022',
      external: ['ai'],
      define: { 'process.env.NODE_ENV': '"production"' },
      write: false,
    });
    return outputFiles[0]?.text ?? '';
  };
  const source = joinPath(import.meta.dirname, '..', 'src');
  const modules = (path: string) => joinPath(import.meta.dirname, '../node_modules', path);
  return new Map<string, string | Buffer>([
    ['/', '<!doctype html><title>audio</title><script type="module" src="/page/main.js"></script>'],
    ['/page/main.js', await bundle(joinPath(import.meta.dirname, 'browser/page.ts'))],
    ['/capture.worklet.js', readFileSync(joinPath(import.meta.dirname, 'browser/capture.worklet.js'))],
    ['/worklets/recorder.worklet.js', await bundle(joinPath(source, 'worklets/recorder.worklet.ts'))],
    ['/worklets/player.worklet.js', await bundle(joinPath(source, 'worklets/player.worklet.ts'))],
    ['/worklets/silero.worker.js', await bundle(joinPath(source, 'worklets/silero.worker.ts'))],
    ['/silero.onnx', readFileSync(modules('@ricky0123/vad-web/dist/silero_vad_v6.onnx'))],
    ...['ort.wasm.min.mjs', 'ort-wasm-simd-threaded.mjs', 'ort-wasm-simd-threaded.wasm'].map(
      (name) => [`/ort/${name}`, readFileSync(modules(`onnxruntime-web/dist/${name}`))] as const,
    ),
    ['/favicon.ico', ''],
  ]);
}

function bytesOf(base64: string): ArrayBuffer {
  const bytes = Buffer.from(base64, 'base64');
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
}

const int16 = (base64: string) => new Int16Array(bytesOf(base64));
const float32 = (base64: string) => new Float32Array(bytesOf(base64));

/**
 * The best normalised correlation over all lags of up to a second, on the middle of `a`. Two recordings of one sound begin
 * at different moments of a sample, too, so that the best lag is looked for between samples as well.
 */
function correlation(a: Float32Array, b: Float32Array): number {
  const from = 24_000;
  const length = Math.min(a.length, b.length) - 2 * from;
  const at = (step: number, sampleOf: (index: number) => number) => {
    let both = 0;
    let first = 1e-12;
    let second = 1e-12;
    for (let index = from; index < from + length; index += step) {
      const x = a[index] as number;
      const y = sampleOf(index);
      both += x * y;
      first += x * x;
      second += y * y;
    }
    return both / Math.sqrt(first * second);
  };
  const best = (candidates: readonly number[], step: number, sampleAt: (position: number) => number) => {
    const found = candidates.map((lag) => at(step, (index) => sampleAt(index + lag)));
    const highest = Math.max(...found);
    return { lag: candidates[found.indexOf(highest)] as number, highest };
  };
  const whole = (position: number) => b[position] ?? 0;
  const coarse = best(
    Array.from({ length: 32_001 }, (_, index) => index - 16_000),
    Math.ceil(length / 2000),
    whole,
  ).lag;
  const { lag } = best(
    [-2, -1, 0, 1, 2].map((near) => coarse + near),
    1,
    whole,
  );
  return best(
    Array.from({ length: 21 }, (_, index) => lag + (index - 10) / 20),
    7,
    (position) => between(b, position),
  ).highest;
}

/** What lies between samples, by the sinc of 16 of them. */
function between(samples: Float32Array, position: number): number {
  const floor = Math.floor(position);
  let sum = 0;
  for (let index = floor - 7; index <= floor + 8; index += 1) {
    const x = Math.PI * (position - index);
    sum += (samples[index] ?? 0) * (x === 0 ? 1 : (Math.sin(x) / x) * Math.cos(x / 18) ** 2);
  }
  return sum;
}
