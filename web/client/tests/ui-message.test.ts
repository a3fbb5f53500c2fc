/** The types of messages: what the compiler takes and refuses, with both versions of the SDK, and that they are all there. */

import { readFileSync } from 'node:fs';
import { Chat } from '@ai-sdk/react';
import { DefaultChatTransport } from 'ai';
import { describe, expect, it } from 'vitest';

import type { BridgeDataParts, BridgeMetadata, BridgeTools, BridgeUIMessage, BridgeUsage } from '../src/index.js';

// Every key is named once: one that a type gains or loses does not compile.
const METADATA: Record<keyof BridgeMetadata, true> = {
  usage: true,
  modelVersion: true,
  author: true,
  agentFinishReason: true,
  groundingMetadata: true,
  citationMetadata: true,
  customMetadata: true,
  stateDelta: true,
  questions: true,
  ended: true,
};
const USAGE: Record<keyof BridgeUsage, true> = {
  inputTokens: true,
  outputTokens: true,
  totalTokens: true,
  reasoningTokens: true,
  cachedInputTokens: true,
};
const DATA_PARTS: Record<keyof BridgeDataParts, true> = {
  pcm: true,
  transcription: true,
  'tool-progress': true,
  'executable-code': true,
  'code-execution-result': true,
  image: true,
};
const TOOLS: Record<keyof BridgeTools, true> = { adk_request_confirmation: true, adk_request_input: true };

describe('BridgeUIMessage', () => {
  it('has what PROTOCOL.md names', () => {
    const page = readFileSync(new URL('../../../PROTOCOL.md', import.meta.url), 'utf8');
    const rows = (heading: string) => {
      const section = page.split(`### ${heading}\n`)[1]?.split('\n#')[0] ?? '';
      return [...section.matchAll(/^\| `([^`]+)`/gm)].map(([, name]) => name);
    };
    const usage = Object.keys(USAGE).map((key) => `usage.${key}`);
    expect(rows('Message metadata').sort()).toEqual([...Object.keys(METADATA), ...usage].sort());
    expect(rows('Data parts').sort()).toEqual(
      Object.keys(DATA_PARTS)
        .map((key) => `data-${key}`)
        .sort(),
    );
    for (const tool of Object.keys(TOOLS)) expect(page).toContain(tool);
  });

  it('is a message that stock chats take', () => {
    type Tools = { process_payment: { input: { amount: number; recipient: string }; output: { paid: boolean } } };
    const chat = new Chat<BridgeUIMessage<Tools>>({ transport: new DefaultChatTransport({ api: '/api/chat' }) });
    const seen: string[] = [];
    const look = (message: BridgeUIMessage<Tools>) => {
      seen.push(message.metadata?.ended ?? 'whole', String(message.metadata?.usage?.inputTokens));
      for (const part of message.parts) {
        if (part.type === 'tool-process_payment' && part.state === 'approval-requested') {
          seen.push(part.input.recipient, part.approval.id);
        } else if (part.type === 'tool-adk_request_confirmation' && part.state === 'approval-requested') {
          seen.push(part.input.originalFunctionCall.name);
        } else if (part.type === 'data-image') {
          seen.push(part.data.mediaType);
          // @ts-expect-error There is no such field.
          seen.push(part.data.width);
        }
        // @ts-expect-error Nor such a tool.
        if (part.type === 'tool-send_email') seen.push(part.state);
      }
      // @ts-expect-error Nor such an end.
      if (message.metadata?.ended === 'finished') seen.push('never');
    };
    look({
      id: 'm1',
      role: 'assistant',
      metadata: { usage: { inputTokens: 3 } },
      parts: [
        {
          type: 'tool-process_payment',
          toolCallId: 'c1',
          state: 'approval-requested',
          input: { amount: 5, recipient: 'Hanako' },
          approval: { id: 'a1' },
        },
        { type: 'data-image', data: { mediaType: 'image/png', url: '/api/files/1' } },
      ],
    });
    expect(seen).toEqual(['whole', '3', 'Hanako', 'a1', 'image/png', undefined]);
    expect(chat.messages).toEqual([]);
  });

  it('knows every tool by name where none are named', () => {
    const message: BridgeUIMessage = {
      id: 'm1',
      role: 'assistant',
      parts: [{ type: 'tool-anything', toolCallId: 'c1', state: 'input-available', input: { a: 1 } }],
    };
    const [part] = message.parts;
    expect(part?.type === 'tool-anything' && part.state).toBe('input-available');
  });
});
