/** Runs the Silero model in a thread of its own: frames of 512 samples in, how likely each is speech out. */

interface Tensor {
  readonly data: ArrayLike<number>;
}

/** What is used of onnxruntime-web. */
interface Runtime {
  env: { wasm: { numThreads: number; wasmPaths: string } };
  Tensor: new (type: string, data: Float32Array | BigInt64Array, dimensions: number[]) => Tensor;
  InferenceSession: {
    create(model: Uint8Array): Promise<{ run(inputs: Record<string, Tensor>): Promise<Record<string, Tensor>> }>;
  };
}

type Order = { type: 'open'; ortUrl: string; modelUrl: string } | { type: 'frame'; samples: Float32Array };

/** The model wants to see the end of the frame before. */
const CONTEXT = 64;

let listen: ((frame: Float32Array) => Promise<number>) | undefined;
/** One frame after the other: each needs the state that the one before left. */
let queue: Promise<void> = Promise.resolve();

addEventListener('message', ({ data }: MessageEvent<Order>) => {
  queue = queue
    .then(async () => {
      if (data.type === 'open') {
        listen = await load(data.ortUrl, data.modelUrl);
        postMessage({ type: 'ready' });
      } else if (listen !== undefined) {
        postMessage({ type: 'speech', probability: await listen(data.samples) });
      }
    })
    .catch((error: unknown) => postMessage({ type: 'failed', message: String(error) }));
});

async function load(ortUrl: string, modelUrl: string): Promise<(frame: Float32Array) => Promise<number>> {
  const runtime = (await import(/* @vite-ignore */ ortUrl)) as Runtime;
  runtime.env.wasm.numThreads = 1;
  runtime.env.wasm.wasmPaths = new URL('.', ortUrl).href;
  const response = await fetch(modelUrl);
  if (!response.ok) throw new Error(`the model cannot be loaded from ${modelUrl}: ${response.status}`);
  const session = await runtime.InferenceSession.create(new Uint8Array(await response.arrayBuffer()));
  const rate = new runtime.Tensor('int64', BigInt64Array.of(16_000n), []);
  let state = new runtime.Tensor('float32', new Float32Array(2 * 128), [2, 1, 128]);
  let context = new Float32Array(CONTEXT);
  return async (frame) => {
    const samples = new Float32Array(CONTEXT + frame.length);
    samples.set(context);
    samples.set(frame, CONTEXT);
    context = samples.slice(-CONTEXT);
    const input = new runtime.Tensor('float32', samples, [1, samples.length]);
    const { output, stateN } = await session.run({ input, state, sr: rate });
    state = stateN ?? state;
    return output?.data[0] ?? 0;
  };
}

export {};
