/** Puts what the user said, as the server understood it, among the messages of a chat. */

import type { UIMessage } from 'ai';

/** The data of a `data-transcription` chunk. */
export interface Transcription {
  readonly messageId?: string;
  readonly text: string;
  readonly final: boolean;
}

/** The transcription in a data part, if it is one that belongs to a message. */
export function transcriptionOf(part: { type: string; data?: unknown }): Required<Transcription> | undefined {
  if (part.type !== 'data-transcription') return undefined;
  const { messageId, text, final } = (part.data ?? {}) as Partial<Transcription>;
  if (typeof messageId !== 'string' || typeof text !== 'string') return undefined;
  return { messageId, text, final: final === true };
}

/**
 * The messages with this transcription in the user's message: it is updated where there is one, and otherwise comes last,
 * or before the answer that is already being told (`answerId`), because transcriptions may come late.
 */
export function withTranscription<Message extends UIMessage>(
  messages: readonly Message[],
  { messageId, text }: Required<Transcription>,
  answerId: string | undefined,
): Message[] {
  const spoken = { id: messageId, role: 'user', parts: [{ type: 'text', text }] } as unknown as Message;
  const index = messages.findIndex((message) => message.id === messageId);
  if (index !== -1) return messages.with(index, { ...messages[index], parts: spoken.parts } as Message);
  const answer = messages.findIndex((message) => message.id === answerId);
  return messages.toSpliced(answer === -1 ? messages.length : answer, 0, spoken);
}
