/**
 * Opens something that takes a while, and closes it at whatever moment.
 *
 * ```
 *            open()                all there
 *   closed ─────────▶ opening ─────────────▶ open
 *     ▲                  │ failed, close()    │ close()
 *     └──────────────────┴────────────────────┘ what was opened so far ends; what comes too late ends at once
 * ```
 */

/** Runs `end` when it is closed, or at once where it is closed already. */
export type OnClose = (end: () => void) => void;

export class Opening {
  #life: AbortController | undefined;
  #opened: Promise<void> | undefined;

  /**
   * Opens it with `start`, unless it is open or about to be; a failure after it was closed meanwhile is not reported.
   */
  open(start: (onClose: OnClose, signal: AbortSignal) => Promise<void>): Promise<void> {
    if (this.#opened !== undefined) return this.#opened;
    const life = new AbortController();
    const { signal } = life;
    const onClose: OnClose = (end) => (signal.aborted ? end() : signal.addEventListener('abort', end));
    this.#life = life;
    this.#opened = start(onClose, signal).catch((error: unknown) => {
      if (signal.aborted) return;
      this.close();
      throw error;
    });
    return this.#opened;
  }

  /** Lets go of everything; it can be opened again. */
  close(): void {
    this.#life?.abort();
    this.#opened = undefined;
  }
}
