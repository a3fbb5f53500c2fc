/**
 * Lets a chat take the turns that the server begins, and send answers that were given while another turn was streamed.
 */

import type { UIMessage } from 'ai';

import type { LiveChatTransport } from './live-chat-transport.js';

/** What is asked of a chat; `Chat` of `@ai-sdk/react` fits. */
export interface FollowingChat {
  readonly messages: readonly UIMessage[];
  readonly status: string;
  resumeStream(): Promise<void>;
  /** Without a message it sends what was answered, in the name of the message that holds it. */
  sendMessage(): Promise<void>;
  /** Tell of changes; without them, call the returned `check` yourself when a turn has ended or something was answered. */
  '~registerStatusCallback'?: (listener: () => void) => () => void;
  '~registerMessagesCallback'?: (listener: () => void) => () => void;
}

/** Makes `chat` take what the server begins whenever it is free; returns how to end that. */
export function followServerTurns<Message extends UIMessage>(
  chat: FollowingChat,
  transport: LiveChatTransport<Message>,
): { check: () => void; stop: () => void } {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const isFree = () => chat.status === 'ready' || chat.status === 'error';
  const act = () => {
    timer = undefined;
    if (!isFree()) return;
    if (transport.takeOlderAnswers(chat.messages)) void chat.sendMessage();
    else if (transport.serverTurns.get() > 0) void chat.resumeStream();
  };
  const check = () => {
    // A chat that has just ended a turn may have an answer to send automatically, which goes first.
    if (isFree()) timer ??= setTimeout(act, 0);
  };
  const stops = [
    transport.attach(() => chat.messages),
    transport.serverTurns.subscribe(check),
    chat['~registerStatusCallback']?.(check),
    chat['~registerMessagesCallback']?.(check),
  ];
  check();
  const stop = () => {
    clearTimeout(timer);
    for (const end of stops) end?.();
  };
  return { check, stop };
}
