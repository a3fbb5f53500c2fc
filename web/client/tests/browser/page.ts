/** What the tests run inside a real browser. */

import { createElement } from 'react';
import { createRoot } from 'react-dom/client';

import {
  AudioPlayer,
  AudioRecorder,
  CameraFrames,
  VoiceSession,
  type LiveChatTransport,
  type VoiceConnection,
} from '../../src/index.js';
import { SileroDetector } from '../../src/audio/silero-detector.js';
import { useVoice, type Voice } from '../../src/react/use-voice.js';

/** What nodes were asked for, one piece after the other: a busy browser lets the audio clock run on without asking any node. */
interface Captured {
  samples: Float32Array<ArrayBuffer>;
  /** How many of the samples were asked for before a time of the audio clock. */
  before: (seconds: number) => number;
}

/** Records what flows through a node of its own, sample by sample. */
async function capture(context: AudioContext): Promise<{ node: AudioWorkletNode; end: () => Promise<Captured> }> {
  await context.audioWorklet.addModule('/capture.worklet.js');
  const node = new AudioWorkletNode(context, 'capture', { outputChannelCount: [1] });
  const pieces: { frame: number; samples: Float32Array }[] = [];
  const lengthOf = (some: typeof pieces) => some.reduce((sum, { samples }) => sum + samples.length, 0);
  let over = () => {};
  node.port.onmessage = ({ data }: MessageEvent<{ frame: number; samples: Float32Array } | 'end'>) =>
    data === 'end' ? over() : pieces.push(data);
  const end = async (): Promise<Captured> => {
    // What the audio thread has handed out may still be on its way; its answer comes behind it.
    await new Promise<void>((resolve) => {
      over = resolve;
      node.port.postMessage('end');
    });
    const samples = new Float32Array(lengthOf(pieces));
    let at = 0;
    for (const piece of pieces) {
      samples.set(piece.samples, at);
      at += piece.samples.length;
    }
    return {
      samples,
      before: (seconds) => lengthOf(pieces.filter(({ frame }) => frame < Math.round(seconds * context.sampleRate))),
    };
  };
  return { node, end };
}

const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

async function until(condition: () => boolean, limitMs = 30_000): Promise<void> {
  for (const end = performance.now() + limitMs; !condition(); ) {
    if (performance.now() > end) throw new Error('waited too long');
    await pause(10);
  }
}

const base64 = (samples: Int16Array | Float32Array) => {
  const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
  let text = '';
  for (let at = 0; at < bytes.length; at += 0x8000) text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
  return btoa(text);
};

function joined(pieces: readonly Int16Array[]): Int16Array {
  const out = new Int16Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
  let at = 0;
  for (const piece of pieces) {
    out.set(piece, at);
    at += piece.length;
  }
  return out;
}

/** A source whose samples are never zero, so that silence can be recognised. */
const ramp = (length: number) => Int16Array.from({ length }, (_, index) => 1 + (index % 30_000));

/** All that is asked of the camera and the microphone, until it is restored. */
function collectStreams() {
  const { mediaDevices } = navigator;
  const streams: MediaStream[] = [];
  const ask = mediaDevices.getUserMedia.bind(mediaDevices);
  mediaDevices.getUserMedia = async (constraints) => {
    const stream = await ask(constraints);
    streams.push(stream);
    return stream;
  };
  return { streams, restore: () => (mediaDevices.getUserMedia = ask) };
}

/** Plays `source` in pieces of random size, the first one of `cushion` samples, with pauses of random length between them. */
async function playPieces(source: Int16Array, cushion: number, contextRate: number, seed: number) {
  const context = new AudioContext({ sampleRate: contextRate });
  const { node, end } = await capture(context);
  node.connect(context.destination);
  const player = new AudioPlayer({ context, destination: node });
  await player.open();
  const states: string[] = [];
  player.state.subscribe(() => states.push(player.state.get()));
  let state = seed;
  const random = () => (state = (state * 1_103_515_245 + 12_345) % 2 ** 31) / 2 ** 31;
  for (let at = 0, size = cushion; at < source.length; at += size, size = 1 + Math.floor(random() * 4000)) {
    player.push({ turn: 1, samples: source.slice(at, at + size), sampleRate: 24_000 });
    await pause(random() * 120);
  }
  player.end(1);
  await until(() => player.state.get() === 'idle');
  const { samples } = await end();
  await context.close();
  return { samples, hasRunDry: states.filter((state) => state === 'filling').length > 1 };
}

