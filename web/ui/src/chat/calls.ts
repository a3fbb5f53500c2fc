/** Tool calls of a message as cards show them, the same for both dialects. */
import { CONFIRMATION_TOOL, CREDENTIAL_TOOL, type CredentialRequest } from '@adk-bridge/client';
import { type DynamicToolUIPart, getToolName, isToolUIPart, type ToolUIPart, type UIMessage } from 'ai';

/** Under this name ADK's agents and MCP servers ask for input; the arguments hold the question and the schema of the answer. */
export const INPUT_TOOL = 'adk_request_input';

export type ToolPart = ToolUIPart | DynamicToolUIPart;

export interface Approval {
  id: string;
  /** `undefined` as long as nobody has answered. */
  approved: boolean | undefined;
  reason: string | undefined;
  hint: string | undefined;
}

export interface Call {
  id: string;
  name: string;
  part: ToolPart;
  approval: Approval | undefined;
  state: 'preparing' | 'running' | 'waiting' | 'approved' | 'denied' | 'done' | 'failed';
}

interface Confirmation {
  originalFunctionCall?: { id?: string };
  toolConfirmation?: { hint?: string };
}

/** What is read from a part, whatever its tool is called. */
interface Loose {
  state: string;
  toolCallId: string;
  input?: unknown;
  output?: unknown;
  approval?: { id: string; approved?: boolean; reason?: string };
}

/**
 * The call that a tool part shows, or nothing for a confirmation of dialect `adk`: that one is shown on the card of the
 * call which it is about.
 */
export function callOf(part: ToolPart, message: UIMessage): Call | undefined {
  const name = getToolName(part);
  if (name === CONFIRMATION_TOOL) return undefined;
  const approval = ownApproval(part, message) ?? confirmationOf(part.toolCallId, message);
  return { id: part.toolCallId, name, part, approval, state: awaitsUser(part, message) ? 'running' : stateOf(part, approval) };
}

/** The calls of a message that wait for the user's answer. */
export function waitingCalls(message: UIMessage | undefined): Call[] {
  if (message?.role !== 'assistant') return [];
  return message.parts
    .filter(isToolUIPart)
    .map((part) => callOf(part, message))
    .filter((call): call is Call => call?.state === 'waiting');
}

/** Whether a call of a message has not come to its end. */
export function hasOpenCalls(message: UIMessage): boolean {
  return message.parts.some((part) => {
    const call = isToolUIPart(part) ? callOf(part, message) : undefined;
    return call !== undefined && (!call.part.state.startsWith('output-') || awaitsUser(call.part, message));
  });
}

function ownApproval(part: ToolPart, message: UIMessage): Approval | undefined {
  const { approval } = part as Loose;
  if (approval === undefined) return undefined;
  return { id: approval.id, approved: decided(part), reason: approval.reason, hint: hintOn(part.toolCallId, message) };
}

/** What an ADK agent says to its question, which has no place on the call itself. */
function hintOn(callId: string, message: UIMessage): string | undefined {
  const { questions } = (message.metadata ?? {}) as { questions?: Record<string, { hint?: string }> };
  return questions?.[callId]?.hint;
}

function confirmationOf(callId: string, message: UIMessage): Approval | undefined {
  for (const part of message.parts) {
    if (!isToolUIPart(part) || getToolName(part) !== CONFIRMATION_TOOL) continue;
    const { input, output, approval, toolCallId } = part as Loose;
    const about = input as Confirmation | undefined;
    if (about?.originalFunctionCall?.id !== callId) continue;
    const confirmed = (output as { confirmed?: boolean } | undefined)?.confirmed;
    return {
      id: approval?.id ?? toolCallId,
      approved: decided(part) ?? confirmed,
      reason: approval?.reason,
      hint: about.toolConfirmation?.hint,
    };
  }
  return undefined;
}

/** A v6 replay cannot carry the answer, but a call that went on was approved. */
function decided(part: ToolPart): boolean | undefined {
  const { approval, state } = part as Loose;
  if (approval?.approved !== undefined) return approval.approved;
  if (state === 'output-denied') return false;
  return state === 'output-available' && getToolName(part) !== CONFIRMATION_TOOL ? true : undefined;
}

/**
 * Whether a call waits for the user, who is asked to grant something or what its tool wants to know: its output only says so,
 * and another one comes. Calls of a tool may show it a little longer than the question does.
 */
export function awaitsUser(part: ToolPart, { parts }: UIMessage): boolean {
  const { state, output } = part as Loose;
  if (state !== 'output-available') return false;
  return (
    (output as { pending?: unknown } | undefined)?.pending === true &&
    parts.some((other) => isToolUIPart(other) && isQuestion(other))
  );
}

/** Whether a call asks the user something for another one. */
function isQuestion(part: ToolPart): boolean {
  if (![CREDENTIAL_TOOL, INPUT_TOOL].includes(getToolName(part))) return false;
  return (part.input as CredentialRequest | undefined)?.functionCallId !== undefined;
}

/** Whether the user, or the provider on the user's behalf, has refused what an agent wanted to be granted: nothing has failed. */
function isRefused(part: ToolPart): boolean {
  return getToolName(part) === CREDENTIAL_TOOL && part.errorText?.startsWith('denied:') === true;
}

function stateOf(part: ToolPart, approval: Approval | undefined): Call['state'] {
  switch (part.state) {
    case 'output-available':
      return 'done';
    case 'output-error':
      return isRefused(part) ? 'denied' : 'failed';
    case 'output-denied':
      return 'denied';
    case 'input-streaming':
      return 'preparing';
    default:
      if (approval === undefined) return 'running';
      if (approval.approved === undefined) return 'waiting';
      return approval.approved ? 'approved' : 'denied';
  }
}
