// Dialect `adk` with the predicate of docs/adr/0009: nothing is shown before the last answer, everything after it.

import assert from 'node:assert/strict';

import { APPROVALS } from './approval-table.mjs';
import { play } from './approvals.mjs';
import { CONFIRMATION, Session, nameOf } from './session.mjs';

// What a client of this dialect takes for the end of the answer, or for a result.
const HELD = /^(text-|reasoning-|tool-output-|file$|data-)/;

export const adkTests = [
  ...APPROVALS.map((approval) => [
    `adk, ${approval.name}`,
    async (kit, { usual }) => {
      const session = new Session(usual, kit, { dialect: 'adk' });
      await play(session, approval);
      checkHeld(session);
      checkConfirmations(session, approval);
      await session.check({ posts: approval.rounds.length + 1 });
    },
  ]),
  ['adk, text and an image without a question', withoutQuestion],
  ['adk, an approved client tool sends its answer and its output at once', combined],
  ['adk, a client tool without approval', clientTool],
  ['adk, an answered question next to an open client tool', answeredNextToOpen],
  ['adk, the user types on while a question waits', typesOn],
  ['adk, a chat of native read in adk', readInAdk],
];

/** No text and no output in any answer but the last, where all of it is. */
function checkHeld(session) {
  const streams = session.streams;
  for (const chunks of streams.slice(0, -1)) {
    const early = chunks.filter((chunk) => HELD.test(chunk.type));
    assert.deepEqual(early, [], 'shown before the last answer');
  }
  const types = streams.at(-1).map((chunk) => chunk.type);
  const outputs = types.filter((type) => type.startsWith('tool-output-'));
  assert.equal(outputs.length, session.tools.length, `every call has its outcome in the last answer: ${types}`);
  const text = types.indexOf('text-start');
  assert.ok(text > types.lastIndexOf('start-step') && types.lastIndexOf('start-step') > types.lastIndexOf(outputs.at(-1)));
}

function checkConfirmations(session, { rounds }) {
  const verdicts = rounds.flatMap((round) => Object.entries(round));
  for (const [tool, verdict] of verdicts) {
    const found = session.tools.filter((part) => nameOf(part) === CONFIRMATION && part.input.originalFunctionCall.name === tool);
    assert.equal(found.length, 1);
    assert.equal(found[0].state, 'output-available');
    assert.equal(found[0].output.confirmed, verdict === true);
    assert.equal(found[0].approval.id, found[0].toolCallId);
    assert.equal(found[0].input.originalFunctionCall.id, session.tool(tool).toolCallId);
  }
}

async function withoutQuestion(kit, { usual }) {
  const session = new Session(usual, kit, { dialect: 'adk' });
  await session.say('call generate_image {"prompt":"a cat"} then say here it is');
  assert.equal(session.text, 'here it is');
  const image = session.message.parts.find((part) => part.type === 'data-image');
  assert.equal(image.data.mediaType, 'image/png');
  await session.check({ posts: 1 });
}

async function combined(kit, { usual }) {
  const session = new Session(usual, kit, { dialect: 'adk' });
  await session.say('call change_bgm {"track_name":"jazz"}');
  await session.answer('change_bgm', true);
  await session.rest();
  assert.equal(session.posts.length, 1, 'the approval waits for the output');
  await session.output('change_bgm', { success: true, track: 'jazz' });
  await session.rest();
  assert.deepEqual(session.tool('change_bgm').output, { success: true, track: 'jazz' });
  assert.match(session.text, /jazz/);
  await session.check({ posts: 2 });
}

async function clientTool(kit, { usual }) {
  const session = new Session(usual, kit, { dialect: 'adk' });
  await session.say('call pick_color {}');
  await session.output('pick_color', 'teal');
  await session.rest();
  // The bare predicate knows no client tools: the page sends automatically.
  assert.equal(session.posts.length, 1);
  void session.chat.sendMessage();
  await session.rest();
  assert.match(session.text, /teal/);
  await session.check({ posts: 2 });
}

/** The predicate stays true while nothing of the step is shown: the posts without news are held, and nothing is lost. */
async function answeredNextToOpen(kit, { usual }) {
  const session = new Session(usual, kit, { dialect: 'adk' });
  await session.say('call process_payment {"amount":50,"recipient":"Hanako"} && call pick_color {}');
  await session.answer('process_payment', true);
  await session.until(() => session.posts.length >= 3, 'the client posts again automatically');
  await session.output('pick_color', 'teal');
  await session.rest();
  assert.match(session.text, /Paid 50.*teal/s);
  await session.check();
}

async function typesOn(kit, { usual }) {
  const session = new Session(usual, kit, { dialect: 'adk' });
  await session.say('call process_payment {"amount":50,"recipient":"Hanako"}');
  await session.say('say never mind');
  assert.equal(session.text, 'never mind');
  assert.equal(session.posts.length, 2);
  const kinds = (await usual.audit(session.id)).map((row) => row.kind);
  assert.ok(kinds.includes('approval.superseded') && !kinds.includes('tool.started'), `${kinds}`);
}

/** Both dialects are views of one stored reply. */
async function readInAdk(kit, { usual }) {
  const native = new Session(usual, kit);
  await native.say('call search_database {"query":"all users"}');
  const adk = await native.reload({ dialect: 'adk' });
  await adk.rest();
  // It was loaded in the other dialect's form, so it must be loaded again.
  adk.chat.messages = await usual.messages(native.id, '?dialect=adk');
  assert.deepEqual(adk.questions, native.questions);
  await adk.answer('search_database', true);
  await adk.rest();
  assert.match(adk.text, /Found 10 users/);
  await adk.check({ posts: 1 });
}
