/** How far a running tool is, as its server tells. */

/** The data of a `data-tool-progress` chunk, which no message keeps. */
export interface ToolProgress {
  readonly toolCallId: string;
  /** Grows; out of `total`, if that is known. */
  readonly progress: number;
  readonly total?: number;
  readonly message?: string;
}

/** The progress in a data part, if it is one: for `onData` of a chat. */
export function progressOf(part: { type: string; data?: unknown }): ToolProgress | undefined {
  if (part.type !== 'data-tool-progress') return undefined;
  const { toolCallId, progress, total, message } = (part.data ?? {}) as Partial<ToolProgress>;
  if (typeof toolCallId !== 'string' || typeof progress !== 'number') return undefined;
  return {
    toolCallId,
    progress,
    ...(typeof total === 'number' && { total }),
    ...(typeof message === 'string' && { message }),
  };
}