const tests = {
  /** Records the fake microphone with the recorder and, independently, with the browser's own means. */
  async record(seconds: number, contextRate?: number) {
    const stream = await navigator.mediaDevices.getUserMedia({
      audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
    });
    const context = new AudioContext(contextRate === undefined ? {} : { sampleRate: contextRate });
    const chunks: Int16Array[] = [];
    const speech: string[] = [];
    let longestLevel = 0;
    const recorder = new AudioRecorder({
      context,
      getStream: async () => stream,
      onChunk: ({ samples }) => chunks.push(samples),
      onSpeech: (event) => speech.push(event),
    });
    const { node, end } = await capture(context);
    const source = context.createMediaStreamSource(stream);
    source
      .connect(node)
      .connect(new GainNode(context, { gain: 0 }))
      .connect(context.destination);
    // Each source of a track loses samples of its own on a busy machine, before anybody could record them.
    context.createMediaStreamSource = () => source;
    recorder.level.subscribe(() => (longestLevel = Math.max(longestLevel, recorder.level.get())));
    await recorder.open();
    recorder.setGate('open');
    await until(() => chunks.reduce((sum, chunk) => sum + chunk.length, 0) >= seconds * 16_000, seconds * 4000);
    recorder.close();
    const raw = (await end()).samples;
    const offline = new OfflineAudioContext(1, Math.ceil((raw.length / context.sampleRate) * 16_000), 16_000);
    const buffer = new AudioBuffer({ length: raw.length, sampleRate: context.sampleRate });
    buffer.copyToChannel(raw, 0);
    const player = new AudioBufferSourceNode(offline, { buffer });
    player.connect(offline.destination);
    player.start();
    const independent = (await offline.startRendering()).getChannelData(0);
    const { sampleRate } = context;
    await context.close();
    return {
      recorded: base64(joined(chunks)),
      independent: base64(independent),
      speech,
      level: longestLevel,
      sampleRate,
      devices: (await AudioRecorder.devices()).length,
    };
  },

  /** Plays a ramp in pieces of random size at random times; returns what reached the destination. */
  async playJittered(contextRate: number, seed: number) {
    const source = ramp(24_000 * 4);
    // The first piece is a cushion. A machine that is busy for longer lets the player run dry, as it should: then a larger one is needed.
    for (let cushion = 36_000; ; cushion *= 2) {
      const { samples, hasRunDry } = await playPieces(source, cushion, contextRate, seed);
      if (!hasRunDry || cushion >= source.length) return { played: base64(samples), source: base64(source) };
    }
  },

  /** Counts, in samples that were asked for, from the first piece to the first sound, and from flush to silence. */
  async latency(contextRate: number) {
    const context = new AudioContext({ sampleRate: contextRate, latencyHint: 'interactive' });
    const { node, end } = await capture(context);
    node.connect(context.destination);
    const player = new AudioPlayer({ context, destination: node });
    await player.open();
    await pause(200);
    // The clock stands while an order is on its way to the audio thread: a busy machine takes its time for that.
    await context.suspend();
    const pushed = context.currentTime;
    player.push({ turn: 1, samples: ramp(24_000 * 3), sampleRate: 24_000 });
    await until(() => player.state.get() === 'filling');
    await context.resume();
    await until(() => player.state.get() === 'playing');
    await pause(300);
    await context.suspend();
    const flushed = context.currentTime;
    player.flush(1);
    player.push({ turn: 1, samples: ramp(24_000), sampleRate: 24_000 });
    await until(() => player.state.get() === 'idle');
    await context.resume();
    await pause(300);
    const { samples, before } = await end();
    await context.close();
    const first = samples.findIndex((sample) => sample !== 0);
    const last = samples.findLastIndex((sample) => sample !== 0);
    return { firstSound: (first - before(pushed)) / contextRate, silence: (last - before(flushed)) / contextRate };
  },

  /** Pictures of the fake camera. */
  async pictures() {
    const frames: number[][] = [];
    const camera = new CameraFrames({ onFrame: (jpeg) => frames.push([...jpeg.slice(0, 3), jpeg.length]), intervalMs: 100 });
    const { streams, restore } = collectStreams();
    const first = camera.open();
    camera.close();
    await Promise.all([first, camera.open(), camera.open()]);
    restore();
    await until(() => frames.length >= 3);
    const live = streams.filter((stream) => stream.active);
    const isShown = live.length === 1 && live[0] === camera.stream;
    camera.close();
    return { frames, isShown, left: streams.filter((stream) => stream.active).length, asked: streams.length };
  },

  /** Closed while it opens, refused, opened again, taken away: what becomes of the microphone. */
  async lifecycle() {
    const streams: MediaStream[] = [];
    const isOver = () => streams.map((stream) => stream.getTracks().every((track) => track.readyState === 'ended'));
    let chunks = 0;
    let ended = 0;
    let isRefused = false;
    const recorder = new AudioRecorder({
      getStream: async () => {
        if (isRefused) throw new DOMException('no', 'NotAllowedError');
        const stream = await navigator.mediaDevices.getUserMedia({ audio: true });
        streams.push(stream);
        return stream;
      },
      onChunk: () => (chunks += 1),
      onEnded: () => (ended += 1),
    });
    recorder.setGate('open');
    const first = recorder.open();
    recorder.close();
    isRefused = true;
    const refusal = await recorder.open().then(
      () => 'opened',
      (error: Error) => error.name,
    );
    isRefused = false;
    await Promise.all([first, recorder.open(), recorder.open()]);
    await until(() => chunks > 0);
    const opened = isOver();
    streams.at(-1)?.getTracks()[0]?.dispatchEvent(new Event('ended'));
    return { refusal, opened, ended, closed: isOver(), level: recorder.level.get() };
  },

  /** A microphone that is muted from the start, then heard, then unplugged. */
  async mutedAndGone() {
    const { streams, restore } = collectStreams();
    const live = {
      on: () => () => {},
      connect: () => {},
      audioControl: () => {},
      sendAudio: () => true,
    } as unknown as VoiceConnection;
    const session = new VoiceSession(live);
    session.setMuted(true);
    await session.start();
    restore();
    const levels: number[] = [];
    session.inputLevel.subscribe(() => levels.push(session.inputLevel.get()));
    await pause(300);
    const whileMuted = [...levels];
    session.setMuted(false);
    await until(() => session.inputLevel.get() > 0);
    session.setMuted(true);
    await until(() => session.inputLevel.get() === 0);
    session.setMuted(false);
    await until(() => session.inputLevel.get() > 0);
    streams[0]?.getTracks()[0]?.dispatchEvent(new Event('ended'));
    const { status, error } = session.state.get();
    return { whileMuted, status, error: error?.message, level: session.inputLevel.get() };
  },

  /** Holding the key: what the connection is sent, in order. */
  async pushToTalk(how: 'release' | 'stop' | 'mute' | 'mode') {
    const sent: string[] = [];
    const live = {
      on: () => () => {},
      connect: () => {},
      audioControl: (action: string) => sent.push(action),
      sendAudio: (_samples: Int16Array, { preRoll = false, last = false } = {}) =>
        sent.push(preRoll ? 'before' : last ? 'last' : 'piece') > 0,
    } as unknown as VoiceConnection;
    const session = new VoiceSession(live);
    session.press();
    await session.start();
    await until(() => session.inputLevel.get() > 0);
    await pause(400);
    const early = [...sent];
    session.press();
    session.press();
    await until(() => sent.filter((word) => word === 'piece').length >= 5);
    const { status } = session.state.get();
    if (how === 'release') session.release();
    if (how === 'stop') session.stop();
    if (how === 'mute') session.setMuted(true);
    if (how === 'mode') session.setMode('hands-free');
    await until(() => sent.includes('stop'));
    session.stop();
    return { early, status, sent: sent.filter((word, index) => word !== sent[index - 1]) };
  },

  /** The hook in a page: started, spoken with by the key, muted, moved to another device, and gone. */
  async voiceHook() {
    const sent: string[] = [];
    const live = {
      on: () => () => {},
      connect: () => {},
      audioControl: (action: string) => sent.push(action),
      sendAudio: () => true,
    } as unknown as LiveChatTransport;
    let voice: Voice | undefined;
    const Page = ({ deviceId }: { deviceId?: string | undefined }) => {
      voice = useVoice(live, { deviceId });
      return null;
    };
    const status = () => voice?.state.status;
    const isReady = () => status() === 'ready';
    const key = (type: 'keydown' | 'keyup') => window.dispatchEvent(new KeyboardEvent(type, { key: 'Control' }));
    const { streams, restore } = collectStreams();
    const open = () => streams.filter((stream) => stream.active).length;
    const root = createRoot(document.createElement('div'));
    root.render(createElement(Page, {}));
    await until(() => voice !== undefined);
    await voice?.start();
    // The key is listened to as soon as the page was rendered.
    await until(() => key('keydown') && status() === 'listening');
    key('keyup');
    await until(() => isReady() && sent.at(-1) === 'stop');
    voice?.setMuted(true);
    await until(() => voice?.isMuted === true);
    key('keydown');
    await pause(300);
    key('keyup');
    const words = [...sent];
    const [device] = await AudioRecorder.devices();
    root.render(createElement(Page, { deviceId: device?.deviceId }));
    await until(() => status() === 'off');
    const left = open();
    await voice?.start();
    await until(isReady);
    await pause(200);
    const muted = { isMuted: voice?.isMuted, level: voice?.inputLevel.get(), open: open() };
    root.unmount();
    await until(() => open() === 0);
    restore();
    return { words, left, muted, asked: streams.length };
  },

  /** Recorded speech through Silero, as fast as it comes. */
  async silero(samples: string) {
    const events: { event: string; ms: number }[] = [];
    let at = 0;
    const note = (event: string) => events.push({ event, ms: at / 16 });
    const detector = new SileroDetector({
      ortUrl: '/ort/ort.wasm.min.mjs',
      modelUrl: '/silero.onnx',
      onStart: () => note('start'),
      onEnd: () => note('end'),
    });
    await detector.open();
    const bytes = Uint8Array.from(atob(samples), (letter) => letter.charCodeAt(0));
    const all = new Int16Array(bytes.buffer);
    for (; at < all.length; at += 4096) {
      detector.push(all.subarray(at, at + 4096));
      await until(() => detector.waiting === 0);
    }
    detector.close();
    const missing = await new SileroDetector({
      ortUrl: '/ort/nothing.mjs',
      modelUrl: '/silero.onnx',
      onStart: () => {},
      onEnd: () => {},
    })
      .open()
      .then(
        () => 'opened',
        () => 'refused',
      );
    return { events, missing };
  },

  /** A hands-free conversation: the model speaks, the user begins to, and the model is silent at once. */
  async bargeIn(withSilero: boolean) {
    const listeners = new Map<string, (event: never) => void>();
    const sent: { length: number; preRoll: boolean; last: boolean }[] = [];
    const live = {
      on: (kind: string, listener: (event: never) => void) => {
        listeners.set(kind, listener);
        return () => listeners.delete(kind);
      },
      connect: () => {},
      audioControl: () => {
        throw new Error("hands-free is the model's to decide");
      },
      sendAudio: (samples: Int16Array, { preRoll = false, last = false } = {}) =>
        sent.push({ length: samples.length, preRoll, last }) > 0,
    } as unknown as VoiceConnection;
    const silero = { ortUrl: '/ort/ort.wasm.min.mjs', modelUrl: '/silero.onnx' };
    const session = new VoiceSession(live, { mode: 'hands-free', ...(withSilero && { silero }) });
    const states: string[] = [];
    const playing: string[] = [];
    session.state.subscribe(() => states.push(session.state.get().status));
    session.playing.subscribe(() => playing.push(session.playing.get()));
    await session.start();
    if (withSilero) await until(() => session.detector.get() === 'silero');
    await until(() => session.state.get().status === 'ready');
    // The microphone speaks when it likes: an answer that it cut off before it was heard is given again.
    for (let turn = 1; !playing.includes('playing'); turn += 1) {
      states.length = 0;
      sent.length = 0;
      playing.length = 0;
      listeners.get('audio')?.({ turn, samples: ramp(24_000 * 20), sampleRate: 24_000 } as never);
      await until(() => session.state.get().status === 'listening');
      await until(() => session.playing.get() === 'idle');
      await until(() => session.state.get().status === 'ready');
    }
    const level = session.inputLevel.get();
    session.stop();
    return {
      states,
      playing,
      sent: sent.length,
      preRoll: sent.filter(({ preRoll }) => preRoll).length,
      lasts: sent.filter(({ last }) => last).length,
      level,
      off: session.state.get().status,
    };
  },
};

Object.assign(globalThis, { tests });

export type BrowserTests = typeof tests;
