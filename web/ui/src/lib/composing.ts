/** Keys that belong to a word in the making (Japanese, Chinese, Korean), and mean nothing to the page. */

/** Safari tells the key that ends a composition after it has ended; only this code gives it away. */
const COMPOSITION_KEY_CODE = 229;

/** Whether a key belongs to the input method: Enter takes a word, Escape gives it up. */
export function isComposing({ isComposing, keyCode }: Pick<KeyboardEvent, 'isComposing' | 'keyCode'>): boolean {
  return isComposing || keyCode === COMPOSITION_KEY_CODE;
}
