/** Puts text on the clipboard, on pages of every origin. */

/** The clipboard is kept from pages that come over plain HTTP from another machine; what a user has selected is not. */
export async function copyText(text: string): Promise<void> {
  if (navigator.clipboard !== undefined) return navigator.clipboard.writeText(text);
  const { activeElement } = document;
  const field = Object.assign(document.createElement('textarea'), { value: text, readOnly: true, className: 'sr-only' });
  document.body.append(field);
  field.select();
  const isCopied = document.execCommand('copy');
  field.remove();
  if (activeElement instanceof HTMLElement) activeElement.focus();
  if (!isCopied) throw new Error('the browser does not allow copying here');
}
