/**
 * Goes on with an answer over HTTP whose connection broke: the turn runs on at the bridge, or at another replica of it.
 *
 * The stream of a resume begins with the first chunk of the message; only what the chat does not have is passed on, so that
 * the chat notices nothing.
 */

import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai';

import { chunksOf } from './live/chunks-of.js';
import { DeliveredMessage, StepBegunAgain } from './live/delivered-message.js';
import { DEFAULT_SDK, type SdkVersion } from './sdk-version.js';

/** How long a broken answer is looked for: longer than another replica needs to take its chat over. */
const PATIENCE_MS = 30_000;
const FIRST_PAUSE_MS = 100;
const LONGEST_PAUSE_MS = 2_000;

/** How {@link resumed} finds what it goes on with. */
export interface ResumedOptions<Message extends UIMessage> {
  sdk?: SdkVersion | undefined;
  /** The stored messages of a chat. */
  load: (chatId: string) => Promise<Message[]>;
}

/** The same transport; an answer that breaks off goes on by itself. */
export function resumed<Message extends UIMessage>(
  inner: ChatTransport<Message>,
  options: ResumedOptions<Message>,
): ChatTransport<Message> {
  return {
    ...('resumeStreamIsReplay' in inner && { resumeStreamIsReplay: inner.resumeStreamIsReplay }),
    reconnectToStream: (request) => inner.reconnectToStream(request),
    sendMessages: async (request) => {
      const stream = await inner.sendMessages(request);
      const last = request.messages.at(-1);
      const continues = last?.role === 'assistant' ? last : undefined;
      const answer = new BrokenAnswer(inner, options, request, continues);
      return answer.readable(stream);
    },
  } as ChatTransport<Message>;
}

type Request<Message extends UIMessage> = Parameters<ChatTransport<Message>['sendMessages']>[0];

class BrokenAnswer<Message extends UIMessage> {
  readonly #inner: ChatTransport<Message>;
  readonly #options: ResumedOptions<Message>;
  readonly #request: Request<Message>;
  readonly #delivered: DeliveredMessage;
  #messageId: string | undefined;
  #isOver = false;

  constructor(
    inner: ChatTransport<Message>,
    options: ResumedOptions<Message>,
    request: Request<Message>,
    continues: Message | undefined,
  ) {
    this.#inner = inner;
    this.#options = options;
    this.#request = request;
    this.#delivered = new DeliveredMessage(continues, options.sdk);
    this.#delivered.begin(false);
  }

  readable(first: ReadableStream<UIMessageChunk>): ReadableStream<UIMessageChunk> {
    let reader = first.getReader();
    return new ReadableStream<UIMessageChunk>({
      pull: async (controller) => {
        for (;;) {
          const read = await reader.read().catch((error: unknown) => ({ error }));
          if (!('error' in read)) {
            if (read.done) return controller.close();
            const news = this.#take(read.value);
            for (const chunk of news) controller.enqueue(chunk);
            if (news.length > 0) return;
            continue;
          }
          const next = await this.#next(read.error);
          if (next === undefined) return controller.error(read.error);
          reader = next.getReader();
        }
      },
      cancel: (reason) => reader.cancel(reason),
    });
  }

  #take(chunk: UIMessageChunk): UIMessageChunk[] {
    if (chunk.type === 'start') this.#messageId = chunk.messageId ?? this.#messageId;
    this.#isOver ||= chunk.type === 'finish' || chunk.type === 'abort' || chunk.type === 'error';
    return this.#delivered.take(chunk);
  }

  /** The stream that goes on with the answer, if there is one. */
  async #next(error: unknown): Promise<ReadableStream<UIMessageChunk> | undefined> {
    const { abortSignal, messages: _, ...request } = this.#request;
    const isAborted = () => abortSignal?.aborted === true;
    if (this.#isOver) return ended();
    const isLost = this.#messageId !== undefined && !(error instanceof StepBegunAgain);
    if (!isLost || isAborted()) return undefined;
    const until = Date.now() + PATIENCE_MS;
    for (let pause = FIRST_PAUSE_MS; Date.now() < until; pause = Math.min(2 * pause, LONGEST_PAUSE_MS)) {
      await waited(pause, abortSignal);
      if (isAborted()) return undefined;
      try {
        const resume = { ...request, ...(abortSignal !== undefined && { abortSignal }) };
        const stream = (await this.#inner.reconnectToStream(resume)) ?? (await this.#stored(request.chatId));
        if (stream !== undefined) {
          this.#delivered.begin(true);
          return stream;
        }
      } catch {
        // The bridge is not there yet, or another replica has not taken the chat over.
      }
    }
    return undefined;
  }

  /** The message as it is stored, once it has ended or waits. */
  async #stored(chatId: string): Promise<ReadableStream<UIMessageChunk> | undefined> {
    const messages = await this.#options.load(chatId);
    const message = messages.find(({ id }) => id === this.#messageId);
    if (message === undefined) return undefined;
    const chunks = [
      { type: 'start', messageId: message.id, ...(message.metadata !== undefined && { messageMetadata: message.metadata }) },
      ...chunksOf(message, this.#options.sdk ?? DEFAULT_SDK),
      { type: 'finish' },
    ] as UIMessageChunk[];
    return streamOf(chunks);
  }
}

function ended(): ReadableStream<UIMessageChunk> {
  return streamOf([]);
}

function streamOf(chunks: readonly UIMessageChunk[]): ReadableStream<UIMessageChunk> {
  return new ReadableStream({
    start: (controller) => {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
}

function waited(ms: number, signal: AbortSignal | undefined): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(finish, ms);
    function finish() {
      clearTimeout(timer);
      signal?.removeEventListener('abort', finish);
      resolve();
    }
    signal?.addEventListener('abort', finish, { once: true });
  });
}
