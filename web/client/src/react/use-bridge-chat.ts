/** One hook for a chat with the bridge: the AI SDK's `useChat` with transport, predicate and client tools in place. */

import { Chat, useChat, type UseChatHelpers } from '@ai-sdk/react';
import type { ChatInit, UIMessage } from 'ai';
import { useCallback, useEffect, useRef, useState, useSyncExternalStore } from 'react';

import { stopTurn } from '../bridge-requests.js';
import { buildUseChatOptions, type BuildUseChatOptions } from '../build-use-chat-options.js';
import type { Observable } from '../value.js';

/** Options of {@link useBridgeChat}; those that make up the connection count when the chat's `id` changes. */
export type UseBridgeChatOptions<Message extends UIMessage = UIMessage> = BuildUseChatOptions<Message> &
  Pick<ChatInit<Message>, 'onData' | 'onError' | 'onFinish' | 'generateId'> & {
    id: string;
    /** Whether a turn that runs on the server is picked up at mount; true if left out. */
    resume?: boolean;
    /** Milliseconds between two renderings while chunks come in; each chunk renders if left out. */
    throttleMs?: number;
  };

/** What {@link useBridgeChat} returns: all of `useChat`, and the bridge's own. */
export interface BridgeChat<Message extends UIMessage = UIMessage> extends UseChatHelpers<Message> {
  /** Ids of the client tools' calls that run. */
  readonly runningTools: readonly string[];
  /** Aborts a running client tool (or all), which is reported to the model as cancelled. */
  readonly cancelTool: (toolCallId?: string) => void;
}

/** How long a stopped turn may take to end by itself before the connection to it is cut. */
const STOP_GRACE_MS = 1500;

/**
 * A chat with the bridge. `stop` ends the turn on the server too; unmounting only leaves it, and the next mount picks it
 * up again.
 */
export function useBridgeChat<Message extends UIMessage = UIMessage>(
  options: UseBridgeChatOptions<Message>,
): BridgeChat<Message> {
  const latest = useRef(options);
  latest.current = options;
  const { id, clientTools, resume = true, throttleMs } = options;

  const chat = useChatInstance(latest, id);
  const helpers = useChat<Message>({
    chat,
    resume,
    ...(throttleMs !== undefined && { experimental_throttle: throttleMs }),
  });
  const { messages, status } = helpers;

  useEffect(() => {
    // What a tool throws is reported to the model; a rejection here is the chat's own, which shows it as its error.
    clientTools?.run(chat).catch(() => {});
  }, [chat, clientTools, messages, status]);

  // Leaves the turn; the server runs it on.
  useEffect(() => () => void chat.stop(), [chat]);

  const stop = useCallback(() => stopEverywhere(chat, latest.current), [chat]);
  const runningTools = useObservable(clientTools?.running ?? NONE);
  const cancelTool = useCallback((toolCallId?: string) => clientTools?.cancel(toolCallId), [clientTools]);
  return { ...helpers, id, stop, runningTools, cancelTool };
}

function useChatInstance<Message extends UIMessage>(
  latest: { readonly current: UseBridgeChatOptions<Message> },
  id: string,
): Chat<Message> {
  const create = () => {
    const { generateId } = latest.current;
    return new Chat<Message>({
      ...buildUseChatOptions(latest.current),
      ...(generateId !== undefined && { generateId }),
      onData: (part) => latest.current.onData?.(part),
      onError: (error) => latest.current.onError?.(error),
      onFinish: (event) => latest.current.onFinish?.(event),
    });
  };
  const [held, setHeld] = useState(() => ({ id, chat: create() }));
  if (held.id === id) return held.chat;
  const next = { id, chat: create() };
  setHeld(next);
  return next.chat;
}

/** Ends the turn on the server, whose stream then ends by itself; what does not end in time is cut here. */
async function stopEverywhere<Message extends UIMessage>(
  chat: Chat<Message>,
  options: UseBridgeChatOptions<Message>,
): Promise<void> {
  options.clientTools?.cancel();
  await stopTurn(options, chat.id).catch(() => chat.stop());
  const isBusy = () => chat.status === 'submitted' || chat.status === 'streaming';
  await new Promise<void>((resolve) => {
    const check = () => {
      if (isBusy()) return;
      clearTimeout(timer);
      unsubscribe();
      resolve();
    };
    const timer = setTimeout(() => {
      unsubscribe();
      resolve();
    }, STOP_GRACE_MS);
    const unsubscribe = chat['~registerStatusCallback'](check);
    check();
  });
  if (isBusy()) await chat.stop();
}

function useObservable<T>(observable: Observable<T>): T {
  return useSyncExternalStore(observable.subscribe, observable.get, observable.get);
}

const NO_IDS: readonly string[] = [];
const NONE: Observable<readonly string[]> = { get: () => NO_IDS, subscribe: () => () => {} };
