/** Puts what the user said, as the server understood it, among the messages of a chat. */

import type { UIMessage } from 'ai';

/** The data of a `data-transcription` chunk: a piece of what was said, or in the end (`final`) all of it. */
export interface Transcription {
  readonly messageId?: string;
  readonly text: string;
  readonly final: boolean;
  /** The answer to it, if that is being streamed already; set by the transport. */
  readonly answerId?: string;
}

/** A transcription that belongs to a message. */
export type SpokenMessage = Transcription & { readonly messageId: string };

/** The transcription in a data part, if it is one that belongs to a message. */
export function transcriptionOf(part: { type: string; data?: unknown }): SpokenMessage | undefined {
  if (part.type !== 'data-transcription') return undefined;
  const { messageId, text, final, answerId } = (part.data ?? {}) as Partial<Transcription>;
  if (typeof messageId !== 'string' || typeof text !== 'string') return undefined;
  return { messageId, text, final: final === true, ...(typeof answerId === 'string' && { answerId }) };
}

/**
 * The messages with this transcription in the user's message. Pieces are put behind each other until the final one,
 * which is the whole. A message that is not there yet comes last, or before the answer that is already being streamed
 * (`answerId`), because transcriptions may come late.
 */
export function withTranscription<Message extends UIMessage>(
  messages: readonly Message[],
  spoken: SpokenMessage,
  answerId: string | undefined = spoken.answerId,
): Message[] {
  const { messageId, text, final } = spoken;
  const index = messages.findIndex((message) => message.id === messageId);
  const message = messages[index];
  if (message === undefined) {
    const said = { id: messageId, role: 'user', parts: [{ type: 'text', text }] } as unknown as Message;
    const answer = messages.findIndex(({ id }) => id === answerId);
    return messages.toSpliced(answer === -1 ? messages.length : answer, 0, said);
  }
  const before = message.parts.find((part) => part.type === 'text')?.text ?? '';
  const others = message.parts.filter((part) => part.type !== 'text');
  const parts = [{ type: 'text', text: final ? text : before + text }, ...others];
  return messages.with(index, { ...message, parts } as Message);
}
