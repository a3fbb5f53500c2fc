/** Plays speech as it comes, without gaps, and stops at once when asked to. */

import { Value, type Observable } from '../value.js';
import { AudioDevice, type AudioDeviceOptions } from './audio-device.js';
import type { OnClose } from './opening.js';
import type { PlayerState } from './player-core.js';

/** Options of {@link AudioPlayer}. */
export interface AudioPlayerOptions extends AudioDeviceOptions {
  /** How much must be there before it starts; 60 ms if left out. */
  startMs?: number | undefined;
  /** Where the sound goes; the context's destination if left out. */
  destination?: AudioNode | undefined;
}

type Report = { type: 'state'; state: PlayerState };

/** Plays the turns of a live conversation. */
export class AudioPlayer extends AudioDevice<Report> {
  readonly #options: AudioPlayerOptions;
  readonly #state = new Value<PlayerState>('idle');

  constructor(options: AudioPlayerOptions = {}) {
    super(options);
    this.#options = options;
  }

  /** Whether it plays, gathers, or has nothing to play. */
  get state(): Observable<PlayerState> {
    return this.#state;
  }

  /** Plays these samples after what is queued; those of a turn that was flushed are dropped. */
  push({ turn, samples, sampleRate }: { turn: number; samples: Int16Array; sampleRate: number }): void {
    this.post({ type: 'push', turn, samples, sampleRate });
  }

  /** Nothing more of this turn comes; what is queued is played to its end. */
  end(turn: number): void {
    this.post({ type: 'end', turn });
  }

  /** Is silent within milliseconds, and drops what still comes of this turn (of the one that plays, if left out). */
  flush(turn?: number): void {
    this.post({ type: 'flush', turn });
  }

  protected get worklet(): URL {
    return new URL('../worklets/player.worklet.js', import.meta.url);
  }

  protected async connect(context: AudioContext, onClose: OnClose): Promise<AudioWorkletNode> {
    const { startMs, destination = context.destination } = this.#options;
    const node = new AudioWorkletNode(context, 'adk-bridge-player', {
      numberOfInputs: 0,
      outputChannelCount: [1],
      processorOptions: { startMs },
    });
    node.connect(destination);
    onClose(() => this.#state.set('idle'));
    return node;
  }

  protected take({ state }: Report): void {
    this.#state.set(state);
  }
}
