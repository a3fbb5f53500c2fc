/** Handles two things that `Chat` leaves to its transport: failed sends, and a resume during a send. */

import type { ChatTransport, UIMessage } from 'ai';

import { watched } from './watched-stream.js';

/** The same transport; `failed` is called when a request was not answered to its end. */
export function guarded<Message extends UIMessage>(inner: ChatTransport<Message>, failed: () => void): ChatTransport<Message> {
  let sends = 0;
  let answered = 0;
  const over = (how: string) => {
    answered += 1;
    if (how === 'failed') failed();
  };
  return {
    // Every resume of the bridge holds the message from its first chunk.
    resumeStreamIsReplay: true,
    sendMessages: async (request) => {
      sends += 1;
      try {
        return watched(await inner.sendMessages(request), { over });
      } catch (error) {
        over('failed');
        throw error;
      }
    },
    reconnectToStream: async (request) => {
      const answeredBefore = answered;
      const answer = inner.reconnectToStream(request);
      const stream = await answer.catch(() => null);
      if (sends === answeredBefore) return answer;
      // The send brings the turn. A second stream of it would be folded over what the page has done with the first, and
      // "nothing to resume" would make the chat `ready` while it streams: the resume stays without an answer.
      await stream?.cancel().catch(() => {});
      await aborted(request.abortSignal);
      return null;
    },
  } as ChatTransport<Message>;
}

/** Without a signal (AI SDK 6.0.0) it never comes, which leaves nothing behind but a promise that nobody holds. */
function aborted(signal: AbortSignal | undefined): Promise<void> {
  if (signal?.aborted) return Promise.resolve();
  return new Promise((resolve) => signal?.addEventListener('abort', () => resolve(), { once: true }));
}
