/** A value that components can follow: the smallest store that `useSyncExternalStore` needs. */
import { useSyncExternalStore } from 'react';

export interface Store<T> {
  get: () => T;
  set: (next: T | ((before: T) => T)) => void;
  subscribe: (listener: () => void) => () => void;
}

export function createStore<T>(initial: T): Store<T> {
  let value = initial;
  const listeners = new Set<() => void>();
  return {
    get: () => value,
    set: (next) => {
      const after = typeof next === 'function' ? (next as (before: T) => T)(value) : next;
      if (Object.is(after, value)) return;
      value = after;
      listeners.forEach((listener) => listener());
    },
    subscribe: (listener) => {
      listeners.add(listener);
      return () => listeners.delete(listener);
    },
  };
}

export function useStore<T>(store: Store<T>): T {
  return useSyncExternalStore(store.subscribe, store.get);
}

/** A store whose value outlives the page, in this browser. */
export function createKeptStore<T>(key: string, initial: T, isValid: (value: unknown) => value is T): Store<T> {
  const store = createStore(read(key, initial, isValid));
  store.subscribe(() => write(key, store.get()));
  // Another tab changed it.
  window.addEventListener('storage', (event) => {
    if (event.key === key) store.set(read(key, initial, isValid));
  });
  return store;
}

function read<T>(key: string, initial: T, isValid: (value: unknown) => value is T): T {
  try {
    const found: unknown = JSON.parse(localStorage.getItem(key) ?? 'null');
    return isValid(found) ? found : initial;
  } catch {
    return initial;
  }
}

function write(key: string, value: unknown): void {
  try {
    localStorage.setItem(key, JSON.stringify(value));
  } catch {
    // A browser that keeps nothing (private mode, full) still shows the page.
  }
}
