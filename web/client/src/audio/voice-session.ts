/**
 * Speaking with a live agent: microphone, player and connection together, by key or hands-free.
 *
 * ```
 *   off ── start() ──▶ starting ──▶ ready ◀──▶ listening      (the key is held, or somebody speaks)
 *    ▲                    │           │
 *    └── stop() ──────────┴───────────┘        a failure is `off` with its error
 * ```
 *
 * Whoever begins to speak silences the player at once. Hands-free the model decides when it is its turn; with the key the
 * user does.
 */

import type { LiveChatTransport, ModelAudio } from '../live/live-chat-transport.js';
import { Value, type Observable } from '../value.js';
import { AudioPlayer } from './audio-player.js';
import { AudioRecorder } from './audio-recorder.js';
import type { PlayerState } from './player-core.js';
import type { RecordedChunk } from './recorder-core.js';
import type { SileroDetector, SileroFiles } from './silero-detector.js';
import { VoiceGate } from './voice-gate.js';

/** How the user tells that it is their turn. */
export type TalkMode = 'push-to-talk' | 'hands-free';

/** What a {@link VoiceSession} does. */
export interface VoiceState {
  readonly status: 'off' | 'starting' | 'ready' | 'listening';
  /** Why it is off, where it failed or the microphone was taken away. */
  readonly error?: Error;
}

/** Options of {@link VoiceSession}. */
export interface VoiceSessionOptions {
  /** `push-to-talk` if left out. */
  mode?: TalkMode | undefined;
  deviceId?: string | undefined;
  /** The URLs of the worklets, for bundlers that do not find them on their own. */
  recorderWorkletUrl?: string | URL | undefined;
  playerWorkletUrl?: string | URL | undefined;
  /**
   * Lets Silero tell who speaks, hands-free. It is loaded after the start; until then, and where it cannot be had, the
   * detector of the audio thread does.
   */
  silero?: SileroFiles | undefined;
  /** Replaces the context that recorder and player share. */
  createContext?: (() => AudioContext) | undefined;
}

/** What is asked of a connection; {@link LiveChatTransport} fits. */
export type VoiceConnection = Pick<LiveChatTransport, 'on' | 'connect' | 'sendAudio' | 'audioControl'>;

/** A conversation by voice over a live connection. */
export class VoiceSession {
  readonly #live: VoiceConnection;
  readonly #options: VoiceSessionOptions;
  readonly #state = new Value<VoiceState>({ status: 'off' });
  readonly #inputLevel = new Value(0);
  readonly #outputLevel = new Value(0);
  readonly #playing = new Value<PlayerState>('idle');
  readonly #detector = new Value<'worklet' | 'silero'>('worklet');
  readonly #gate = new VoiceGate((chunk) => this.#send(chunk));
  #mode: TalkMode;
  #isMuted = false;
  #recorder: AudioRecorder | undefined;
  #silero: SileroDetector | undefined;
  #player: AudioPlayer | undefined;
  #ends: (() => void)[] = [];
  #isPressed = false;
  /** Whether the end of the utterance has not been reported yet. */
  #owesStop = false;

  constructor(live: VoiceConnection, options: VoiceSessionOptions = {}) {
    this.#live = live;
    this.#options = options;
    this.#mode = options.mode ?? 'push-to-talk';
  }

  /** What it does. */
  get state(): Observable<VoiceState> {
    return this.#state;
  }

  /** How loud the user is, 0 to 1. */
  get inputLevel(): Observable<number> {
    return this.#inputLevel;
  }

  /** How loud the model is, 0 to 1. */
  get outputLevel(): Observable<number> {
    return this.#outputLevel;
  }

  /** Whether the model is heard. */
  get playing(): Observable<PlayerState> {
    return this.#playing;
  }

  /** Who tells whether somebody speaks. */
  get detector(): Observable<'worklet' | 'silero'> {
    return this.#detector;
  }

