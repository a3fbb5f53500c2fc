/** Records the microphone as 16 kHz mono PCM16, on the audio thread. */

import { Value, type Observable } from '../value.js';
import type { Gate, RecordedChunk } from './recorder-core.js';

/** Options of {@link AudioRecorder}. */
export interface AudioRecorderOptions {
  /** Takes each piece while the gate is open. */
  onChunk: (chunk: RecordedChunk) => void;
  /** Somebody begins to speak, or has spoken, whatever the gate. */
  onSpeech?: ((event: 'start' | 'end') => void) | undefined;
  /** The device to record from; the system's choice if left out. */
  deviceId?: string | undefined;
  /** A context to share with the player; one of its own if left out. */
  context?: AudioContext | undefined;
  /** Where the worklet lies, for bundlers that do not find it by themselves. */
  workletUrl?: string | URL | undefined;
  /** The length of a piece; 20 ms if left out. */
  chunkMs?: number | undefined;
  /** How much of what was said before the gate opened is handed out too; 300 ms if left out, 500 ms for the voice. */
  preRollMs?: number | undefined;
  /** Replaces `getUserMedia`, for other sources than a microphone. */
  getStream?: (() => Promise<MediaStream>) | undefined;
}

type Report = { type: 'level'; level: number } | { type: 'speech'; event: 'start' | 'end' } | ({ type: 'chunk' } & RecordedChunk);

/** A microphone that stays warm after it was opened: opening the gate costs nothing. */
export class AudioRecorder {
  readonly #options: AudioRecorderOptions;
  readonly #level = new Value(0);
  #opening: Promise<void> | undefined;
  #close: (() => void) | undefined;
  #port: MessagePort | undefined;
  #gate: Gate = 'closed';

  constructor(options: AudioRecorderOptions) {
    this.#options = options;
  }

  /** The microphones that there are; their names are empty before the user has allowed one. */
  static async devices(): Promise<MediaDeviceInfo[]> {
    const devices = await navigator.mediaDevices.enumerateDevices();
    return devices.filter(({ kind }) => kind === 'audioinput');
  }

  /** How loud it is, 0 to 1. */
  get level(): Observable<number> {
    return this.#level;
  }

  /** Asks for the microphone and starts to listen, with the gate closed. Call it in a click or key press. */
  open(): Promise<void> {
    this.#opening ??= this.#open().catch((error: unknown) => {
      this.close();
      throw error;
    });
    return this.#opening;
  }

  /** Hands out what is recorded: always (`open`), while somebody speaks (`voice`), or not (`closed`). */
  setGate(gate: Gate): void {
    this.#gate = gate;
    this.#port?.postMessage({ gate });
  }

  /** Lets go of the microphone. */
  close(): void {
    this.#opening = undefined;
    this.#port = undefined;
    this.#close?.();
    this.#close = undefined;
    this.#level.set(0);
  }

  async #open(): Promise<void> {
    const { deviceId, chunkMs, preRollMs, getStream } = this.#options;
    const context = this.#options.context ?? new AudioContext();
    const ends: (() => void)[] = [];
    this.#close = () => ends.forEach((end) => end());
    if (this.#options.context === undefined) ends.push(() => context.state !== 'closed' && void context.close());
    await Promise.all([
      context.audioWorklet.addModule(
        this.#options.workletUrl ?? new URL('../worklets/recorder.worklet.js', import.meta.url),
      ),
      context.resume(),
    ]);
    const stream = await (getStream?.() ?? navigator.mediaDevices.getUserMedia({ audio: constraints(deviceId) }));
    ends.push(() => stream.getTracks().forEach((track) => track.stop()));
    // Closed while the user was asked.
    if (this.#opening === undefined) return this.#closeNow(ends);
    const source = context.createMediaStreamSource(stream);
    const node = new AudioWorkletNode(context, 'adk-bridge-recorder', {
      numberOfOutputs: 0,
      processorOptions: { ...(chunkMs !== undefined && { chunkMs }), ...(preRollMs !== undefined && { preRollMs }) },
    });
    node.port.onmessage = ({ data }: MessageEvent<Report>) => this.#take(data);
    source.connect(node);
    ends.push(() => {
      source.disconnect();
      node.port.postMessage({ over: true });
      node.port.onmessage = null;
    });
    this.#port = node.port;
    this.setGate(this.#gate);
  }

  #closeNow(ends: readonly (() => void)[]): void {
    ends.forEach((end) => end());
  }

  #take(report: Report): void {
    if (report.type === 'level') this.#level.set(report.level);
    else if (report.type === 'speech') this.#options.onSpeech?.(report.event);
    else this.#options.onChunk({ samples: report.samples, preRoll: report.preRoll, last: report.last });
  }
}

/** The rate is not asked for: browsers ignore the wish, or refuse it where the device has another. */
function constraints(deviceId: string | undefined): MediaTrackConstraints {
  return {
    channelCount: 1,
    echoCancellation: true,
    noiseSuppression: true,
    autoGainControl: true,
    ...(deviceId !== undefined && { deviceId: { exact: deviceId } }),
  };
}
