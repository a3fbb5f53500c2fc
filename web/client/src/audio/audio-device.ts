/** What recorder and player share: a worklet on the audio thread that is opened, spoken with in messages, and closed. */

import { Value, type Observable } from '../value.js';
import { Opening, type OnClose } from './opening.js';

/** The options of every device. */
export interface AudioDeviceOptions {
  /** A context to share with another device; one of its own if left out. */
  context?: AudioContext | undefined;
  /** The URL of the worklet, for bundlers that do not find it on their own. */
  workletUrl?: string | URL | undefined;
}

/** A part of the browser's audio, with a worklet behind it. */
export abstract class AudioDevice<Report extends { readonly type: string }> {
  readonly #options: AudioDeviceOptions;
  readonly #level = new Value(0);
  readonly #opening = new Opening();
  #port: MessagePort | undefined;

  constructor(options: AudioDeviceOptions) {
    this.#options = options;
  }

  /** How loud it is, 0 to 1. */
  get level(): Observable<number> {
    return this.#level;
  }

  /** Makes the device ready. Call it in a click or key press: browsers start no sound otherwise. */
  open(): Promise<void> {
    return this.#opening.open((onClose, signal) => this.#open(onClose, signal));
  }

  /** Lets go of everything; it can be opened again. */
  close(): void {
    this.#opening.close();
  }

  /**
   * The URL of the worklet relative to this library; written out in each device, because bundlers look for it there.
   */
  protected abstract readonly worklet: URL;

  /** Makes the worklet's node and connects it. */
  protected abstract connect(context: AudioContext, onClose: OnClose): Promise<AudioWorkletNode>;

  /** Handles messages of the worklet other than the level. */
  protected abstract take(report: Report): void;

  /** Tells the worklet something; nothing while it is not open. */
  protected post(order: object): void {
    this.#port?.postMessage(order);
  }

  async #open(onClose: OnClose, signal: AbortSignal): Promise<void> {
    const { context = new AudioContext(), workletUrl = this.worklet } = this.#options;
    if (context !== this.#options.context) onClose(() => context.state !== 'closed' && void context.close());
    // Left out of pages that a browser does not trust, as is the microphone.
    if (context.audioWorklet === undefined)
      throw new Error('browsers allow speech only on pages served over HTTPS or from this machine');
    await Promise.all([context.audioWorklet.addModule(workletUrl), context.resume()]);
    signal.throwIfAborted();
    const node = await this.connect(context, onClose);
    const { port } = node;
    onClose(() => {
      node.disconnect();
      port.postMessage({ type: 'over' });
      port.onmessage = null;
    });
    signal.throwIfAborted();
    port.onmessage = ({ data }: MessageEvent<Report | { type: 'level'; level: number }>) => {
      if (data.type === 'level') this.#level.set((data as { level: number }).level);
      else this.take(data as Report);
    };
    this.#port = port;
    onClose(() => {
      this.#port = undefined;
      this.#level.set(0);
    });
  }
}
