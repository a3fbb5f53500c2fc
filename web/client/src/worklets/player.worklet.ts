/** The player's part on the audio thread: renders what {@link PlayerCore} has to play. */

import { levelOf } from '../audio/pcm.js';
import { PlayerCore } from '../audio/player-core.js';

/** A level about twenty times a second is enough for a meter. */
const LEVEL_EVERY_SECONDS = 0.05;

type Order =
  | { type: 'push'; turn: number; samples: Int16Array; sampleRate: number }
  | { type: 'end' | 'flush'; turn?: number }
  | { type: 'over' };

class PlayerProcessor extends AudioWorkletProcessor {
  readonly #core: PlayerCore;
  #isOver = false;
  #sinceLevel = 0;
  #loudest = 0;

  constructor({ processorOptions = {} }: { processorOptions?: { startMs?: number } }) {
    super();
    this.#core = new PlayerCore({
      sampleRate,
      ...processorOptions,
      onState: (state) => this.port.postMessage({ type: 'state', state }),
    });
    this.port.onmessage = ({ data }: MessageEvent<Order>) => this.#obey(data);
  }

  process(_inputs: Float32Array[][], [channels = []]: Float32Array[][]): boolean {
    const [first, ...others] = channels;
    if (first === undefined) return !this.#isOver;
    this.#core.render(first);
    for (const channel of others) channel.set(first);
    this.#measure(first);
    return !this.#isOver;
  }

  #obey(order: Order): void {
    if (order.type === 'push') this.#core.push(order.turn, order.samples, order.sampleRate);
    else if (order.type === 'end') this.#core.end(order.turn ?? -1);
    else if (order.type === 'flush') this.#core.flush(order.turn);
    else this.#isOver = true;
  }

  #measure(samples: Float32Array): void {
    this.#loudest = Math.max(this.#loudest, levelOf(samples));
    this.#sinceLevel += samples.length;
    if (this.#sinceLevel < LEVEL_EVERY_SECONDS * sampleRate) return;
    this.port.postMessage({ type: 'level', level: this.#loudest });
    this.#sinceLevel = 0;
    this.#loudest = 0;
  }
}

registerProcessor('adk-bridge-player', PlayerProcessor as never);
