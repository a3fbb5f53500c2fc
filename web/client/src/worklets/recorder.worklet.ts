/** The recorder's part on the audio thread: mixes to one channel and hands on what {@link RecorderCore} makes of it. */

import { RecorderCore, type Gate } from '../audio/recorder-core.js';

interface RecorderOptions {
  chunkMs?: number;
  preRollMs?: number;
  isMuted?: boolean;
}

type Order = { type: 'gate'; gate: Gate } | { type: 'mute'; isMuted: boolean } | { type: 'over' };

class RecorderProcessor extends AudioWorkletProcessor {
  readonly #core: RecorderCore;
  #isOver = false;

  constructor({ processorOptions: { isMuted = false, ...options } = {} }: { processorOptions?: RecorderOptions }) {
    super();
    this.#core = new RecorderCore({
      sampleRate,
      ...options,
      onChunk: (chunk) => this.port.postMessage({ type: 'chunk', ...chunk }, [chunk.samples.buffer]),
      onLevel: (level) => this.port.postMessage({ type: 'level', level }),
      onSpeech: (event) => this.port.postMessage({ type: 'speech', event }),
    });
    this.#core.isMuted = isMuted;
    this.port.onmessage = ({ data }: MessageEvent<Order>) => {
      if (data.type === 'gate') this.#core.gate = data.gate;
      else if (data.type === 'mute') this.#core.isMuted = data.isMuted;
      else this.#isOver = true;
    };
  }

  process([channels = []]: Float32Array[][]): boolean {
    const first = channels[0];
    if (first !== undefined) this.#core.push(channels.length === 1 ? first : mixed(channels));
    return !this.#isOver;
  }
}

function mixed(channels: readonly Float32Array[]): Float32Array {
  const out = new Float32Array(channels[0]?.length ?? 0);
  for (const channel of channels) {
    for (let index = 0; index < out.length; index += 1) {
      out[index] = (out[index] as number) + (channel[index] as number) / channels.length;
    }
  }
  return out;
}

registerProcessor('adk-bridge-recorder', RecorderProcessor as never);
