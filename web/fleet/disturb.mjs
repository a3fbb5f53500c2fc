// What happens to replicas: a kill, a planned end, a pause longer than the lease. When and to whom is up to chance.

/** Moments in a conversation that are worth a kill, with the longest delay after them. */
const MOMENTS = [
  { moment: 'text', weight: 3, delayMs: 120 },
  { moment: 'sent', weight: 2, delayMs: 25 },
  { moment: 'asked', weight: 1, delayMs: 20 },
  { moment: 'decided', weight: 4, delayMs: 60 },
  { moment: 'paying', weight: 3, delayMs: 220 },
  { moment: 'broken', weight: 2, delayMs: 2_500 },
  { moment: 'ended', weight: 1, delayMs: 5 },
];
const KINDS = [
  { kind: 'kill', weight: 6 },
  { kind: 'terminate', weight: 2 },
  { kind: 'pause', weight: 3 },
];
// A moment that does not come is not waited for.
const MOMENT_LIMIT_MS = 3_000;
// How much longer than the lease a replica is paused: it wakes as somebody whose chats belong to others.
const OVERSLEPT_MS = 1_500;
const LONGEST_DOWN_MS = 2_500;

export class Disturber {
  #waiting;

  constructor(fleet, random, log) {
    this.fleet = fleet;
    this.random = random;
    this.log = log;
    this.counts = { kill: 0, terminate: 0, pause: 0 };
    /** When each one was. */
    this.times = [];
    this.recovering = new Set();
  }

  /** Told by people and by the shop's journal what happens now. */
  happened(moment, person) {
    if (this.#waiting?.moment === moment) this.#waiting.come({ person });
  }

  /** Disturbs so many times, then waits until every replica is there again. */
  async run(times, isOver = () => false) {
    for (let count = 0; count < times && !isOver(); count += 1) {
      const { moment, delayMs } = weighted(this.random, MOMENTS);
      const { kind } = weighted(this.random, KINDS);
      const delay = this.random.between(0, delayMs);
      const aimed = this.random.chance(0.75);
      const came = await this.#moment(moment);
      const person = came?.person;
      await after(delay);
      // One stays: with none there is nothing to judge but a start.
      while (this.#up().length < Math.min(2, this.fleet.replicas.length)) await Promise.race(this.recovering);
      const owner = aimed && person !== undefined ? await this.#ownerOf(person) : undefined;
      const replica = owner ?? this.random.oneOf(this.#up());
      const why = `${moment}${person ? ` of ${person.id}` : came ? '' : ' (not seen)'} + ${Math.round(delay)} ms`;
      this.log(`${kind} ${replica.name}${owner ? ', the owner,' : ''} at ${why}`);
      this.counts[kind] += 1;
      this.times.push(Date.now());
      const over = this.#disturb(kind, replica);
      this.recovering.add(over);
      void over.finally(() => this.recovering.delete(over));
      // Often the next one comes while the last is not got over.
      if (this.random.chance(0.6)) await over;
    }
    await Promise.all(this.recovering);
  }

  async #disturb(kind, replica) {
    const down = this.random.between(50, LONGEST_DOWN_MS);
    if (kind === 'pause') {
      replica.pause();
      await after(this.fleet.leaseMs + this.random.between(200, OVERSLEPT_MS));
      replica.wake();
    } else {
      await replica.end(kind === 'kill' ? 'SIGKILL' : 'SIGTERM');
      await after(down);
      await replica.start();
    }
    this.log(`${replica.name} is back`);
  }

  #up() {
    return this.fleet.replicas.filter(({ state }) => state === 'up');
  }

  #moment(moment) {
    return new Promise((resolve) => {
      const timer = setTimeout(() => this.#waiting.come(undefined), MOMENT_LIMIT_MS);
      const come = (what) => {
        clearTimeout(timer);
        this.#waiting = undefined;
        resolve(what);
      };
      this.#waiting = { moment, come };
    });
  }

  /** Who owns a chat now, if it is up. */
  async #ownerOf(person) {
    if (this.fleet.postgres === undefined) return undefined;
    const rows = await this.fleet.postgres
      .query(
        `SELECT name FROM adk_bridge.ownership JOIN adk_bridge.replicas ON instance = owner
         WHERE user_id = $1 AND chat_id = $2`,
        [person.user.user, person.id],
      )
      .catch(() => []);
    return this.#up().find(({ name }) => name === rows[0]?.name);
  }
}

function weighted(random, rows) {
  let rest = random.next() * rows.reduce((sum, { weight }) => sum + weight, 0);
  return rows.find(({ weight }) => (rest -= weight) < 0) ?? rows[0];
}

function after(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
