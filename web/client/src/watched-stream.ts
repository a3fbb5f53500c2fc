/** A stream that somebody looks on at while another one reads it. */

/** What the onlooker is notified of. */
export interface Onlooker<T> {
  chunk?: (chunk: T) => void;
  /** Once, at the end: whether the stream ended, failed, or was cancelled by its reader. */
  over: (how: 'ended' | 'failed' | 'cancelled', error?: unknown) => void;
}

/** The same stream; the onlooker is notified of everything that passes. */
export function watched<T>(stream: ReadableStream<T>, onlooker: Onlooker<T>): ReadableStream<T> {
  const reader = stream.getReader();
  let isCancelled = false;
  return new ReadableStream<T>({
    async pull(controller) {
      try {
        const { done, value } = await reader.read();
        if (isCancelled) return;
        if (done) {
          onlooker.over('ended');
          controller.close();
        } else {
          onlooker.chunk?.(value);
          controller.enqueue(value);
        }
      } catch (error) {
        if (isCancelled) return;
        onlooker.over('failed', error);
        controller.error(error);
      }
    },
    cancel(reason) {
      isCancelled = true;
      onlooker.over('cancelled');
      return reader.cancel(reason);
    },
  });
}
