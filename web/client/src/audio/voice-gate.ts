/** Lets recorded pieces through while somebody speaks, with what was said just before the detector was sure. */

import type { RecordedChunk } from './recorder-core.js';

/** Half a second of pieces of 20 ms: longer than any detector takes. */
const PRE_ROLL_CHUNKS = 25;

export class VoiceGate {
  readonly #onChunk: (chunk: RecordedChunk) => void;
  #before: RecordedChunk[] = [];
  #isOpen = false;

  constructor(onChunk: (chunk: RecordedChunk) => void) {
    this.#onChunk = onChunk;
  }

  push(chunk: RecordedChunk): void {
    if (this.#isOpen) {
      this.#onChunk(chunk);
      return;
    }
    this.#before.push(chunk);
    if (this.#before.length > PRE_ROLL_CHUNKS) this.#before.shift();
  }

  open(): void {
    if (this.#isOpen) return;
    this.#isOpen = true;
    for (const chunk of this.#before.splice(0)) this.#onChunk({ ...chunk, preRoll: true });
  }

  close(): void {
    this.#before = [];
    if (!this.#isOpen) return;
    this.#isOpen = false;
    this.#onChunk({ samples: new Int16Array(), preRoll: false, last: true });
  }
}
