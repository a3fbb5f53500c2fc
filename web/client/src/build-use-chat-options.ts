/** Puts transport and predicate together into options for `useChat` or `new Chat`. */

import type { ChatTransport, UIMessage } from 'ai';

import { loadMessages } from './bridge-requests.js';
import type { ChunkLog } from './chunk-log.js';
import { ClientTools } from './client-tools.js';
import { guarded } from './guarded-transport.js';
import { LiveChatTransport, type LiveChatTransportOptions } from './live/live-chat-transport.js';
import { resumed } from './resumed-stream.js';
import { createSendAutomaticallyWhen, type SendAutomaticallyWhen } from './send-automatically-when.js';
import { createSseChatTransport, type SseChatTransportOptions } from './sse-chat-transport.js';
import type { ToolNames } from './tool-parts.js';

interface CommonOptions<Message extends UIMessage> {
  /** The chat's id; over HTTP the AI SDK makes one up if it is left out. */
  id?: string | undefined;
  /** The messages to begin with, as `loadMessages` gives them. */
  messages?: Message[] | undefined;
  /**
   * The tools that this front end runs, or the names of those that the page runs itself with `addToolOutput`. Over
   * `/live` they must be named: an approval that is sent without the output keeps its turn open for it. Make the tools
   * once, outside of components: a second collection knows nothing of the calls that the first one runs.
   */
  clientTools?: ClientTools | ToolNames | undefined;
  /** Keeps everything that crosses the transport. */
  log?: ChunkLog | undefined;
}

/** Options of {@link buildUseChatOptions} over HTTP: one request per turn. */
export interface SseOptions<Message extends UIMessage = UIMessage> extends CommonOptions<Message>, SseChatTransportOptions {
  mode: 'sse';
}

/** Options of {@link buildUseChatOptions} over `/live`: one socket, speech included. */
export interface LiveOptions<Message extends UIMessage = UIMessage>
  extends CommonOptions<Message>,
    Omit<LiveChatTransportOptions, 'chatId'> {
  mode: 'live';
  id: string;
}

/** Options of {@link buildUseChatOptions}. */
export type BuildUseChatOptions<Message extends UIMessage = UIMessage> = SseOptions<Message> | LiveOptions<Message>;

/** Options for `useChat` and `new Chat` of AI SDK v6 and v7. */
export interface BridgeChatInit<Message extends UIMessage = UIMessage> {
  id?: string;
  messages?: Message[];
  transport: ChatTransport<Message>;
  sendAutomaticallyWhen: SendAutomaticallyWhen;
  /** The connection of mode `live`: its state, speech, and turns that the server begins. */
  live?: LiveChatTransport<Message>;
}

/**
 * Makes the options that a chat with the bridge needs. Keep the result for as long as the chat (in React: `useState` or
 * `useMemo`): the predicate remembers what it has sent, and in mode `live` the transport holds the socket.
 */
export function buildUseChatOptions<Message extends UIMessage = UIMessage>(
  options: LiveOptions<Message>,
): BridgeChatInit<Message> & { live: LiveChatTransport<Message> };
export function buildUseChatOptions<Message extends UIMessage = UIMessage>(
  options: BuildUseChatOptions<Message>,
): BridgeChatInit<Message>;
export function buildUseChatOptions<Message extends UIMessage = UIMessage>(
  options: BuildUseChatOptions<Message>,
): BridgeChatInit<Message> {
  const { id, messages, clientTools, mode, log } = options;
  const tools = options.tools ?? (clientTools instanceof ClientTools ? clientTools.declared : undefined);
  const predicate = createSendAutomaticallyWhen({
    ...(clientTools !== undefined && { clientTools }),
    olderMessages: mode === 'live',
  });
  const live = mode === 'live' ? new LiveChatTransport<Message>({ ...options, tools, chatId: id }) : undefined;
  if (live !== undefined) {
    live.takeOlderAnswers = (messages) => predicate.takeOlderAnswers({ messages });
    log?.follow(live);
  }
  const transport = live ?? sseTransport<Message>({ ...(options as SseOptions<Message>), tools });
  return {
    ...(id !== undefined && { id }),
    ...(messages !== undefined && { messages }),
    transport: guarded(log?.record(transport) ?? transport, () => predicate.sendFailed()),
    sendAutomaticallyWhen: predicate,
    ...(live !== undefined && { live }),
  };
}

/** Requests over HTTP, whose answers go on by themselves where their connection breaks. */
function sseTransport<Message extends UIMessage>(options: SseOptions<Message>): ChatTransport<Message> {
  return resumed(createSseChatTransport<Message>(options), {
    sdk: options.sdk,
    load: (chatId) => loadMessages<Message>(options, chatId, options.dialect),
  });
}