  /** Opens microphone, player and connection. Call it in a click or key press. */
  async start(): Promise<void> {
    if (this.#state.get().status !== 'off') return;
    this.#state.set({ status: 'starting' });
    let recorder: AudioRecorder | undefined;
    try {
      const context = this.#options.createContext?.() ?? new AudioContext();
      recorder = this.#makeRecorder(context);
      const player = new AudioPlayer({ context, workletUrl: this.#options.playerWorkletUrl });
      this.#recorder = recorder;
      this.#player = player;
      this.#ends = [
        () => recorder?.close(),
        () => player.close(),
        ...this.#listen(player),
        mirror(recorder.level, this.#inputLevel),
        mirror(player.level, this.#outputLevel),
        mirror(player.state, this.#playing),
        () => context.state !== 'closed' && void context.close(),
      ];
      this.#live.connect();
      await Promise.all([recorder.open(), player.open()]);
    } catch (error) {
      if (this.#recorder === recorder) this.#end(error instanceof Error ? error : new Error(String(error)));
      return;
    }
    if (this.#recorder !== recorder) return;
    this.#state.set({ status: 'ready' });
    this.#setGate();
    void this.#loadSilero(recorder);
  }

  /** Lets go of microphone and player; the connection stays. */
  stop(): void {
    this.#end();
  }

  /** How the user's turn is signalled, from here on. */
  setMode(mode: TalkMode): void {
    this.release();
    this.#mode = mode;
    this.#setGate();
  }

  /** Whether the microphone is heard at all; what is said meanwhile is silence. */
  setMuted(isMuted: boolean): void {
    if (isMuted) this.release();
    this.#isMuted = isMuted;
    this.#recorder?.setMuted(isMuted);
  }

  /** The user begins to speak; only with the key. */
  press(): void {
    if (this.#mode !== 'push-to-talk' || this.#isPressed || this.#isMuted || this.#state.get().status !== 'ready') return;
    this.#isPressed = true;
    this.#player?.flush();
    this.#live.audioControl('start');
    this.#owesStop = true;
    this.#state.set({ status: 'listening' });
    this.#setGate();
  }

  /** The user has spoken. */
  release(): void {
    if (!this.#isPressed) return;
    this.#isPressed = false;
    this.#state.set({ status: 'ready' });
    this.#setGate();
  }

  #makeRecorder(context: AudioContext): AudioRecorder {
    const recorder = new AudioRecorder({
      context,
      deviceId: this.#options.deviceId,
      workletUrl: this.#options.recorderWorkletUrl,
      onChunk: (chunk) => {
        if (!this.#isSilero) return this.#send(chunk);
        this.#silero?.push(chunk.samples);
        this.#gate.push(chunk);
      },
      onSpeech: (event) => {
        if (!this.#isSilero) this.#speech(event);
      },
      onEnded: () => this.#end(new Error('the microphone was disconnected')),
    });
    recorder.setMuted(this.#isMuted);
    return recorder;
  }

  #send({ samples, preRoll, last }: RecordedChunk): void {
    if (samples.length > 0) this.#live.sendAudio(samples, { preRoll, last });
    // The end is reported after the last piece.
    if (last) this.#tellStop();
  }

  #tellStop(): void {
    if (this.#owesStop) this.#live.audioControl('stop');
    this.#owesStop = false;
  }

  /** Whether Silero decides; with the key nobody has to. */
  get #isSilero(): boolean {
    return this.#mode === 'hands-free' && this.#detector.get() === 'silero';
  }

  async #loadSilero(recorder: AudioRecorder): Promise<void> {
    const { silero: files } = this.#options;
    if (files === undefined) return;
    const onStart = () => {
      this.#gate.open();
      this.#speech('start');
    };
    const onEnd = () => {
      this.#gate.close();
      this.#speech('end');
    };
    let detector: SileroDetector;
    try {
      const { SileroDetector } = await import('./silero-detector.js');
      detector = new SileroDetector({ ...files, onStart, onEnd });
      await detector.open();
    } catch {
      return; // The other detector goes on.
    }
    if (this.#recorder !== recorder) return detector.close();
    this.#silero = detector;
    this.#ends.push(() => detector.close());
    this.#detector.set('silero');
    this.#setGate();
  }

  #listen(player: AudioPlayer): (() => void)[] {
    return [
      this.#live.on('audio', (audio: ModelAudio) => player.push(audio)),
      this.#live.on('turn-end', ({ turn }) => player.end(turn)),
      this.#live.on('interrupted', ({ turn }) => player.flush(turn)),
    ];
  }

  #speech(event: 'start' | 'end'): void {
    if (this.#mode !== 'hands-free' || this.#state.get().status === 'off') return;
    if (event === 'start') this.#player?.flush();
    this.#state.set({ status: event === 'start' ? 'listening' : 'ready' });
  }

  #setGate(): void {
    const byVoice = this.#isSilero ? 'open' : this.#mode === 'hands-free' ? 'voice' : 'closed';
    this.#gate.close();
    this.#recorder?.setGate(this.#isPressed ? 'open' : byVoice);
  }

  #end(error?: Error): void {
    this.release();
    this.#recorder = undefined;
    this.#player = undefined;
    this.#silero = undefined;
    this.#detector.set('worklet');
    for (const end of this.#ends.splice(0)) end();
    this.#tellStop();
    this.#state.set(error === undefined ? { status: 'off' } : { status: 'off', error });
  }
}

function mirror<T>(from: Observable<T>, to: Value<T>): () => void {
  return from.subscribe(() => to.set(from.get()));
}
