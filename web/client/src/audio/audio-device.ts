/**
 * What recorder and player share: a worklet on the audio thread, opened once, spoken with in messages, closed with all
 * that belongs to it.
 *
 * ```
 *            open()                all there
 *   closed ─────────▶ opening ─────────────▶ open
 *     ▲                  │ failed, close()    │ close()
 *     └──────────────────┴────────────────────┘ what has been opened so far ends; what comes too late ends at once
 * ```
 */

import { Value, type Observable } from '../value.js';

/** What every device is told at its making. */
export interface AudioDeviceOptions {
  /** A context to share with another device; one of its own if left out. */
  context?: AudioContext | undefined;
  /** Where the worklet lies, for bundlers that do not find it by themselves. */
  workletUrl?: string | URL | undefined;
}

/** Runs `end` when the device is closed, or at once where it is closed already. */
export type OnClose = (end: () => void) => void;

/** A part of the browser's audio, with a worklet behind it. */
export abstract class AudioDevice<Report extends { readonly type: string }> {
  readonly #options: AudioDeviceOptions;
  readonly #level = new Value(0);
  #life: AbortController | undefined;
  #opening: Promise<void> | undefined;
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
    if (this.#opening !== undefined) return this.#opening;
    const life = new AbortController();
    this.#life = life;
    this.#opening = this.#open(life.signal).catch((error: unknown) => {
      // Who has closed it asks no more what became of it.
      if (life.signal.aborted) return;
      this.close();
      throw error;
    });
    return this.#opening;
  }

  /** Lets go of everything; it can be opened again. */
  close(): void {
    this.#life?.abort();
    this.#opening = undefined;
    this.#port = undefined;
    this.#level.set(0);
  }

  /** Where the worklet lies beside this library; written out in each device, because bundlers look for it there. */
  protected abstract readonly worklet: URL;

  /** Makes the worklet's node and connects it. */
  protected abstract connect(context: AudioContext, onClose: OnClose): Promise<AudioWorkletNode>;

  /** Takes what the worklet tells beside the level. */
  protected abstract take(report: Report): void;

  /** Tells the worklet something; nothing while it is not open. */
  protected post(order: object): void {
    this.#port?.postMessage(order);
  }

  async #open(signal: AbortSignal): Promise<void> {
    const onClose: OnClose = (end) => (signal.aborted ? end() : signal.addEventListener('abort', end));
    const { context = new AudioContext(), workletUrl = this.worklet } = this.#options;
    if (context !== this.#options.context) onClose(() => context.state !== 'closed' && void context.close());
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
  }
}
