/**
 * Holding a key to speak: Cmd or Ctrl alone, from press to release.
 *
 * A release is not always reported: Cmd+Tab swallows it, and so does a window that loses the focus. Any other key means
 * a shortcut, not speech: the key counts only when it has been held for a moment alone.
 *
 * ```text
 *          key down              a moment alone
 *   idle ────────────▶ waiting ─────────────────▶ pressed
 *    ▲                    │                          │
 *    └────────────────────┴──────────────────────────┘
 *      key up, another key, window left: reported only if `pressed`
 * ```
 */

/** Options of {@link PushToTalk}. */
export interface PushToTalkOptions {
  onPress: () => void;
  /** `isCancelled` where another key made a shortcut of it. */
  onRelease: (isCancelled: boolean) => void;
  /** The keys that count, as `KeyboardEvent.key`; Cmd and Ctrl if left out. */
  keys?: readonly string[] | undefined;
  /** How long it is held before it counts; 200 ms if left out. */
  holdMs?: number | undefined;
  /** Where keys are listened to; the window if left out. */
  target?: Window | undefined;
}

const KEYS = ['Meta', 'Control'];
/** Both keys of a shortcut are down sooner; what is said meanwhile is in the recorder's pre-roll of 300 ms. */
const HOLD_MS = 200;

/** Listens for a key that is held to speak. */
export class PushToTalk {
  readonly #options: PushToTalkOptions;
  readonly #keys: ReadonlySet<string>;
  readonly #listening = new AbortController();
  #held: string | undefined;
  #waiting: ReturnType<typeof setTimeout> | undefined;
  #isPressed = false;

  constructor(options: PushToTalkOptions) {
    this.#options = options;
    this.#keys = new Set(options.keys ?? KEYS);
    const target = options.target ?? window;
    const { signal } = this.#listening;
    target.addEventListener('keydown', (event) => this.#down(event), { signal, capture: true });
    target.addEventListener('keyup', (event) => this.#up(event), { signal, capture: true });
    target.addEventListener('blur', () => this.#release(false), { signal });
    target.document.addEventListener('visibilitychange', () => this.#release(false), { signal });
  }

  /** Whether the key is held to speak. */
  get isHeld(): boolean {
    return this.#isPressed;
  }

  /** Listens no more; a held key counts as released. */
  close(): void {
    this.#release(false);
    this.#listening.abort();
  }

  #down(event: KeyboardEvent): void {
    if (this.#held !== undefined) {
      if (event.key !== this.#held) this.#release(true);
      return;
    }
    if (event.repeat || !this.#keys.has(event.key) || event.altKey || event.shiftKey) return;
    // Another modifier that is down already makes a shortcut of it.
    if (event.key === 'Meta' ? event.ctrlKey : event.metaKey) return;
    this.#held = event.key;
    this.#waiting = setTimeout(() => {
      this.#isPressed = true;
      this.#options.onPress();
    }, this.#options.holdMs ?? HOLD_MS);
  }

  #up({ key }: KeyboardEvent): void {
    if (key === this.#held) this.#release(false);
  }

  #release(isCancelled: boolean): void {
    if (this.#held === undefined) return;
    this.#held = undefined;
    clearTimeout(this.#waiting);
    if (!this.#isPressed) return;
    this.#isPressed = false;
    this.#options.onRelease(isCancelled);
  }
}
