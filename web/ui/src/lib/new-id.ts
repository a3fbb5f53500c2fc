/** Ids that nobody else has, on pages of every origin. */

/** `crypto.randomUUID` is kept from pages that come over plain HTTP from another machine; its bits are not. */
export function newId(): string {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}
