/** Compares the page's messages with the server's. */
import { isToolUIPart, type UIMessage } from 'ai';

/**
 * The server's messages, with the page's own objects where nothing changed, so that nothing is drawn again, and where the
 * user has answered what has not been sent yet: a client tool's approval waits for its output. If nothing changed at all,
 * the page's own array.
 */
export function reconciled(local: UIMessage[], stored: UIMessage[]): UIMessage[] {
  const byId = new Map(local.map((message) => [message.id, message]));
  const merged = stored.map((message) => {
    const own = byId.get(message.id);
    if (own === undefined) return message;
    const isSame = JSON.stringify(own.parts) === JSON.stringify(message.parts);
    return isSame || hasUnsentAnswers(own, message) ? own : message;
  });
  const same = merged.length === local.length && merged.every((message, index) => message === local[index]);
  return same ? local : merged;
}

export function lastUserMessage(messages: readonly UIMessage[]): UIMessage | undefined {
  return messages.findLast((message) => message.role === 'user');
}

/** Whether a message is an answer that came to its end. */
export function isComplete(message: UIMessage | undefined): boolean {
  return message?.role === 'assistant' && (message.metadata as { ended?: string } | undefined)?.ended === undefined;
}

/** Whether the page has answered questions, or run tools, of which the server does not know. */
export function hasUnsentAnswers(local: UIMessage | undefined, stored: UIMessage | undefined): boolean {
  if (local?.role !== 'assistant' || local.id !== stored?.id) return false;
  const known = new Map(stored.parts.filter(isToolUIPart).map((part) => [part.toolCallId, part.state]));
  return local.parts.filter(isToolUIPart).some((part) => {
    const before = known.get(part.toolCallId);
    if (before === undefined || before.startsWith('output-')) return false;
    const isOutput = part.state === 'output-available' || part.state === 'output-error';
    return isOutput || (part.state === 'approval-responded' && before === 'approval-requested');
  });
}

/** Whether a request failed on its way; browsers tell it by a `TypeError`. */
export function isNetworkFailure(problem: Error): boolean {
  const cause = 'cause' in problem ? problem.cause : undefined;
  return (
    problem instanceof TypeError ||
    cause instanceof TypeError ||
    /failed to fetch|network ?error|load failed/i.test(problem.message)
  );
}
