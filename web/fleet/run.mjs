// One run: people talk, replicas die, and every conversation is judged.

import { appendFileSync } from 'node:fs';

import { CONVERSATIONS } from './conversations.mjs';
import { Disturber } from './disturb.mjs';
import { USERS } from './fleet.mjs';
import { judge } from './judge.mjs';
import { PAGES } from './pages.mjs';
import { Person } from './person.mjs';
import { Random } from './random.mjs';

// Enough that something of everything is going on, and that two cores are not the reason for what happens.
const AT_ONCE = 10;
const JOURNAL_LOOK_MS = 10;
/** How much must have happened during a conversation to excuse it. A step that was lost five times is not asked again. */
const HITS_FOR = { unknown: 1, late: 1, unasked: 1, regenerated: 5 };
/** What a page may show when a connection breaks or its chat moves: whoever reads it knows what has happened, or what to do. */
const CLEAR = [
  /^(fetch failed|terminated|network error|other side closed)$/,
  /^(WebSocket chat )?network connection (lost|closed)\b/,
  // Of the balancer itself.
  /\b(Bad Gateway|Service Unavailable|Gateway Time-?out)\b/,
  /\b(try again|load the chat again|send it again|resume it)\b/,
];
/** A chat of which nothing has arrived, one that has moved, one whose message is being stored. No server error but 502 to 504. */
const EXPECTED_REFUSALS = [404, 409, 502, 503, 504];
// Conversations take a few seconds; the failure of one that does not end is its own.
const MORE_LIMIT_MS = 60_000;

/** Every conversation with every page; dialect `adk` needs the library's predicate. */
function everyCase() {
  const cases = CONVERSATIONS.flatMap((conversation) =>
    PAGES.flatMap((page) => [undefined, 'adk'].map((dialect) => ({ conversation, page, dialect }))),
  );
  return cases.filter(({ page, dialect }) => page.library || dialect === undefined);
}

/** Holds each conversation once while nothing happens; what is stored of it, by conversation and dialect. */
async function undisturbed(fleet, random, cases) {
  const expected = new Map();
  const jobs = [...new Map(cases.map((it) => [keyOf(it), it])).values()];
  await inParallel(AT_ONCE, jobs, async (job) => {
    const person = new Person({ fleet, ...job, user: USERS[0], random: random.branch() });
    try {
      await person.talk();
      const stored = await person.api.messages(person.id, job.dialect ? `?dialect=${job.dialect}` : '');
      expected.set(keyOf(job), stored);
      await judge(person, stored);
    } catch (problem) {
      problem.message = `undisturbed: ${problem.message}\n${person.story()}`;
      throw problem;
    }
  });
  return expected;
}

const keyOf = ({ conversation, dialect }) => `${conversation.name} ${dialect ?? 'native'}`;

/**
 * Lets people talk while `act({ disturber, log, someMore })` happens to the fleet, and judges every conversation; `someMore`
 * waits until some more of them have come to their end.
 *
 * `only` chooses conversations by a part of their name, `people` is how many talk at once, `isCalm`: nothing happens but what
 * the disturber does. The story of a conversation that failed, with what happened to replicas meanwhile, is added to the file
 * `stories`. Returns counts and failures.
 */
