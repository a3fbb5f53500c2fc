/** Keeps two things right that `Chat` leaves to its transport: failed sends, and a resume that finds nothing too late. */

import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai';

/** The same transport; `failed` is called when a request was not answered to its end. */
export function guarded<Message extends UIMessage>(
  inner: ChatTransport<Message>,
  failed: () => void,
): ChatTransport<Message> {
  let sends = 0;
  return {
    // Every resume of the bridge holds the message from its first chunk.
    resumeStreamIsReplay: true,
    sendMessages: async (request) => {
      sends += 1;
      try {
        return watched(await inner.sendMessages(request), failed);
      } catch (error) {
        failed();
        throw error;
      }
    },
    reconnectToStream: async (request) => {
      const sendsBefore = sends;
      const stream = await inner.reconnectToStream(request);
      // "Nothing to resume" makes a chat `ready`, even while it streams what was sent in the meantime.
      if (stream === null && sends > sendsBefore) await aborted(request.abortSignal);
      return stream;
    },
  } as ChatTransport<Message>;
}

function aborted(signal: AbortSignal | undefined): Promise<void> {
  // Versions that hand over no signal cannot wait for it.
  if (signal === undefined || signal.aborted) return Promise.resolve();
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(), { once: true }));
}

function watched(stream: ReadableStream<UIMessageChunk>, failed: () => void): ReadableStream<UIMessageChunk> {
  const reader = stream.getReader();
  return new ReadableStream({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (done) controller.close();
        else controller.enqueue(value);
      } catch (error) {
        failed();
        controller.error(error);
      }
    },
    cancel: (reason) => reader.cancel(reason),
  });
}
