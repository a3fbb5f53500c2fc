// Plays the table of approvals with the AI SDK's own `Chat`.

import assert from 'node:assert/strict';

import { APPROVALS, PAY, SEARCH, UPDATE } from './approval-table.mjs';
import { CONFIRMATION, Session, nameOf, toolsOf } from './session.mjs';

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
  ...[undefined, 'adk'].flatMap((dialect) =>
    [true, false].map((verdict) => [
      `approvals, ${verdict ? 'approve' : 'deny'} one of two, then write, ${dialect ?? 'native'}`,
      (kit, { usual }) => oneOfTwo(usual, kit, dialect, verdict),
    ]),
  ),
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

/** A decision that was made counts, although the client sends it with the next message only; the rest is superseded. */
async function oneOfTwo(server, kit, dialect, verdict) {
  const session = new Session(server, kit, { dialect });
  await session.say(`${PAY} && ${SEARCH}`);
  await session.answer('process_payment', verdict);
  await session.rest();
  assert.equal(session.posts.length, 1, 'the predicate waits for the other answer');
  await session.say('say go on');
  assert.equal(session.text, 'go on');
  assert.equal(session.chat.messages.length, 4);
  assert.equal(session.posts.length, 2);

  const [, reply] = await server.messages(session.id);
  const states = Object.fromEntries(toolsOf(reply).map((part) => [nameOf(part), part.state]));
  assert.deepEqual(states, {
    process_payment: verdict ? 'output-available' : 'output-denied',
    search_database: 'output-error',
  });
  const rows = await server.audit(session.id);
  const kinds = rows.map((row) => `${row.kind} ${row.toolName}`).filter((row) => !row.startsWith('approval.requested'));
  const decided = verdict
    ? ['approval.approved process_payment', 'tool.started process_payment', 'tool.finished process_payment']
    : ['approval.denied process_payment'];
  assert.deepEqual(kinds.sort(), [...decided, 'approval.superseded search_database'].sort());

  // What the client still shows is repeated with the next message, and nothing comes of it.
  await session.say('say again');
  assert.equal(session.text, 'again');
  assert.equal((await server.audit(session.id)).length, rows.length);
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
