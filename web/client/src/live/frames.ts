/** The frames of `/live`: reads what the server sends, and names what a client may send. */

import type { UIMessageChunk } from 'ai';

/** A text frame of the server. */
export type ServerFrame =
  | { kind: 'chunk'; chunk: UIMessageChunk }
  | { kind: 'done' }
  | { kind: 'control'; control: ControlFrame };

/** A control frame of the server; what a later one may add is passed over. */
export type ControlFrame =
  | { type: 'pong'; timestamp: unknown }
  | { type: 'error'; code: string; message: string; requestId?: string }
  | { type: 'turn-start' | 'turn-end' | 'interrupted'; turn: number }
  | { type: 'modality'; modality: Modality }
  | { type: 'reconnect'; afterMs: number };

/** What the model answers with. */
export type Modality = 'text' | 'audio';

/** How audio travels: as binary frames, or as base64 in JSON. */
export type AudioWire = 'binary' | 'json';

/** A text frame of the client. */
export type ClientFrame =
  | { type: 'message'; requestId: string; id: string; messages: readonly unknown[]; trigger: string; messageId?: string }
  | { type: 'tool_result'; toolCallId: string; result?: unknown; status?: string }
  | { type: 'audio_control'; action: 'start' | 'stop' }
  | { type: 'audio_chunk'; chunk: string; sampleRate: number; channels: number; bitDepth: number }
  | { type: 'video_frame'; data: string; mediaType: string }
  | { type: 'interrupt'; reason?: string }
  | { type: 'modality'; modality: Modality }
  | { type: 'ping'; timestamp: number }
  | { type: 'audio_config'; wire: AudioWire };

/** Reads one text frame; `undefined` where it is none. */
export function parseServerFrame(text: string): ServerFrame | undefined {
  const isEvent = text.startsWith('data:');
  const payload = isEvent ? text.slice('data:'.length).trim() : text;
  if (isEvent && payload === '[DONE]') return { kind: 'done' };
  let value: { type?: unknown } | null;
  try {
    value = JSON.parse(payload) as { type?: unknown } | null;
  } catch {
    return undefined;
  }
  if (typeof value?.type !== 'string') return undefined;
  return isEvent ? { kind: 'chunk', chunk: value as UIMessageChunk } : { kind: 'control', control: value as ControlFrame };
}
