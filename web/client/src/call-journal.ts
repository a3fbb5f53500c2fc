/** Remembers across reloads and tabs which calls of client tools were started, and what came of them. */

/** What is asked of a storage; `localStorage` fits. */
export interface JournalStorage {
  getItem(key: string): string | null;
  setItem(key: string, value: string): void;
}

/** What came of a call. */
export type CallOutcome = { output: unknown } | { errorText: string };

interface Entry {
  key: string;
  outcome?: CallOutcome;
}

const STORAGE_KEY = 'adk-bridge:client-tool-calls';

/** More calls than one page has open at once; older ones are settled. */
const MAX_ENTRIES = 200;

/** All entries together must fit into a storage of about five megabytes; a larger output (a photo) is not kept for a reload. */
const MAX_OUTCOME_CHARACTERS = 8_000;

const INTERRUPTED: CallOutcome = {
  errorText: 'the page was closed while the tool ran; it is unknown whether it had an effect',
};

/** The browser's storage for all tabs, or `null` where there is none or it is forbidden. */
export function defaultStorage(): JournalStorage | null {
  try {
    return globalThis.localStorage ?? null;
  } catch {
    return null;
  }
}

/** The calls that were started, by a key of chat and call. */
export class CallJournal {
  readonly #storage: JournalStorage | null;

  constructor(storage: JournalStorage | null) {
    this.#storage = storage;
  }

  /** Runs `task` unless another tab is at the same call; that one then reports. */
  async alone(key: string, task: () => Promise<void>): Promise<void> {
    const locks = this.#storage === null ? undefined : globalThis.navigator?.locks;
    if (locks === undefined) return task();
    await locks.request(`${STORAGE_KEY}/${key}`, { ifAvailable: true }, (lock) => (lock === null ? undefined : task()));
  }

  /** What an earlier run left: its outcome, that it was interrupted, or `undefined` where the call never ran. */
  outcome(key: string): CallOutcome | undefined {
    const entry = this.#read().find((entry) => entry.key === key);
    return entry === undefined ? undefined : (entry.outcome ?? INTERRUPTED);
  }

  /** Notes that a call is about to run. */
  started(key: string): void {
    this.#write({ key });
  }

  /** Notes what came of a call, and returns it. */
  finished(key: string, outcome: CallOutcome): CallOutcome {
    if (JSON.stringify(outcome).length <= MAX_OUTCOME_CHARACTERS) this.#write({ key, outcome });
    return outcome;
  }

  #read(): Entry[] {
    try {
      const entries: unknown = JSON.parse(this.#storage?.getItem(STORAGE_KEY) ?? '[]');
      return Array.isArray(entries) ? (entries as Entry[]) : [];
    } catch {
      return [];
    }
  }

  #write(entry: Entry): void {
    const others = this.#read().filter((other) => other.key !== entry.key);
    const entries = [...others.slice(1 - MAX_ENTRIES), entry];
    try {
      this.#storage?.setItem(STORAGE_KEY, JSON.stringify(entries));
    } catch {
      // A full or forbidden storage costs the memory of a reload, not the call.
    }
  }
}
