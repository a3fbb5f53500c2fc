// Approvals as conversations in a table, played in both dialects.

import assert from 'node:assert/strict';

import { CONFIRMATION, Session, nameOf, toolsOf } from './session.mjs';

const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';
const SEARCH = 'call search_database {"query":"all users"}';
const UPDATE = 'call update_database {"query":"all users","set":"status = inactive"}';
const TRACK = 'call change_bgm {"track_name":"jazz"}';
const WEATHER = 'call get_weather {"location":"Tokyo"}';

const NO = { approved: false, reason: 'too expensive today' };

/**
 * Each round answers all questions of one pause, in the order in which they are written, and supplies outputs where a
 * client tool was approved; `states` and `text` are what the reply comes to. Every round is one request.
 */
export const APPROVALS = [
  {
    name: 'approved',
    say: PAY,
    rounds: [{ process_payment: true }],
    states: { process_payment: 'output-available' },
    text: /Paid 50 USD to Hanako/,
  },
  {
    name: 'denied with a reason',
    say: PAY,
    rounds: [{ process_payment: NO }],
    states: { process_payment: 'output-denied' },
    text: /declined process_payment \(too expensive today\)/,
  },
  {
    name: 'denied without a reason',
    say: `say one moment then ${PAY}`,
    rounds: [{ process_payment: false }],
    states: { process_payment: 'output-denied' },
    text: /one moment.*declined process_payment, so/,
  },
  {
    name: 'two in parallel, both approved',
    say: `${PAY} && ${SEARCH}`,
    rounds: [{ process_payment: true, search_database: true }],
    states: { process_payment: 'output-available', search_database: 'output-available' },
    text: /Paid 50.*Found 10 users/,
  },
  {
    name: 'two in parallel, answered backwards and differently',
    say: `${PAY} && ${SEARCH}`,
    rounds: [{ search_database: NO, process_payment: true }],
    states: { process_payment: 'output-available', search_database: 'output-denied' },
    text: /Paid 50.*declined search_database/,
  },
  {
    name: 'two in parallel, both denied',
    say: `${PAY} && ${SEARCH}`,
    rounds: [{ process_payment: false, search_database: NO }],
    states: { process_payment: 'output-denied', search_database: 'output-denied' },
    text: /declined process_payment.*declined search_database/,
  },
  {
    name: 'three in parallel, mixed',
    say: `${PAY} && ${SEARCH} && ${UPDATE}`,
    rounds: [{ search_database: true, update_database: NO, process_payment: true }],
    states: {
      process_payment: 'output-available',
      search_database: 'output-available',
      update_database: 'output-denied',
    },
    text: /Paid 50.*Found 10 users.*declined update_database/,
  },
  {
    name: 'a server tool beside a question',
    say: `${WEATHER} && ${PAY}`,
    rounds: [{ process_payment: true }],
    states: { get_weather: 'output-available', process_payment: 'output-available' },
    text: /in Tokyo.*Paid 50/,
  },
  {
    name: 'one after the other',
    say: 'search the database and update it',
    rounds: [{ search_database: true }, { update_database: true }],
    states: { search_database: 'output-available', update_database: 'output-available' },
    text: /Found 10 users.*[Uu]pdated/,
  },
  {
    name: 'one after the other, the second denied',
    say: `${SEARCH} then ${UPDATE}`,
    rounds: [{ search_database: true }, { update_database: NO }],
    states: { search_database: 'output-available', update_database: 'output-denied' },
    text: /Found 10 users.*declined update_database/,
  },
  {
    name: 'one after the other, the first denied',
    say: `say first then ${SEARCH} then say second then ${UPDATE}`,
    rounds: [{ search_database: NO }, { update_database: true }],
    states: { search_database: 'output-denied', update_database: 'output-available' },
    text: /first.*second.*[Uu]pdated/,
  },
  {
    name: 'a client tool denied',
    say: TRACK,
    rounds: [{ change_bgm: NO }],
    states: { change_bgm: 'output-denied' },
    text: /declined change_bgm/,
  },
  {
    name: 'a tool that fails after it was approved',
    say: 'call process_payment {"amount":5000,"recipient":"Hanako"}',
    rounds: [{ process_payment: true }],
    states: { process_payment: 'output-error' },
    text: /process_payment did not work/,
  },
];

export const approvalTests = [
  ...APPROVALS.map((approval) => [
    `approvals, ${approval.name}`,
    async (kit, { usual }) => {
      // A client of version 7 may ask for that version's own chunks.
      for (const sdk of kit.sdk === 7 ? [undefined, 7] : [undefined]) {
        const session = new Session(usual, kit, { sdk });
        await play(session, approval);
        await session.check({ posts: approval.rounds.length + 1 });
      }
    },
  ]),
  ['approvals, approve and deny are the same requests in the same order', sameRequests],
];

/** Plays an approval of the table and checks what it comes to. */
export async function play(session, { say, rounds, states, text }) {
  await session.say(say);
  for (const [index, round] of rounds.entries()) {
    const asked = session.questions.map((question) => question.tool).sort();
    assert.deepEqual(asked, Object.keys(round).sort());
    for (const [tool, verdict] of Object.entries(round)) {
      assert.equal(session.posts.length, index + 1, 'sent before the last question was answered');
      assert.equal(session.chat.status, 'ready');
      await session.answer(tool, verdict);
    }
    await session.rest();
  }
  assert.equal(session.chat.messages.length, 2);
  const calls = session.tools.filter((part) => nameOf(part) !== CONFIRMATION);
  const found = Object.fromEntries(calls.map((part) => [nameOf(part), part.state]));
  assert.deepEqual(found, states);
  assert.match(session.text.replaceAll('\n', ' '), text);
}

/** For both answers: the same bodies but for the answer itself. */
async function sameRequests(kit, { usual }) {
  for (const dialect of [undefined, 'adk']) {
    const bodies = [];
    for (const verdict of [true, false]) {
      const session = new Session(usual, kit, { dialect });
      await session.say(`${SEARCH} then ${UPDATE}`);
      for (const tool of ['search_database', 'update_database']) {
        await session.answer(tool, verdict);
        await session.rest();
      }
      await session.check();
      bodies.push(session.posts.map(({ body }) => ({ trigger: body.trigger, states: statesOf(body.messages.at(-1)) })));
    }
    assert.equal(bodies[0].length, 3);
    assert.deepEqual(normal(bodies[0]), normal(bodies[1]));
  }
}

function statesOf(message) {
  return toolsOf(message).map((part) => [nameOf(part), part.state]);
}

/** A denied call shows another state than one that was run; which call is where must not differ. */
function normal(bodies) {
  const settled = (state) => (state.startsWith('output-') ? 'settled' : state);
  return bodies.map(({ trigger, states }) => ({ trigger, states: states.map(([tool, state]) => [tool, settled(state)]) }));
}
