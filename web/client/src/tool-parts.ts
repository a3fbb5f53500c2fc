/** Reads tool parts of UI messages, in the form of every SDK version and of hand-written messages alike. */

/** The least that is asked of a message; every `UIMessage` is one. */
export interface MessageLike {
  readonly id?: string;
  readonly role: string;
  readonly parts?: readonly PartLike[];
}

/** The least that is asked of a part. */
export interface PartLike {
  readonly type: string;
}

/** A tool part as far as this library looks at it. */
export interface ToolPart extends PartLike {
  readonly toolCallId?: string;
  readonly toolName?: string;
  readonly state?: string;
  readonly input?: unknown;
  readonly output?: unknown;
  readonly approval?: { readonly id?: string; readonly approved?: boolean; readonly reason?: string };
  readonly providerExecuted?: boolean;
  readonly preliminary?: boolean;
}

/** Names of tools, or something that has them. */
export type ToolNames = Iterable<string> | { readonly names: Iterable<string> };

/** The names as they are at this moment. */
export function namesOf(tools: ToolNames): ReadonlySet<string> {
  return new Set(Symbol.iterator in tools ? tools : tools.names);
}

/** The tool under which dialect `adk` asks for an approval. */
export const CONFIRMATION_TOOL = 'adk_request_confirmation';

/** Under this name agents ask for credentials. */
export const CREDENTIAL_TOOL = 'adk_request_credential';

/** Whether this part is a call of a tool. */
export function isToolPart(part: PartLike): part is ToolPart {
  return part.type.startsWith('tool-') || part.type === 'dynamic-tool';
}

/** The name of the called tool. */
export function toolNameOf(part: ToolPart): string {
  return part.type === 'dynamic-tool' ? (part.toolName ?? '') : part.type.slice('tool-'.length);
}

/** Whether this part asks for an approval in dialect `adk`. */
export function isConfirmation(part: ToolPart): boolean {
  return toolNameOf(part) === CONFIRMATION_TOOL;
}

/** The id of the call that a confirmation of dialect `adk` is about. */
export function confirmedCallId(confirmation: ToolPart): string | undefined {
  const input = confirmation.input as { originalFunctionCall?: { id?: unknown } } | null | undefined;
  const id = input?.originalFunctionCall?.id;
  return typeof id === 'string' ? id : undefined;
}

/** The parts after the last step boundary; all of them where there is none. */
export function lastStepOf(message: MessageLike): readonly PartLike[] {
  const parts = message.parts ?? [];
  for (let index = parts.length - 1; index >= 0; index -= 1) {
    if (parts[index]?.type === 'step-start') return parts.slice(index + 1);
  }
  return parts;
}

/** What the user decided about a call. */
export type Decision = 'none' | 'asked' | 'approved' | 'denied';

/**
 * What was decided about `call`: on the call itself (dialect `native`), or on its confirmation among `siblings`
 * (dialect `adk`). `none` means that nobody asked.
 */
export function decisionOn(call: ToolPart, siblings: readonly ToolPart[]): Decision {
  if (call.state === 'approval-requested') return 'asked';
  if (call.approval?.approved !== undefined) return call.approval.approved ? 'approved' : 'denied';
  const confirmation = siblings.find(
    (part) => isConfirmation(part) && call.toolCallId !== undefined && confirmedCallId(part) === call.toolCallId,
  );
  if (confirmation === undefined) return 'none';
  const confirmed = (confirmation.output as { confirmed?: unknown } | null | undefined)?.confirmed;
  const approved = confirmation.approval?.approved ?? (typeof confirmed === 'boolean' ? confirmed : undefined);
  if (approved === undefined) return 'asked';
  return approved ? 'approved' : 'denied';
}

/** Whether this call has come to its end. */
export function isSettled(part: ToolPart): boolean {
  return (
    (part.state === 'output-available' && part.preliminary !== true) ||
    part.state === 'output-error' ||
    part.state === 'output-denied'
  );
}
