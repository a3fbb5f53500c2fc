/** Keeps two things right that `Chat` leaves to its transport: failed sends, and a resume that a send has overtaken. */

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
      if (sends === sendsBefore) return stream;
      // What was sent in the meantime brings the turn. A second stream of it would be folded over what the page has done
      // with the first, and "nothing to resume" would make the chat `ready` while it streams.
      await Promise.all([stream?.cancel().catch(() => {}), aborted(request.abortSignal)]);
      return null;
    },
  } as ChatTransport<Message>;
}

/** Without a signal (AI SDK 6.0.0) it never comes, which leaves nothing behind but a promise that nobody waits for. */
function aborted(signal: AbortSignal | undefined): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => signal?.addEventListener('abort', () => resolve(), { once: true }));
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
