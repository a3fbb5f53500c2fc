/**
 * Decides whether a chat sends its last message again automatically, because the user or a client tool has answered.
 *
 * One pass over the tool parts of the last step (of the whole message where it has no step boundary), the same for
 * every transport. The parts show the dialect:
 *
 * ```
 *   is there an adk_request_confirmation in the step?
 *    ├─ yes: dialect adk, in this order                      └─ no: dialect native
 *    │  1 any text in the step?             → do not send       1 text after the last tool part?     → do not send
 *    │  2 no confirmation answered?         → do not send       2 nothing answered?                  → do not send
 *    │  3 a confirmation still open?        → do not send       3 a call neither answered nor
 *    │  4 another call in error?            → do not send         settled?                           → do not send
 *    │  5 another call half done?           → do not send         otherwise                          → send
 *    │  6 another call with an output?      → send
 *    │    otherwise                         → send
 * ```
 *
 * Why this order in `adk`: the server sends text only with its last answer, so that text proves that it has answered;
 * the state of the confirmations is checked before outputs, because an output next to an open confirmation must wait;
 * an error comes from the server only, an output may come from the front end, which is why only the error blocks. A
 * call whose input is still written, or whose output is preliminary, is not settled, whoever runs it. One that has its
 * input and no output says nothing: the server shows what its own tools came to only with its last answer, and who
 * waited for them would never send. A tool of this front end is known by its name, and is waited for. In `native` the
 * server streams text before a question, so that only text behind the calls is an answer to them.
 *
 * `approved` is never looked at, but for one thing: a call that this front end has to run waits for its output if it
 * was approved, and has nothing to wait for if it was denied.
 */

import type { MessageLike, PartLike, ToolNames, ToolPart } from './tool-parts.js';
import {
  confirmedCallId,
  decisionOn,
  isConfirmation,
  isSettled,
  isToolPart,
  lastStepOf,
  namesOf,
  toolNameOf,
} from './tool-parts.js';

/** What `sendAutomaticallyWhen` of the AI SDK is called with. */
export interface SendAutomaticallyWhenOptions {
  /** Without messages there is nothing to send; hand-written callers pass `null` for none. */
  messages: readonly MessageLike[] | null | undefined;
}

/** Options of {@link createSendAutomaticallyWhen}. */
export interface CreateSendAutomaticallyWhenOptions {
  /**
   * Names of the tools that this front end runs; the result of `defineClientTools` is one such collection. It is read
   * whenever there is something to decide, so that it may grow.
   */
  clientTools?: ToolNames;
  /**
   * Whether answers in older messages are sent too. Only `/live` keeps questions open while the conversation goes on;
   * over HTTP a newer message has superseded them.
   */
  olderMessages?: boolean;
}

/** A predicate for `useChat` that remembers what it has sent. */
export interface SendAutomaticallyWhen {
  (options: SendAutomaticallyWhenOptions): boolean;
  /**
   * Whether an older message has unsent answers, because they were given while another turn was streamed; asking counts
   * as sending them.
   */
  takeOlderAnswers(options: SendAutomaticallyWhenOptions): boolean;
  /** Forgets what was sent, because a send failed: the same answers may go out again. */
  sendFailed(): void;
}

/** No chat has so many open answers; what is forgotten can at worst be sent once more. */
const MAX_REMEMBERED = 1000;

/** Says whether the last message carries answers to send; pure, and knows no client tools. */
export function sendAutomaticallyWhen({ messages }: SendAutomaticallyWhenOptions): boolean {
  const message = messages?.at(-1);
  return message?.role === 'assistant' && hasAnswers(message, NO_TOOLS);
}

/**
 * Makes a predicate that knows the tools which this front end runs: their outputs are sent when every call of the step
 * is settled, whoever runs it, and an approved one waits for its output, so that both go out at once.
 *
 * It remembers the states that it has sent and never sends one twice, so that it cannot loop, whatever the server does.
 */