export async function underLoad(fleet, options, act) {
  const { seed, only = '', people = AT_ONCE, skip = [], isCalm = true, report = () => {}, stories } = options;
  const random = new Random(seed);
  const began = Date.now();
  const events = [];
  const log = (text) => {
    events.push({ at: Date.now(), text });
    report(`${((Date.now() - began) / 1000).toFixed(1)} s  ${text}`);
  };
  const cases = everyCase().filter(
    (it) => `${keyOf(it)}, ${it.page.name}`.includes(only) && !skip.includes(it.conversation.name),
  );
  const expected = await undisturbed(fleet, random.branch(), cases);
  log(`${expected.size} conversations held undisturbed`);

  const disturber = new Disturber(fleet, random.branch(), log);
  const talking = new Set();
  const watch = watchJournal(fleet, (call) =>
    disturber.happened(
      'paying',
      [...talking].find((person) => person.has(call)),
    ),
  );
  let isOver = false;
  const failures = [];
  const counts = { conversations: 0, breaks: 0, remarks: {}, errors: {}, refusals: {} };
  const count = (table, key) => (table[key] = (table[key] ?? 0) + 1);
  const talk = async (own) => {
    const happened = (moment, who) => disturber.happened(moment, who);
    const person = new Person({ fleet, ...own.oneOf(cases), user: own.oneOf(USERS), random: own.branch(), happened });
    talking.add(person);
    try {
      await person.talk();
      const hits = () => disturber.times.filter((at) => at >= person.began).length;
      for (const remark of await settledJudge(person, expected.get(keyOf(person)))) {
        count(counts.remarks, remark);
        log(`${remark}: ${person.name} ${person.id}`);
        if (hits() < HITS_FOR[remark] && isCalm) throw person.violation(`${remark} after ${hits()} disturbances`);
      }
    } catch (problem) {
      failures.push({ name: person.name, problem });
      appendFileSync(stories, `==== ${person.name}\n${problem.stack}\n${storyOf(person, events)}\n`);
      log(`FAILED ${person.name} ${person.id}: ${problem.message.split('\n')[0]}`);
    }
    talking.delete(person);
    counts.conversations += 1;
    counts.breaks += person.breaks;
    for (const error of person.errors) count(counts.errors, error);
    for (const status of person.statuses.filter((status) => status >= 400)) count(counts.refusals, status);
  };
  const someMore = async () => {
    const enough = counts.conversations + people;
    for (const end = Date.now() + MORE_LIMIT_MS; counts.conversations < enough && Date.now() < end; ) await pause(50);
  };
  const crowd = Array.from({ length: people }, async () => {
    for (const own = random.branch(); !isOver; ) await talk(own);
  });
  try {
    await act({ disturber, log, someMore });
  } finally {
    isOver = true;
    await Promise.all(crowd);
    watch.stop();
  }
  for (const replica of fleet.replicas.filter(({ hasDied }) => hasDied)) {
    failures.push({ name: replica.name, problem: new Error(`${replica.name} died on its own:\n${replica.log().slice(-4_000)}`) });
  }
  for (const error of Object.keys(counts.errors).filter((text) => !CLEAR.some((words) => words.test(text)))) {
    failures.push({ name: 'a page', problem: new Error(`an error that tells nobody what to do: ${error}`) });
  }
  for (const status of Object.keys(counts.refusals).filter((status) => !EXPECTED_REFUSALS.includes(Number(status)))) {
    failures.push({ name: 'a page', problem: new Error(`the status ${status}`) });
  }
  for (const row of await fleet.strangers()) {
    const text = `${row.replica} wrote ${row.kind} of ${row.chat}, which ${row.owner ?? 'nobody'} owned`;
    failures.push({ name: row.replica, problem: new Error(text) });
  }
  return {
    seed,
    ...counts,
    disturbances: disturber.counts,
    failures,
    faults: fleet.faults(),
    seconds: (Date.now() - began) / 1000,
  };
}

function storyOf(person, events) {
  const meanwhile = events
    .filter(({ at }) => at >= person.began)
    .map(({ at, text }) => `${String(at - person.began).padStart(6)} ms  ${text}`);
  const evidence = JSON.stringify(person.evidence ?? {}, undefined, 1);
  return [person.story(), 'meanwhile:', ...meanwhile, `evidence: ${evidence}`].join('\n');
}

/** Judges at a replica that answers: one may be dying just then, which is no fault of the conversation. */
async function settledJudge(person, expected) {
  for (let attempt = 0; ; attempt += 1) {
    try {
      return await judge(person, expected);
    } catch (problem) {
      if (problem.name === 'AssertionError' || attempt > 100) throw problem;
      await pause(200);
    }
  }
}

/** Tells when the shop begins a payment, and of which call. */
function watchJournal(fleet, begun) {
  let seen = fleet.journalFrom(0).end;
  const timer = setInterval(() => {
    const { lines, end } = fleet.journalFrom(seen);
    for (const { event, key } of lines) if (event === 'begun') begun(key);
    seen = end;
  }, JOURNAL_LOOK_MS);
  return { stop: () => clearInterval(timer) };
}

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export async function inParallel(limit, jobs, work) {
  const rest = [...jobs];
  const worker = async () => {
    for (let job; (job = rest.shift()) !== undefined; ) await work(job);
  };
  await Promise.all(Array.from({ length: limit }, worker));
}

/** A run in one line. */
export function describe({ failures, faults, ...rest }) {
  return JSON.stringify({ ...rest, failures: failures.length, faults: faults.length });
}
