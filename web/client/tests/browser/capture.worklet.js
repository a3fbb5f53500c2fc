// Hands out every sample that passes, with the number of the audio clock's frame that it belongs to.
registerProcessor(
  'capture',
  class extends AudioWorkletProcessor {
    constructor() {
      super();
      this.port.onmessage = () => this.port.postMessage('end');
    }

    process([input], [output]) {
      const channel = input[0];
      if (channel !== undefined) {
        this.port.postMessage({ frame: currentFrame, samples: channel.slice() });
        output[0]?.set(channel);
      }
      return true;
    }
  },
);
