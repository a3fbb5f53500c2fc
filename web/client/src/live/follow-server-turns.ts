/** Lets a chat take the turns that the server begins: answers to speech, and what happens while nobody asks. */

import type { UIMessage } from 'ai';

import type { LiveChatTransport } from './live-chat-transport.js';

/** What is asked of a chat; `Chat` of `@ai-sdk/react` fits. */
export interface FollowingChat {
  readonly messages: readonly UIMessage[];
  readonly status: string;
  resumeStream(): Promise<void>;
  /** Tells of changes of the status; without it, call the returned `check` yourself when a turn has ended. */
  '~registerStatusCallback'?: (listener: () => void) => () => void;
}

/** Makes `chat` resume whenever the server has begun a turn and the chat is free; returns how to end that. */
export function followServerTurns<Message extends UIMessage>(
  chat: FollowingChat,
  transport: LiveChatTransport<Message>,
): { check: () => void; stop: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const isFree = () => chat.status === 'ready' || chat.status === 'error';
  const check = () => {
    clearTimeout(timer);
    if (transport.serverTurns.get() === 0) return;
    // A chat that has just ended a turn may have an answer to send by itself, which goes first.
    timer = setTimeout(() => {
      if (isFree() && transport.serverTurns.get() > 0) void chat.resumeStream();
    }, 0);
  };
  const stops = [
    transport.attach(() => chat.messages),
    transport.serverTurns.subscribe(check),
    chat['~registerStatusCallback']?.(check),
  ];
  check();
  const stop = () => {
    clearTimeout(timer);
    for (const end of stops) end?.();
  };
  return { check, stop };
}
