/** The server's time, as far as its answers tell it, and a tick for whatever counts seconds. */
import { useSyncExternalStore } from 'react';

import { createStore } from './store';

/** HTTP dates have whole seconds: a smaller difference means nothing. */
const NOTICEABLE_MS = 2_000;

let offset = 0;

export function learnServerTime(date: string | null): void {
  const difference = Date.parse(date ?? '') - Date.now();
  if (!Number.isNaN(difference)) offset = Math.abs(difference) > NOTICEABLE_MS ? difference : 0;
}

export function serverNow(): number {
  return Date.now() + offset;
}

const second = createStore(0);
let timer: ReturnType<typeof setInterval> | undefined;
let followers = 0;

/** Renders the caller once a second. */
export function useSecond(): number {
  return useSyncExternalStore(follow, second.get);
}

function follow(listener: () => void): () => void {
  const unsubscribe = second.subscribe(listener);
  followers += 1;
  timer ??= setInterval(() => second.set((count) => count + 1), 1_000);
  return () => {
    unsubscribe();
    followers -= 1;
    if (followers === 0) {
      clearInterval(timer);
      timer = undefined;
    }
  };
}
