/** The binary frames of `/live`, and base64 where frames are JSON. */

/** What a binary frame carries. */
export const BINARY_KIND = { microphone: 1, model: 2, jpeg: 3 } as const;

const HEADER_BYTES = 8;
const PRE_ROLL = 1;
const LAST = 2;

/** A frame of the client. */
export interface OutgoingBinaryFrame {
  readonly kind: number;
  /** Whether it was recorded before the key was pressed. */
  readonly preRoll?: boolean;
  /** Whether it is the last of its turn. */
  readonly last?: boolean;
  readonly turn: number;
  readonly sequence: number;
  readonly payload: Uint8Array;
}

/** A frame of the server. */
export interface IncomingBinaryFrame {
  readonly kind: number;
  readonly turn: number;
  readonly samples: Int16Array;
}

/** Writes `[u8 kind][u8 flags][u16 turn][u32 sequence][payload]`, little-endian; turn and sequence wrap around. */
export function writeBinaryFrame(frame: OutgoingBinaryFrame): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(HEADER_BYTES + frame.payload.length);
  const header = new DataView(bytes.buffer);
  header.setUint8(0, frame.kind);
  header.setUint8(1, (frame.preRoll ? PRE_ROLL : 0) | (frame.last ? LAST : 0));
  header.setUint16(2, frame.turn, true);
  header.setUint32(4, frame.sequence, true);
  bytes.set(frame.payload, HEADER_BYTES);
  return bytes;
}

/** Reads a frame; `undefined` where it is too short. Half a sample at its end is dropped. */
export function readBinaryFrame(bytes: ArrayBuffer): IncomingBinaryFrame | undefined {
  if (bytes.byteLength < HEADER_BYTES) return undefined;
  const header = new DataView(bytes);
  return {
    kind: header.getUint8(0),
    turn: header.getUint16(2, true),
    // Every platform with a WebSocket is little-endian, as the frame is.
    samples: new Int16Array(bytes, HEADER_BYTES, (bytes.byteLength - HEADER_BYTES) >> 1),
  };
}

/** 16-bit little-endian samples from base64; half a sample at the end is dropped. */
export function decodePcm(base64: string): Int16Array {
  const bytes = decodeBase64(base64);
  return new Int16Array(bytes.buffer, 0, bytes.length >> 1);
}

type Base64Bytes = Uint8Array & { toBase64?: () => string };
type Base64Constructor = Uint8ArrayConstructor & { fromBase64?: (text: string) => Uint8Array<ArrayBuffer> };

/** Base64 of some bytes; natively where the browser can, which is ten times as fast. */
export function encodeBase64(bytes: Uint8Array): string {
  const native = (bytes as Base64Bytes).toBase64;
  if (native !== undefined) return native.call(bytes);
  let text = '';
  // Arguments are limited; this many are safe everywhere.
  for (let start = 0; start < bytes.length; start += 0x8000) {
    text += String.fromCharCode(...bytes.subarray(start, start + 0x8000));
  }
  return btoa(text);
}

/** The bytes of some base64. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> {
  const native = (Uint8Array as Base64Constructor).fromBase64;
  return native === undefined ? Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0)) : native.call(Uint8Array, text);
}
