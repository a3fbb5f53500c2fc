/** One hook for a chat with the bridge: the AI SDK's `useChat` with transport, predicate and client tools in place. */

import { Chat, useChat, type UseChatHelpers } from '@ai-sdk/react';
import type { ChatInit, UIMessage } from 'ai';
import { useCallback, useEffect, useRef, useState } from 'react';

import { loadMessages, stopTurn } from '../bridge-requests.js';
import { buildUseChatOptions, type BuildUseChatOptions } from '../build-use-chat-options.js';
import { ClientTools } from '../client-tools.js';
import { DecisionSender } from '../decision-sender.js';
import { followServerTurns } from '../live/follow-server-turns.js';
import type { LiveChatTransport } from '../live/live-chat-transport.js';
import type { ConnectionState } from '../live/live-socket.js';
import { transcriptionOf, withTranscription } from '../live/transcription.js';
import type { ToolNames } from '../tool-parts.js';
import { constant, useObservable } from './use-observable.js';
import { useVoice, type UseVoiceOptions, type Voice } from './use-voice.js';

/** Options of {@link useBridgeChat}; those that make up the connection count when the chat's `id` changes. */
export type UseBridgeChatOptions<Message extends UIMessage = UIMessage> = BuildUseChatOptions<Message> &
  Pick<ChatInit<Message>, 'onData' | 'onError' | 'onFinish' | 'generateId'> & {
    id: string;
    /** Whether a turn that runs on the server is picked up at mount; true if left out. */
    resume?: boolean;
    /** Milliseconds between two renderings while chunks come in; each chunk renders if left out. */
    throttleMs?: number;
    /** How the chat is spoken with. */
    voice?: UseVoiceOptions;
  };

/** What {@link useBridgeChat} returns: all of `useChat`, and the bridge's own. */
export interface BridgeChat<Message extends UIMessage = UIMessage> extends UseChatHelpers<Message> {
  /** The connection of mode `live`; `undefined` over HTTP. */
  readonly live: LiveChatTransport<Message> | undefined;
  /** How the connection of mode `live` is; always `idle` over HTTP, where there is none between requests. */
  readonly connection: ConnectionState;
  /** Speaking in mode `live`: off until it is started in a click. */
  readonly voice: Voice;
  /** Ids of the client tools' calls that run. */
  readonly runningTools: readonly string[];
  /** Aborts a running client tool (or all), which is reported to the model as cancelled. */
  readonly cancelTool: (toolCallId?: string) => void;
}

/** How long a stopped turn may take to end on its own before its connection is closed. */
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
  const { id, resume = true, throttleMs, voice: voiceOptions } = options;
  const clientTools = toolsOf(options);

  const { chat, live, decisions } = useBridge(latest, id);
  const helpers = useChat<Message>({
    chat,
    // A live connection delivers a running turn automatically.
    resume: resume && live === undefined,
    ...(throttleMs !== undefined && { experimental_throttle: throttleMs }),
  });
  const { messages, status } = helpers;

  useEffect(() => {
    // What a tool throws is reported to the model; a rejection here is the chat's own, which shows it as its error.
    clientTools?.run(chat).catch(() => {});
    void decisions.flush(chat);
  }, [chat, clientTools, decisions, messages, status]);

  useEffect(() => {
    const leave = live === undefined ? () => {} : connect(chat, live, latest);
    return () => {
      // Leaves the turn; the server runs it on.
      leave();
      void chat.stop();
    };
  }, [chat, live, latest]);

  const addToolApprovalResponse = useCallback<UseChatHelpers<Message>['addToolApprovalResponse']>(
    async ({ options, ...decision }) => {
      // What is to be sent with it goes by the chat's own request.
      if (options !== undefined) await chat.addToolApprovalResponse({ options, ...decision });
      else await decisions.respond(chat, decision);
    },
    [chat, decisions],
  );
  const stop = useCallback(() => stopEverywhere(chat, live, latest.current), [chat, live]);
  const connection = useObservable(live?.connection ?? IDLE);
  const voice = useVoice(live, voiceOptions);
  const runningTools = useObservable(clientTools?.running ?? NO_TOOLS);
  const cancelTool = useCallback((toolCallId?: string) => clientTools?.cancel(toolCallId), [clientTools]);
  return { ...helpers, id, addToolApprovalResponse, stop, live, connection, voice, runningTools, cancelTool };
}

