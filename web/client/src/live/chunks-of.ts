/** Tells a message that a chat has as the chunks that would make it, with the ids that the server gives. */

import type { UIMessage, UIMessageChunk } from 'ai';

import { DEFAULT_SDK, readsApprovalResponses, type SdkVersion } from '../sdk-version.js';
import { isToolPart, toolNameOf, type ToolPart } from '../tool-parts.js';

type Part = UIMessage['parts'][number] & { [field: string]: unknown };

/** The chunks of the parts; `start` and the end of the turn are left to the caller. */
export function chunksOf(message: Pick<UIMessage, 'parts'>, sdk: SdkVersion = DEFAULT_SDK): UIMessageChunk[] {
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

/** Parts that are chunks of the same name, and what they carry. */
const SAME: Readonly<Record<string, readonly string[]>> = {
  file: ['url', 'mediaType', 'providerMetadata'],
  'source-url': ['sourceId', 'url', 'title', 'providerMetadata'],
  'source-document': ['sourceId', 'mediaType', 'title', 'filename', 'providerMetadata'],
};

function chunksOfPart(part: Part, index: number, sdk: SdkVersion): object[] {
  const { type } = part;
  if (isToolPart(part)) return chunksOfCall(part as CallPart, sdk);
  if (type === 'step-start') return [{ type: 'start-step' }];
  if (type === 'text' || type === 'reasoning') {
    // A text is called by its place in the message.
    const id = `t${index}`;
    return [
      { type: `${type}-start`, id },
      { type: `${type}-delta`, id, delta: part.text },
      ...(part.state === 'streaming' ? [] : [{ type: `${type}-end`, id, ...given(part, ['providerMetadata']) }]),
    ];
  }
  const fields = type.startsWith('data-') ? ['id', 'data'] : SAME[type];
  return fields === undefined ? [] : [{ type, ...given(part, fields) }];
}

type CallPart = ToolPart & {
  errorText?: string;
  title?: string;
  callProviderMetadata?: object;
  resultProviderMetadata?: object;
};

function chunksOfCall(part: CallPart, sdk: SdkVersion): object[] {
  const { toolCallId, approval, state } = part;
  const call = {
    ...given({ ...part }, ['toolCallId', 'title', 'providerExecuted']),
    toolName: toolNameOf(part),
    ...(part.type === 'dynamic-tool' && { dynamic: true }),
  };
  const chunks: object[] = [{ type: 'tool-input-start', ...call }];
  if (state === 'input-streaming') return chunks;
  const metadata = (providerMetadata: object | undefined) => given({ providerMetadata }, ['providerMetadata']);
  chunks.push({
    type: 'tool-input-available',
    ...call,
    input: part.input ?? null,
    ...metadata(part.callProviderMetadata),
  });
  if (approval?.id !== undefined) {
    const approvalId = approval.id;
    chunks.push({ type: 'tool-approval-request', approvalId, toolCallId });
    if (readsApprovalResponses(sdk) && approval.approved !== undefined) {
      chunks.push({ type: 'tool-approval-response', approvalId, ...given({ ...approval }, ['approved', 'reason']) });
    }
  }
  const outcome = { type: `tool-${state}`, toolCallId };
  if (state === 'output-available') {
    chunks.push({ ...outcome, output: part.output ?? null, ...metadata(part.resultProviderMetadata) });
  } else if (state === 'output-error') {
    chunks.push({ ...outcome, errorText: part.errorText ?? '' });
  } else if (state === 'output-denied') {
    chunks.push(outcome);
  }
  return chunks;
}

/** Those of the fields that are there, in this order, which is the server's. */
function given(from: { [field: string]: unknown }, fields: readonly string[]): object {
  return Object.fromEntries(fields.filter((field) => from[field] !== undefined).map((field) => [field, from[field]]));
}
