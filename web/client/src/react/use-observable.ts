/** Renders with the value of an observable. */

import { useSyncExternalStore } from 'react';

import type { Observable } from '../value.js';

/** The value of this moment; a change renders again. */
export function useObservable<T>(observable: Observable<T>): T {
  return useSyncExternalStore(observable.subscribe, observable.get, observable.get);
}

/** An observable that never changes. */
export function constant<T>(value: T): Observable<T> {
  return { get: () => value, subscribe: () => () => {} };
}
