/** Where the keyboard goes when a question is gone: to the next one if it was answered, else to the message field. */
import { type RefObject, useLayoutEffect } from 'react';

/** Moves the focus only if the keyboard had it in `question`: a touch must not call up the phone's keyboard. */
export function focusNextQuestion(question: HTMLElement): void {
  const { activeElement } = document;
  if (!question.contains(activeElement) || activeElement?.matches(':focus-visible') !== true) return;
  const all = [...document.querySelectorAll<HTMLElement>('[data-question]')];
  const next = all[all.indexOf(question) + 1] ?? all.find((other) => other !== question);
  (next ?? document.getElementById('message'))?.focus();
}

/**
 * Keeps the keyboard focus on the page when a question disappears on its own: it expired, or was answered elsewhere.
 *
 * The next question would be the wrong place: a key that was meant for this one would answer it.
 */
export function useFocusAfter(question: RefObject<HTMLElement | null>): void {
  useLayoutEffect(() => {
    const box = question.current;
    return () => {
      const { activeElement } = document;
      if (box?.contains(activeElement) !== true || activeElement?.matches(':focus-visible') !== true) return;
      document.getElementById('message')?.focus({ preventScroll: true });
    };
  }, [question]);
}
