/** Tells a message that a chat has as the chunks that would make it, with the ids that the server gives. */

import type { UIMessage, UIMessageChunk } from 'ai';

import { isToolPart, toolNameOf, type ToolPart } from '../tool-parts.js';

type Part = UIMessage['parts'][number] & { [field: string]: unknown };

/** The chunks of the parts; `start` and the end of the turn are left to the caller. Only v7 can be told an answer. */
export function chunksOf(message: Pick<UIMessage, 'parts'>, sdk: 6 | 7 = 6): UIMessageChunk[] {
  const chunks: object[] = [];
  let isInStep = false;
  message.parts.forEach((part, index) => {
    if (part.type === 'step-start') {
      if (isInStep) chunks.push({ type: 'finish-step' });
      isInStep = true;
    }
    chunks.push(...chunksOfPart(part as Part, index, sdk));
  });
  if (isInStep) chunks.push({ type: 'finish-step' });
  return chunks as UIMessageChunk[];
}

function chunksOfPart(part: Part, index: number, sdk: 6 | 7): object[] {
  if (isToolPart(part)) return chunksOfCall(part as CallPart, sdk);
  switch (part.type) {
    case 'step-start':
      return [{ type: 'start-step' }];
    case 'text':
    case 'reasoning': {
      // A text is called by its place in the message.
      const id = `t${index}`;
      const metadata = part.providerMetadata === undefined ? {} : { providerMetadata: part.providerMetadata };
      return [
        { type: `${part.type}-start`, id },
        { type: `${part.type}-delta`, id, delta: part.text },
        ...(part.state === 'streaming' ? [] : [{ type: `${part.type}-end`, id, ...metadata }]),
      ];
    }
    case 'file':
      return [{ type: 'file', url: part.url, mediaType: part.mediaType, ...given(part, ['providerMetadata']) }];
    case 'source-url':
      return [{ type: 'source-url', ...given(part, ['sourceId', 'url', 'title', 'providerMetadata']) }];
    case 'source-document':
      return [{ type: 'source-document', ...given(part, ['sourceId', 'mediaType', 'title', 'filename', 'providerMetadata']) }];
    default:
      return part.type.startsWith('data-') ? [{ type: part.type, ...given(part, ['id', 'data']) }] : [];
  }
}

type CallPart = ToolPart & {
  errorText?: string;
  title?: string;
  callProviderMetadata?: object;
  resultProviderMetadata?: object;
};

function chunksOfCall(part: CallPart, sdk: 6 | 7): object[] {
  const { toolCallId, approval, title, providerExecuted } = part;
  const call = {
    toolCallId,
    toolName: toolNameOf(part),
    ...(part.type === 'dynamic-tool' && { dynamic: true }),
    ...(title !== undefined && { title }),
    ...(providerExecuted !== undefined && { providerExecuted }),
  };
  const chunks: object[] = [{ type: 'tool-input-start', ...call }];
  if (part.state === 'input-streaming') return chunks;
  const metadata = (value: object | undefined) => (value === undefined ? {} : { providerMetadata: value });
  chunks.push({
    type: 'tool-input-available',
    ...call,
    input: part.input ?? null,
    ...metadata(part.callProviderMetadata),
  });
  if (approval?.id !== undefined) chunks.push({ type: 'tool-approval-request', approvalId: approval.id, toolCallId });
  if (sdk === 7 && approval?.id !== undefined && approval.approved !== undefined) {
    const reason = approval.reason === undefined ? {} : { reason: approval.reason };
    chunks.push({ type: 'tool-approval-response', approvalId: approval.id, approved: approval.approved, ...reason });
  }
  switch (part.state) {
    case 'output-available':
      chunks.push({ type: 'tool-output-available', toolCallId, output: part.output ?? null, ...metadata(part.resultProviderMetadata) });
      break;
    case 'output-error':
      chunks.push({ type: 'tool-output-error', toolCallId, errorText: part.errorText ?? '' });
      break;
    case 'output-denied':
      chunks.push({ type: 'tool-output-denied', toolCallId });
      break;
  }
  return chunks;
}

function given(part: Part, fields: readonly string[]): object {
  return Object.fromEntries(fields.filter((field) => part[field] !== undefined).map((field) => [field, part[field]]));
}
