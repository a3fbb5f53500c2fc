// Chance that can be repeated: the same seed makes the same choices.

export class Random {
  #state;

  constructor(seed) {
    this.#state = seed >>> 0;
  }

  /** A number from 0 up to 1: mulberry32. */
  next() {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let bits = this.#state;
    bits = Math.imul(bits ^ (bits >>> 15), bits | 1);
    bits ^= bits + Math.imul(bits ^ (bits >>> 7), bits | 61);
    return ((bits ^ (bits >>> 14)) >>> 0) / 2 ** 32;
  }

  /** A whole number below `limit`. */
  below(limit) {
    return Math.floor(this.next() * limit);
  }

  between(low, high) {
    return low + this.next() * (high - low);
  }

  oneOf(list) {
    return list[this.below(list.length)];
  }

  chance(share) {
    return this.next() < share;
  }

  /** Another source, so that what one part does changes nothing for the others. */
  branch() {
    return new Random(this.below(2 ** 32));
  }
}
