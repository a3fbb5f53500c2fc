/** Where the keyboard goes when a question has been answered: to the next question, or back to the message field. */

/** Moves the focus only if the keyboard had it in `question`: a touch must not call up the phone's keyboard. */
export function focusNextQuestion(question: HTMLElement): void {
  const { activeElement } = document;
  if (!question.contains(activeElement) || activeElement?.matches(':focus-visible') !== true) return;
  const all = [...document.querySelectorAll<HTMLElement>('[data-question]')];
  const next = all[all.indexOf(question) + 1] ?? all.find((other) => other !== question);
  (next ?? document.getElementById('message'))?.focus();
}
