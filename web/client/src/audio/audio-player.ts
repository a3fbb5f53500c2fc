/** Plays speech as it comes, without gaps, and is silent at once when it is told to. */

import { Value, type Observable } from '../value.js';
import type { PlayerState } from './player-core.js';

/** Options of {@link AudioPlayer}. */
export interface AudioPlayerOptions {
  /** A context to share with the recorder; one of its own if left out. */
  context?: AudioContext | undefined;
  /** Where the worklet lies, for bundlers that do not find it by themselves. */
  workletUrl?: string | URL | undefined;
  /** How much must be there before it starts; 60 ms if left out. */
  startMs?: number | undefined;
  /** Where the sound goes; the context's destination if left out. */
  destination?: AudioNode | undefined;
}

type Report = { type: 'state'; state: PlayerState } | { type: 'level'; level: number };

/** Plays the turns of a live conversation. */
export class AudioPlayer {
  readonly #options: AudioPlayerOptions;
  readonly #level = new Value(0);
  readonly #state = new Value<PlayerState>('idle');
  #opening: Promise<void> | undefined;
  #close: (() => void) | undefined;
  #port: MessagePort | undefined;

  constructor(options: AudioPlayerOptions = {}) {
    this.#options = options;
  }

  /** How loud it is, 0 to 1. */
  get level(): Observable<number> {
    return this.#level;
  }

  /** Whether it plays, gathers, or has nothing to play. */
  get state(): Observable<PlayerState> {
    return this.#state;
  }

  /** Makes the player ready. Call it in a click or key press: browsers start no sound otherwise. */
  open(): Promise<void> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.close();
      throw error;
    });
    return this.#opening;
  }

  /** Plays these samples after what is queued; those of a turn that was flushed are dropped. */
  push({ turn, samples, sampleRate }: { turn: number; samples: Int16Array; sampleRate: number }): void {
    this.#port?.postMessage({ type: 'push', turn, samples, sampleRate });
  }

  /** Nothing more of this turn comes; what is queued is played to its end. */
  end(turn: number): void {
    this.#port?.postMessage({ type: 'end', turn });
  }

  /** Is silent within milliseconds, and drops what still comes of this turn (of the one that plays, if left out). */
  flush(turn?: number): void {
    this.#port?.postMessage({ type: 'flush', turn });
  }

  /** Ends the sound and frees its parts. */
  close(): void {
    this.#opening = undefined;
    this.#port = undefined;
    this.#close?.();
    this.#close = undefined;
    this.#level.set(0);
    this.#state.set('idle');
  }

  async #open(): Promise<void> {
    const { startMs, workletUrl, destination } = this.#options;
    const context = this.#options.context ?? new AudioContext();
    const ends: (() => void)[] = [];
    this.#close = () => ends.forEach((end) => end());
    if (this.#options.context === undefined) ends.push(() => context.state !== 'closed' && void context.close());
    await Promise.all([
      context.audioWorklet.addModule(workletUrl ?? new URL('../worklets/player.worklet.js', import.meta.url)),
      context.resume(),
    ]);
    if (this.#opening === undefined) return;
    const node = new AudioWorkletNode(context, 'adk-bridge-player', {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: { ...(startMs !== undefined && { startMs }) },
    });
    node.port.onmessage = ({ data }: MessageEvent<Report>) => {
      if (data.type === 'state') this.#state.set(data.state);
      else this.#level.set(data.level);
    };
    node.connect(destination ?? context.destination);
    ends.push(() => {
      node.disconnect();
      node.port.postMessage({ type: 'over' });
      node.port.onmessage = null;
    });
    this.#port = node.port;
  }
}
