/** A value that can be read and watched; the shape fits React's `useSyncExternalStore`. */

/** A value that changes over time. */
export interface Observable<T> {
  /** The value of this moment. */
  get(): T;
  /** Calls `listener` after every change, until the returned function is called. */
  subscribe(listener: () => void): () => void;
}

/** The writing side of an {@link Observable}. */
export class Value<T> implements Observable<T> {
  #value: T;
  readonly #listeners = new Set<() => void>();

  constructor(value: T) {
    this.#value = value;
  }

  readonly get = (): T => this.#value;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  /** Sets the value; listeners are notified unless it is the same. */
  set(value: T): void {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of [...this.#listeners]) listener();
  }
}
