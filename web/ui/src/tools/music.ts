/** Background music: two loops that the browser makes itself, note by note, and the state of their player. */
import { createStore } from '../lib/store';

export interface Playing {
  /** As the agent named it. */
  track: string;
  loop: keyof typeof LOOPS;
  isPaused: boolean;
  volume: number;
}

interface Loop {
  beatSeconds: number;
  /** Per beat: semitones above A3 that sound together. */
  chords: readonly (readonly number[])[];
  wave: OscillatorType;
  /** How long a note rings, in beats. */
  ring: number;
}

const LOOPS = {
  /** Broken ninth chords with a walking bass. */
  jazz: {
    beatSeconds: 0.42,
    chords: [
      [-19, 3, 7],
      [-12, 10],
      [-15, 5, 8],
      [-12, 12],
      [-17, 2, 5],
      [-10, 9],
      [-12, 4, 7],
      [-7, 11],
    ],
    wave: 'triangle',
    ring: 0.9,
  },
  /** Slow open fifths. */
  calm: {
    beatSeconds: 1.1,
    chords: [
      [-12, 0, 7],
      [-9, 3, 10],
      [-14, -2, 5],
      [-12, 0, 12],
    ],
    wave: 'sine',
    ring: 2.4,
  },
} as const satisfies Record<string, Loop>;

const A3_HERTZ = 220;
const START_VOLUME = 0.4;
/** Notes are planned so far ahead of their time that a busy page does not delay them. */
const AHEAD_SECONDS = 0.6;
const PLAN_EVERY_MS = 200;

export const playing = createStore<Playing | null>(null);

let context: AudioContext | undefined;
let volume: GainNode | undefined;
let timer: ReturnType<typeof setInterval> | undefined;
let beat = 0;
let nextAt = 0;

/** Begins a track and tells the agent what is heard. */
export async function playTrack(track: string): Promise<unknown> {
  const loop = /calm|ambient|slow|quiet|relax|sleep|classic|piano|静|癒|穏/i.test(track) ? 'calm' : 'jazz';
  const before = playing.get();
  playing.set({ track, loop, isPaused: false, volume: before?.volume ?? START_VOLUME });
  const isHeard = await start(loop);
  if (!isHeard) playing.set((now) => now && { ...now, isPaused: true });
  return { success: true, track, loop, ...(!isHeard && { note: 'the browser waits for the user to press play' }) };
}

export async function togglePause(): Promise<void> {
  const now = playing.get();
  if (now === null) return;
  if (now.isPaused) await start(now.loop);
  else await context?.suspend();
  playing.set({ ...now, isPaused: !now.isPaused });
}

export function setVolume(value: number): void {
  playing.set((now) => now && { ...now, volume: value });
  if (volume && context) volume.gain.setTargetAtTime(value, context.currentTime, 0.05);
}

export function stopMusic(): void {
  playing.set(null);
  clearInterval(timer);
  timer = undefined;
  void context?.close();
  context = undefined;
}

/** Returns whether the browser lets it sound: without a gesture of the user's it may not. */
async function start(loop: keyof typeof LOOPS): Promise<boolean> {
  if (context === undefined) {
    context = new AudioContext();
    volume = new GainNode(context, { gain: playing.get()?.volume ?? START_VOLUME });
    volume.connect(context.destination);
  }
  // A context that may not sound never answers.
  await Promise.race([context.resume(), new Promise((resolve) => setTimeout(resolve, 300))]);
  clearInterval(timer);
  beat = 0;
  nextAt = context.currentTime + 0.05;
  timer = setInterval(() => plan(LOOPS[loop]), PLAN_EVERY_MS);
  plan(LOOPS[loop]);
  return context.state === 'running';
}

function plan(loop: Loop): void {
  if (context === undefined || context.state !== 'running') return;
  while (nextAt < context.currentTime + AHEAD_SECONDS) {
    for (const semitones of loop.chords[beat % loop.chords.length] ?? []) {
      note(A3_HERTZ * 2 ** (semitones / 12), nextAt, loop);
    }
    beat += 1;
    nextAt += loop.beatSeconds;
  }
}

function note(hertz: number, at: number, loop: Loop): void {
  if (context === undefined || volume === undefined) return;
  const end = at + loop.beatSeconds * loop.ring;
  const oscillator = new OscillatorNode(context, { type: loop.wave, frequency: hertz });
  const envelope = new GainNode(context, { gain: 0 });
  envelope.gain.setValueAtTime(0, at);
  envelope.gain.linearRampToValueAtTime(0.16, at + 0.03);
  envelope.gain.exponentialRampToValueAtTime(0.001, end);
  oscillator.connect(envelope).connect(volume);
  oscillator.start(at);
  oscillator.stop(end);
}
