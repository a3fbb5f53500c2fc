/** What an audio worklet finds around itself, as far as it is used here. */

declare const sampleRate: number;

declare class AudioWorkletProcessor {
  readonly port: MessagePort;
}

declare function registerProcessor(
  name: string,
  processor: new (options: { processorOptions?: never }) => AudioWorkletProcessor,
): void;
