/** Records the microphone as 16 kHz mono PCM16, on the audio thread. */

import { AudioDevice, type AudioDeviceOptions } from './audio-device.js';
import type { OnClose } from './opening.js';
import type { Gate, RecordedChunk } from './recorder-core.js';

/** Options of {@link AudioRecorder}. */
export interface AudioRecorderOptions extends AudioDeviceOptions {
  /** Takes each piece while the gate is open. */
  onChunk: (chunk: RecordedChunk) => void;
  /** Somebody begins to speak, or has spoken, whatever the gate. */
  onSpeech?: ((event: 'start' | 'end') => void) | undefined;
  /** The device to record from; the system's choice if left out. */
  deviceId?: string | undefined;
  /** The length of a piece; 20 ms if left out. */
  chunkMs?: number | undefined;
  /** How much of what was said before the gate opened is handed out too; 300 ms if left out, 500 ms for the voice. */
  preRollMs?: number | undefined;
  /** The user or the system has taken the microphone away; the recorder is closed. */
  onEnded?: (() => void) | undefined;
  /** Replaces `getUserMedia`, for other sources than a microphone. */
  getStream?: (() => Promise<MediaStream>) | undefined;
}

type Report = { type: 'speech'; event: 'start' | 'end' } | ({ type: 'chunk' } & RecordedChunk);

/** A microphone that stays warm after it was opened: opening the gate costs nothing. */
export class AudioRecorder extends AudioDevice<Report> {
  readonly #options: AudioRecorderOptions;
  #gate: Gate = 'closed';
  #isMuted = false;

  constructor(options: AudioRecorderOptions) {
    super(options);
    this.#options = options;
  }

  /** The microphones that there are; their names are empty before the user has allowed one. */
  static async devices(): Promise<MediaDeviceInfo[]> {
    const devices = await navigator.mediaDevices.enumerateDevices();
    return devices.filter(({ kind }) => kind === 'audioinput');
  }

  /** Asks for the microphone and starts to listen. Call it in a click or key press. */
  override async open(): Promise<void> {
    await super.open();
    this.setGate(this.#gate);
    this.setMuted(this.#isMuted);
  }

  /** Hands out what is recorded: always (`open`), while somebody speaks (`voice`), or not (`closed`). */
  setGate(gate: Gate): void {
    this.#gate = gate;
    this.post({ type: 'gate', gate });
  }

  /** Whether silence is recorded, whatever is said. */
  setMuted(isMuted: boolean): void {
    this.#isMuted = isMuted;
    this.post({ type: 'mute', isMuted });
  }

  protected get worklet(): URL {
    return new URL('../worklets/recorder.worklet.js', import.meta.url);
  }

  protected async connect(context: AudioContext, onClose: OnClose): Promise<AudioWorkletNode> {
    const { deviceId, chunkMs, preRollMs, getStream } = this.#options;
    const stream = await (getStream?.() ?? navigator.mediaDevices.getUserMedia({ audio: constraints(deviceId) }));
    onClose(() => stream.getTracks().forEach((track) => track.stop()));
    stream.getTracks()[0]?.addEventListener('ended', () => {
      this.close();
      this.#options.onEnded?.();
    });
    const source = context.createMediaStreamSource(stream);
    onClose(() => source.disconnect());
    const node = new AudioWorkletNode(context, 'adk-bridge-recorder', {
      numberOfOutputs: 0,
      // With its first sample: an order on the way would come behind it.
      processorOptions: { chunkMs, preRollMs, isMuted: this.#isMuted },
    });
    source.connect(node);
    return node;
  }

  protected take(report: Report): void {
    if (report.type === 'speech') this.#options.onSpeech?.(report.event);
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
