/** Puts transport and predicate together into options for `useChat` or `new Chat`. */

import type { ChatTransport, UIMessage } from 'ai';

import type { ClientTools } from './client-tools.js';
import { guarded } from './guarded-transport.js';
import { createSendAutomaticallyWhen, type SendAutomaticallyWhen } from './send-automatically-when.js';
import { createSseChatTransport, type SseChatTransportOptions } from './sse-chat-transport.js';

/** Options of {@link buildUseChatOptions}. */
export interface BuildUseChatOptions<Message extends UIMessage = UIMessage> extends SseChatTransportOptions {
  /** `sse` is HTTP, one request per turn. */
  mode: 'sse';
  /** The chat's id; the AI SDK makes one up if it is left out. */
  id?: string | undefined;
  /** The messages to begin with, as `loadMessages` gives them. */
  messages?: Message[] | undefined;
  /** The tools that this front end runs. */
  clientTools?: ClientTools | undefined;
}

/** Options for `useChat` and `new Chat` of AI SDK v6 and v7. */
export interface BridgeChatInit<Message extends UIMessage = UIMessage> {
  id?: string;
  messages?: Message[];
  transport: ChatTransport<Message>;
  sendAutomaticallyWhen: SendAutomaticallyWhen;
}

/**
 * Makes the options that a chat with the bridge needs. Keep the result for as long as the chat (in React: `useState` or
 * `useMemo`): the predicate remembers what it has sent.
 */
export function buildUseChatOptions<Message extends UIMessage = UIMessage>(
  options: BuildUseChatOptions<Message>,
): BridgeChatInit<Message> {
  const { id, messages, clientTools } = options;
  const predicate = createSendAutomaticallyWhen(clientTools === undefined ? {} : { clientTools });
  const transport = createSseChatTransport<Message>(options);
  return {
    ...(id !== undefined && { id }),
    ...(messages !== undefined && { messages }),
    transport: guarded(transport, () => predicate.sendFailed()),
    sendAutomaticallyWhen: predicate,
  };
}
