/**
 * Sends each decision of the user as it is made, in addition to the requests of the chat.
 *
 * A chat sends automatically only when every question of the step is answered, and nothing while a request is open.
 * Whoever approves one of two payments and then writes on has approved that one, so its decision must not wait for the
 * other:
 *
 * ```
 *   decided ─┬─ the last open question, and the chat is idle: the chat sends, as its predicate says
 *            ├─ another question is open, or a request is: sent here, at once
 *            └─ approved, and this front end runs the tool: as above, when its output is there
 * ```
 *
 * What the bridge answers is shown in the chat for as long as the chat itself is idle. A chat that has become busy gets
 * the same with its own stream. A decision that could not be sent here is sent at the next occasion, or with the chat's
 * next request.
 */

import { readUIMessageStream, type ChatTransport, type UIMessage } from 'ai';

import { createSseChatTransport, type SseChatTransportOptions } from './sse-chat-transport.js';
import { confirmedCallId, isConfirmation, isSettled, isToolPart, lastStepOf, namesOf, toolNameOf } from './tool-parts.js';
import type { ToolNames, ToolPart } from './tool-parts.js';

/** A decision of the user, as `addToolApprovalResponse` takes it. */
export interface UserDecision {
  readonly id: string;
  readonly approved: boolean;
  readonly reason?: string;
}

/** What is asked of a chat; the AI SDK's `Chat` fits. */
export interface DecidingChat<Message extends UIMessage = UIMessage> {
  readonly id: string;
  messages: Message[];
  readonly status: string;
  addToolApprovalResponse(response: UserDecision): void | PromiseLike<void>;
}

/** Options of {@link DecisionSender}: those of the chat's own requests. */
export interface DecisionSenderOptions extends SseChatTransportOptions {
  /** The tools that this front end runs; as in `createSendAutomaticallyWhen`. */
  clientTools?: ToolNames | undefined;
}

/** Sends decisions one by one; make one for each chat. */
export class DecisionSender<Message extends UIMessage = UIMessage> {
  readonly #transport: ChatTransport<Message>;
  readonly #clientTools: ToolNames;
  /** Decisions that wait for the output of their tool, or for the network, by the ids of their approvals. */
  readonly #waiting = new Map<string, UserDecision>();

  constructor(options: DecisionSenderOptions = {}) {
    this.#transport = createSseChatTransport<Message>(options);
    this.#clientTools = options.clientTools ?? [];
  }

  /**
   * Answers questions, in place of `addToolApprovalResponse`. Resolves when the chat has the decisions; `shown` does when
   * what came of those that were sent here has been shown too, and says whether there were any.
   */
  async respond(chat: DecidingChat<Message>, ...decisions: readonly UserDecision[]): Promise<{ shown: Promise<boolean> }> {
    const wasBusy = isBusy(chat);
    for (const decision of decisions) await chat.addToolApprovalResponse(decision);
    for (const decision of decisions) {
      const message = askedIn(chat, decision.id);
      // An idle chat sends the last answer of a step itself.
      if (message !== undefined && (wasBusy || hasQuestions(message))) this.#waiting.set(decision.id, decision);
    }
    return { shown: this.flush(chat) };
  }

  /** Sends what waits and can go, if anything. Call it when messages or status have changed; it is cheap. */
  async flush(chat: DecidingChat<Message>): Promise<boolean> {
    const ready: UserDecision[] = [];
    for (const decision of [...this.#waiting.values()]) {
      const message = askedIn(chat, decision.id);
      if (message !== undefined && this.#awaitsOutput(decision.id, toolsOf(message))) continue;
      this.#waiting.delete(decision.id);
      if (message !== undefined) ready.push(decision);
    }
    for (const decision of ready) await answerAgain(chat, decision);
    const sent = new Map<Message, UserDecision[]>();
    for (const decision of ready) {
      const message = askedIn(chat, decision.id);
      if (message !== undefined) sent.set(message, [...(sent.get(message) ?? []), decision]);
    }
    await Promise.all(
      [...sent].map(([message, decisions]) =>
        this.#send(chat, message).catch(async (error: unknown) => {
          // By a `TypeError` browsers tell that the network failed; what the bridge refuses it would refuse again.
          if (!(error instanceof TypeError)) return;
          for (const decision of decisions) this.#waiting.set(decision.id, decision);
          for (const decision of decisions) await answerAgain(chat, decision);
        }),
      ),
    );
    return ready.length > 0;
  }

  async #send(chat: DecidingChat<Message>, message: Message): Promise<void> {
    const stream = await this.#transport.sendMessages({
      trigger: 'submit-message',
      chatId: chat.id,
      messageId: message.id,
      // Alone: whatever else the chat has, the bridge has too.
      messages: [message],
      abortSignal: undefined,
    });
    for await (const state of readUIMessageStream<Message>({ message: structuredClone(message), stream })) show(chat, state);
  }

  /** Whether this front end has yet to run the tool that was approved. */
  #awaitsOutput(approvalId: string, tools: readonly ToolPart[]): boolean {
    const asked = tools.find((part) => part.approval?.id === approvalId);
    if (asked?.approval?.approved !== true) return false;
    const call = isConfirmation(asked) ? tools.find((part) => part.toolCallId === confirmedCallId(asked)) : asked;
    return call !== undefined && !isSettled(call) && namesOf(this.#clientTools).has(toolNameOf(call));
  }
}

/** Takes the bridge's state of a message over, but for what the user has decided meanwhile. */
function show<Message extends UIMessage>(chat: DecidingChat<Message>, state: Message): void {
  const own = chat.messages.find(({ id }) => id === state.id);
  if (isBusy(chat) || own === undefined) return;
  const parts = state.parts.map((part) => {
    if (!isToolPart(part) || isSettled(part)) return part;
    return own.parts.find((mine) => isToolPart(mine) && mine.toolCallId === (part as ToolPart).toolCallId) ?? part;
  });
  chat.messages = chat.messages.map((message) => (message === own ? { ...state, parts } : message));
}

/** A connection that comes back brings the message as the bridge has it: without a decision that has not reached it. */
async function answerAgain(chat: DecidingChat, decision: UserDecision): Promise<void> {
  const tools = toolsOf(askedIn(chat, decision.id));
  const isOpen = tools.some(({ approval, state }) => approval?.id === decision.id && state === 'approval-requested');
  if (isOpen) await chat.addToolApprovalResponse(decision);
}

/** The message in which this was asked. */
function askedIn<Message extends UIMessage>(chat: DecidingChat<Message>, approvalId: string): Message | undefined {
  return chat.messages.findLast((message) => toolsOf(message).some((part) => part.approval?.id === approvalId));
}

function toolsOf(message: UIMessage | undefined): ToolPart[] {
  return message?.role === 'assistant' ? message.parts.filter(isToolPart) : [];
}

function hasQuestions(message: UIMessage): boolean {
  return lastStepOf(message).some((part) => isToolPart(part) && part.state === 'approval-requested');
}

function isBusy({ status }: { status: string }): boolean {
  return status === 'submitted' || status === 'streaming';
}
