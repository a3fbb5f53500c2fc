/** A `WebSocket` that writes down its frames for the inspector. */
import { beginRequest, endRequest, logChunk } from './chunk-log';

export function loggingWebSocket(chat: string): typeof WebSocket {
  return class extends WebSocket {
    readonly #request = beginRequest(chat, 'websocket', 'connect');

    constructor(url: string | URL, protocols?: string | string[]) {
      super(url, protocols);
      this.addEventListener('message', ({ data }: MessageEvent<unknown>) => this.#note('in', data));
      this.addEventListener('close', () => endRequest(this.#request));
    }

    override send(data: Parameters<WebSocket['send']>[0]): void {
      this.#note('out', data);
      super.send(data);
    }

    #note(direction: 'in' | 'out', data: unknown): void {
      if (typeof data !== 'string') {
        logChunk(this.#request, direction, 'binary', { bytes: sizeOf(data) }, sizeOf(data));
        return;
      }
      const text = data.replace(/^data: /, '').trim();
      const value = parsed(text);
      logChunk(this.#request, direction, typeOf(value), value, text.length);
    }
  };
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function typeOf(value: unknown): string {
  if (typeof value === 'object' && value !== null && 'type' in value) return String(value.type);
  return String(value).slice(0, 20);
}

function sizeOf(data: unknown): number {
  if (data instanceof Blob) return data.size;
  return data instanceof ArrayBuffer || ArrayBuffer.isView(data) ? data.byteLength : 0;
}