interface Bridge<Message extends UIMessage> {
  readonly id: string;
  readonly chat: Chat<Message>;
  readonly live: LiveChatTransport<Message> | undefined;
  readonly decisions: DecisionSender<Message>;
}

type Latest<Message extends UIMessage> = { readonly current: UseBridgeChatOptions<Message> };

function useBridge<Message extends UIMessage>(latest: Latest<Message>, id: string): Bridge<Message> {
  const [held, setHeld] = useState(() => makeBridge(latest, id));
  if (held.id === id) return held;
  const next = makeBridge(latest, id);
  setHeld(next);
  return next;
}

function makeBridge<Message extends UIMessage>(latest: Latest<Message>, id: string): Bridge<Message> {
  const { generateId } = latest.current;
  const { live, ...init } = buildUseChatOptions<Message>(latest.current);
  const chat: Chat<Message> = new Chat<Message>({
    ...init,
    ...(generateId !== undefined && { generateId }),
    onData: (part) => {
      takeTranscription(chat, part);
      latest.current.onData?.(part);
    },
    onError: (error) => latest.current.onError?.(error),
    onFinish: (event) => latest.current.onFinish?.(event),
  });
  return { id, chat, live, decisions: new DecisionSender<Message>(latest.current) };
}

/** Opens the connection and lets the chat take what comes unasked; returns how to leave it. */
function connect<Message extends UIMessage>(
  chat: Chat<Message>,
  live: LiveChatTransport<Message>,
  latest: Latest<Message>,
): () => void {
  const following = followServerTurns(chat, live);
  const stops = [
    live.on('data', (part) => {
      takeTranscription(chat, part);
      latest.current.onData?.(part as Parameters<NonNullable<ChatInit<Message>['onData']>>[0]);
    }),
    live.on('stale', () => void reload(chat, latest.current)),
    following.stop,
    () => live.close(),
  ];
  live.connect();
  return () => stops.forEach((stop) => stop());
}

function takeTranscription<Message extends UIMessage>(chat: Chat<Message>, part: { type: string; data?: unknown }): void {
  const spoken = transcriptionOf(part);
  if (spoken !== undefined) chat.messages = withTranscription(chat.messages, spoken);
}

/** What ended unseen is loaded; a failure leaves the chat in its error, from which the user may try again. */
async function reload<Message extends UIMessage>(chat: Chat<Message>, options: UseBridgeChatOptions<Message>): Promise<void> {
  const messages = await loadMessages<Message>(options, chat.id, options.dialect).catch(() => undefined);
  if (messages === undefined || messages.length === 0) return;
  chat.messages = messages;
  chat.clearError();
}

/** Ends the turn on the server, whose stream then ends on its own; if it does not end in time, it is closed here. */
async function stopEverywhere<Message extends UIMessage>(
  chat: Chat<Message>,
  live: LiveChatTransport<Message> | undefined,
  options: UseBridgeChatOptions<Message>,
): Promise<void> {
  toolsOf(options)?.cancel();
  if (live === undefined) await stopTurn(options, chat.id).catch(() => chat.stop());
  else live.interrupt();
  const isBusy = () => chat.status === 'submitted' || chat.status === 'streaming';
  await new Promise<void>((resolve) => {
    const finish = () => {
      clearTimeout(timer);
      unsubscribe();
      resolve();
    };
    const timer = setTimeout(finish, STOP_GRACE_MS);
    const unsubscribe = chat['~registerStatusCallback'](() => {
      if (!isBusy()) finish();
    });
    if (!isBusy()) finish();
  });
  if (isBusy()) await chat.stop();
}

function toolsOf({ clientTools }: { clientTools?: ClientTools | ToolNames | undefined }): ClientTools | undefined {
  return clientTools instanceof ClientTools ? clientTools : undefined;
}

const IDLE_STATE: ConnectionState = { status: 'idle' };
const IDLE = constant(IDLE_STATE);
const NO_TOOLS = constant<readonly string[]>([]);