export function createSendAutomaticallyWhen(options: CreateSendAutomaticallyWhenOptions = {}): SendAutomaticallyWhen {
  const { clientTools = [], olderMessages = false } = options;
  const names = () => namesOf(clientTools);
  const sent = new Set<string>();

  const isNews = (message: MessageLike, index: number): boolean => {
    if (message.role !== 'assistant' || !hasAnswers(message, names())) return false;
    const state = stateOf(message, index);
    if (sent.has(state)) return false;
    if (sent.size >= MAX_REMEMBERED) sent.clear();
    sent.add(state);
    return true;
  };

  const takeOlderAnswers = ({ messages }: SendAutomaticallyWhenOptions): boolean =>
    olderMessages && (messages ?? []).slice(0, -1).some(isNews);

  let lastSeen: MessageLike | undefined;
  const predicate = (options: SendAutomaticallyWhenOptions): boolean => {
    const messages = options.messages ?? [];
    const last = messages.at(-1);
    const isTurnOver = last !== lastSeen;
    lastSeen = last;
    if (last !== undefined && isNews(last, messages.length - 1)) return true;
    // At the end of a turn a chat sends in the name of its last message, whatever is answered in older ones.
    return !isTurnOver && takeOlderAnswers(options);
  };
  return Object.assign(predicate, { takeOlderAnswers, sendFailed: () => sent.clear() });
}

const NO_TOOLS: ReadonlySet<string> = new Set();

function hasAnswers(message: MessageLike, clientTools: ReadonlySet<string>): boolean {
  const step = lastStepOf(message);
  const tools = step.filter(isToolPart).filter((part) => part.providerExecuted !== true);
  const confirmations = tools.filter(isConfirmation);
  return confirmations.length > 0
    ? hasConfirmationAnswers(step, tools, confirmations, clientTools)
    : hasNativeAnswers(step, tools, clientTools);
}

function hasConfirmationAnswers(
  step: readonly PartLike[],
  tools: readonly ToolPart[],
  confirmations: readonly ToolPart[],
  clientTools: ReadonlySet<string>,
): boolean {
  if (step.some((part) => part.type === 'text')) return false;
  if (!confirmations.some((part) => part.state === 'approval-responded')) return false;
  if (confirmations.some((part) => part.state === 'approval-requested')) return false;
  const others = tools.filter((part) => !isConfirmation(part));
  const isOurs = (part: ToolPart) => clientTools.has(toolNameOf(part));
  if (others.some((part) => part.state === 'output-error' && !isOurs(part))) return false;
  if (others.some(isHalfDone)) return false;
  // Check 6 and the default send alike: what is left to decide is whether a tool of ours still runs.
  return others.every((part) => !isOurs(part) || isSettled(part) || isDenied(part, confirmations));
}

function hasNativeAnswers(step: readonly PartLike[], tools: readonly ToolPart[], clientTools: ReadonlySet<string>): boolean {
  const lastTool = step.findLastIndex((part) => isToolPart(part) && part.providerExecuted !== true);
  if (lastTool === -1 || step.slice(lastTool + 1).some((part) => part.type === 'text')) return false;
  let answers = 0;
  for (const part of tools) {
    const isOurs = clientTools.has(toolNameOf(part));
    if (part.state === 'approval-responded') {
      if (isOurs && part.approval?.approved !== false) return false;
      answers += 1;
    } else if (!isSettled(part)) {
      return false;
    } else if (isOurs && part.state !== 'output-denied') {
      answers += 1;
    }
  }
  return answers > 0;
}

/** Whether more of this call comes automatically. */
function isHalfDone(part: ToolPart): boolean {
  return part.state === 'input-streaming' || (part.state === 'output-available' && part.preliminary === true);
}

/** A confirmation that names no call, as written by hand, applies to every call in its step. */
function isDenied(call: ToolPart, confirmations: readonly ToolPart[]): boolean {
  const nameless = confirmations.filter((part) => confirmedCallId(part) === undefined);
  if (nameless.length > 0) return nameless.every((part) => part.approval?.approved === false);
  return decisionOn(call, confirmations) === 'denied';
}

/** What an answer is made of: the message, and the state of each call of its last step. */
function stateOf(message: MessageLike, index: number): string {
  const tools = lastStepOf(message).filter(isToolPart);
  const states = tools.map((part) => [part.toolCallId ?? part.type, part.state, part.approval?.approved]);
  return JSON.stringify([message.id ?? index, states]);
}
