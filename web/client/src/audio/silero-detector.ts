/** Finds utterances with the Silero model: more accurate than the detector of the audio thread, and larger by far. */

import { Endpointer } from './endpointer.js';

/** Where the parts of {@link SileroDetector} lie; all of them are served by the page's own host. */
export interface SileroFiles {
  /** `ort.wasm.min.mjs` of `onnxruntime-web`, with its `.wasm` in the same directory. */
  ortUrl: string | URL;
  /** `silero_vad_v6.onnx` (or v5) of `@ricky0123/vad-web`. */
  modelUrl: string | URL;
  /** The URL of the worker, for bundlers that do not find it on their own. */
  workerUrl?: string | URL | undefined;
}

/** Options of {@link SileroDetector}. */
export interface SileroDetectorOptions extends SileroFiles {
  onStart: () => void;
  onEnd: () => void;
}

type Report = { type: 'ready' } | { type: 'speech'; probability: number } | { type: 'failed'; message: string };

/** What the model takes at a time: 32 ms at 16 kHz. */
const FRAME = 512;
/** How sure it must be that somebody begins to speak, and that they still do. */
const START_AT = 0.5;
const STAY_AT = 0.35;
/** A second of frames that the worker has not answered: a machine so slow is better served with what is new. */
const MAX_UNANSWERED = 32;

/** Tells when somebody begins to speak and has spoken. */
export class SileroDetector {
  readonly #options: SileroDetectorOptions;
  readonly #endpointer = new Endpointer({ frameMs: 32 });
  readonly #frame = new Float32Array(FRAME);
  #filled = 0;
  #worker: Worker | undefined;
  #unanswered = 0;

  constructor(options: SileroDetectorOptions) {
    this.#options = options;
  }

  /** Loads runtime and model, about 6 MB compressed; rejects where they are not to be had. */
  async open(): Promise<void> {
    const { ortUrl, modelUrl, workerUrl } = this.#options;
    const worker = new Worker(workerUrl ?? new URL('../worklets/silero.worker.js', import.meta.url), { type: 'module' });
    this.#worker = worker;
    await new Promise<void>((resolve, reject) => {
      worker.onerror = () => reject(new Error('the worker of the voice detector cannot be loaded'));
      worker.onmessage = ({ data }: MessageEvent<Report>) => {
        if (data.type === 'ready') resolve();
        else if (data.type === 'failed') reject(new Error(data.message));
        else this.#take(data.probability);
      };
      const absolute = (url: string | URL) => new URL(url, document.baseURI).href;
      worker.postMessage({ type: 'open', ortUrl: absolute(ortUrl), modelUrl: absolute(modelUrl) });
    }).catch((error: unknown) => {
      this.close();
      throw error;
    });
  }

  /** How many frames of 32 ms the model has not looked at yet; beyond 32 further ones are passed over. */
  get waiting(): number {
    return this.#unanswered;
  }

  /** Takes the next samples, 16-bit at 16 kHz. */
  push(samples: Int16Array): void {
    for (const sample of samples) {
      this.#frame[this.#filled++] = sample / 0x8000;
      if (this.#filled < FRAME) continue;
      this.#filled = 0;
      if (this.#worker === undefined || this.#unanswered >= MAX_UNANSWERED) continue;
      this.#unanswered += 1;
      this.#worker.postMessage({ type: 'frame', samples: this.#frame.slice() });
    }
  }

  /** Ends the worker. */
  close(): void {
    this.#worker?.terminate();
    this.#worker = undefined;
  }

  #take(probability: number): void {
    this.#unanswered -= 1;
    const event = this.#endpointer.take(probability >= (this.#endpointer.isSpeech ? STAY_AT : START_AT));
    if (event === 'start') this.#options.onStart();
    if (event === 'end') this.#options.onEnd();
  }
}
