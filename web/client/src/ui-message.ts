/** The types of what the bridge sends: messages with their metadata, data parts and tools. */

import type { UIMessage, UITools } from 'ai';

import type { Transcription } from './live/transcription.js';
import type { ToolProgress } from './tool-progress.js';

/** Tokens of all model calls of a reply together. */
export interface BridgeUsage {
  inputTokens?: number;
  outputTokens?: number;
  totalTokens?: number;
  reasoningTokens?: number;
  cachedInputTokens?: number;
}

/** The metadata of an assistant's message; a key that has nothing to say is absent. */
export interface BridgeMetadata {
  usage?: BridgeUsage;
  modelVersion?: string;
  /** The ADK agent that spoke last. */
  author?: string;
  /** The model's own word, such as `STOP`. */
  agentFinishReason?: string;
  groundingMetadata?: unknown;
  citationMetadata?: unknown;
  customMetadata?: unknown;
  /** Changes of the ADK session's state. */
  stateDelta?: Record<string, unknown>;
  /** What an ADK agent says to its questions, by `toolCallId`. */
  questions?: Record<string, { hint?: string; payload?: unknown }>;
  /** Only where the answer did not come to its end. */
  ended?: 'failed' | 'stopped' | 'superseded' | 'too-long' | 'interrupted';
}

/** The data parts, by what follows `data-` in their type. A type, since an interface is no `UIDataTypes`. */
export type BridgeDataParts = {
  /** The model's speech; transient. */
  pcm: { chunk: string; sampleRate: number; turn: number };
  /** The user's speech as text; transient. */
  transcription: Transcription;
  /** How far a running tool is; transient. */
  'tool-progress': ToolProgress;
  'executable-code': { code?: string; language?: string };
  'code-execution-result': { outcome?: string; output?: string };
  /** Dialect `adk` only. */
  image: { mediaType: string; data?: string; url?: string };
};

/** The tools that the bridge itself shows. */
export type BridgeTools = {
  /** How dialect `adk` asks for an approval. */
  adk_request_confirmation: {
    input: {
      originalFunctionCall: { id: string; name: string; args: unknown };
      toolConfirmation: { hint?: string; confirmed: boolean; payload?: unknown };
    };
    output: { confirmed: boolean; payload?: unknown };
  };
  /** An ADK agent asks its user for something, or an MCP server (`server`) whose tool runs for a call (`functionCallId`). */
  adk_request_input: {
    input: { message?: string; response_schema?: unknown; server?: string; functionCallId?: string };
    output: unknown;
  };
};

/**
 * A message of the bridge: `useChat<BridgeUIMessage>()`.
 *
 * `Tools` are those of the agent, as `{ name: { input: …; output: … } }`; without them every tool is known by name only.
 */
export type BridgeUIMessage<Tools extends UITools = UITools> = UIMessage<
  BridgeMetadata,
  BridgeDataParts,
  string extends keyof Tools ? Tools : Tools & BridgeTools
>;
