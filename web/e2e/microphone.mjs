// A microphone that says what a test wants, in the tones that the scripted model understands.

/** Runs in the page before its own scripts: `window.speak(text)` is heard by whoever records, and resolves at its end. */
export function installMicrophone() {
  // The device is Chromium's own fake; its beeps are replaced inside the graph that records. Between two graphs samples are
  // lost when the machine is busy, and then the model hears other words.
  const inputs = [];
  AudioContext.prototype.createMediaStreamSource = function createMediaStreamSource() {
    const input = new GainNode(this);
    // A room is never quite silent.
    const room = new ConstantSourceNode(this, { offset: 1e-4 });
    room.connect(input);
    room.start();
    inputs.push(input);
    return input;
  };

  const BURST = 0.04;
  const GAP = 0.02;
  const AMPLITUDE = 0.2;
  // Longer than what a recorder keeps of the time before it is asked.
  const PAUSE = 0.6;
  window.speak = async (text) => {
    const input = inputs.findLast(({ context }) => context.state !== 'closed');
    if (input === undefined) throw new Error('nobody records');
    const { context } = input;
    const bytes = [2, ...new TextEncoder().encode(text), 3];
    // Written sample by sample: started and stopped oscillators would blur the edges.
    const rate = context.sampleRate;
    const length = Math.ceil((bytes.length * (BURST + GAP) + PAUSE) * rate);
    const buffer = context.createBuffer(1, length, rate);
    const samples = buffer.getChannelData(0);
    bytes.forEach((byte, index) => {
      const start = Math.round(index * (BURST + GAP) * rate);
      const low = 450 + 75 * (byte & 15);
      const high = 1800 + 75 * (byte >> 4);
      for (let at = 0; at < BURST * rate; at += 1) {
        const time = (2 * Math.PI * at) / rate;
        samples[start + at] = AMPLITUDE * (Math.sin(low * time) + Math.sin(high * time));
      }
    });
    const source = new AudioBufferSourceNode(context, { buffer });
    source.connect(input);
    source.start();
    await new Promise((resolve) => (source.onended = resolve));
  };
}
