// Where flows touch: two tabs, requests that overlap, answers without words, tools held across a reload.

import assert from 'node:assert/strict';

import { Session, comparable, nameOf, textOf } from './session.mjs';

const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';
const TRACK = 'call change_bgm {"track_name":"jazz"}';
const WEATHER = 'call get_weather {"location":"Tokyo"}';
const OUTPUT = { success: true, track: 'jazz' };

/** Answers that end in another way than by words; whatever the model does, the client is left with nothing to send. */
const ENDS = [
  { say: 'empty', reason: 'stop' },
  { say: `${WEATHER} then empty`, reason: 'stop' },
  { say: 'say a few words then max tokens', reason: 'length' },
  { say: `${WEATHER} then max tokens`, reason: 'length' },
  { say: 'safety', reason: 'content-filter' },
  { say: `${WEATHER} then safety`, reason: 'content-filter' },
  { say: 'call no_such_tool {}', reason: 'stop' },
  { say: 'blocked', error: true },
  { say: 'malformed', error: true },
  { say: `${WEATHER} then blocked`, error: true },
  { say: `${WEATHER} then http 400`, error: true },
  { say: `${WEATHER} then cut`, error: true },
];

export const edgeTests = [
  ...ENDS.map((end) => [`edges, the model answers: ${end.say}`, (kit, { usual }) => endsSo(kit, usual, end)]),
  ['edges, an approval whose continuation fails, and retry', failedContinuation],
  ['edges, two tabs: one types on while the other has the question', twoTabs],
  ['edges, two tabs: both watch the answer', bothWatch],
  ['edges, two messages at once', twoMessages],
  ['edges, typed on while a tool runs', typedWhileRunning],
  ['edges, typed on while words stream', typedWhileStreaming],
  ['edges, reload while a turn is held for an output', reloadHeld],
  ['edges, output through the endpoint after the turn has ended', endpointAlone],
  ['edges, edit before a question that waits', editBeforeQuestion],
  ['edges, the wallet across replies', wallet],
];

async function endsSo(kit, server, { say, reason, error }) {
  for (const dialect of [undefined, 'adk']) {
    const session = new Session(server, kit, { dialect });
    await session.say(say);
    assert.equal(session.chat.status, error ? 'error' : 'ready', `${session.chat.error}`);
    const [chunks] = session.streams;
    const last = chunks.at(-1);
    assert.deepEqual(last.finishReason, reason);
    assert.equal(last.type, error ? 'error' : 'finish');
    assert.equal(session.posts.length, 1);
    assert.equal(session.predicate({ messages: session.chat.messages }), false, 'the client would send again');
    if (!error) await session.check();
    session.chat.clearError();
    await session.say('say go on');
    assert.equal(session.text, 'go on');
    assert.equal(session.posts.length, 2);
  }
}

async function failedContinuation(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say(`${PAY} then cut once then say better ${kit.name}`);
  await session.answer('process_payment', true);
  await session.rest();
  assert.equal(session.chat.status, 'error');
  assert.equal(session.tool('process_payment').output.balance, 950);
  // A retry is a new reply: it asks again, and pays what the user has consented to then.
  void session.chat.regenerate();
  await session.rest();
  await session.answer('process_payment', { approved: false, reason: 'once is enough' });
  await session.rest();
  assert.equal(session.chat.messages.length, 2);
  const kinds = (await usual.audit(session.id)).map((row) => row.kind);
  assert.equal(kinds.filter((kind) => kind === 'tool.started').length, 1);
}

async function twoTabs(kit, { usual }) {
  const first = new Session(usual, kit);
  await first.say(PAY);
  const second = await first.reload();
  await second.rest();
  await second.say('say something else');
  assert.equal(second.text, 'something else');
  await first.answer('process_payment', true);
  await first.rest();
  // The first tab has sent its answer, which came too late: it learns that, and has nothing more to send.
  assert.equal(first.posts.length, 2);
  assert.equal(first.tool('process_payment').state, 'output-error');
  const kinds = (await usual.audit(first.id)).map((row) => row.kind);
  assert.ok(kinds.includes('answer.refused') && !kinds.includes('tool.started'), `${kinds}`);
}

async function bothWatch(kit, { usual }) {
  const first = new Session(usual, kit);
  await first.say(PAY);
  const second = await first.reload();
  await second.rest();
  await Promise.all([first.answer('process_payment', true), second.answer('process_payment', true)]);
  await Promise.all([first.rest(), second.rest()]);
  assert.deepEqual(comparable(first.chat.messages), comparable(second.chat.messages));
  await first.check({ posts: 2 });
  await second.check({ posts: 1 });
  const kinds = (await usual.audit(first.id)).map((row) => row.kind);
  assert.equal(kinds.filter((kind) => kind === 'tool.started').length, 1);
}

async function twoMessages(kit, { usual }) {
  const first = new Session(usual, kit);
  const second = new Session(usual, kit, { id: first.id });
  await Promise.all([first.say('say one'), second.say('say two')]);
  assert.deepEqual([first.chat.status, second.chat.status], ['ready', 'ready']);
  const stored = await usual.messages(first.id);
  const users = stored.filter((message) => message.role === 'user').map(textOf);
  assert.deepEqual(users.sort(), ['say one', 'say two']);
  const loaded = await first.reload();
  await loaded.rest();
  await loaded.say('say three');
  assert.equal(loaded.text, 'three');
}

/** A started tool is never cut off; its outcome is stored before the next turn. */
async function typedWhileRunning(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say(PAY);
  await session.answer('process_payment', true);
  const started = async () => (await usual.audit(session.id)).some((row) => row.kind === 'tool.started');
  await session.until(started, 'the payment to start');
  const second = new Session(usual, kit, { id: session.id });
  await second.say('say something else');
  assert.equal(second.text, 'something else');
  await session.rest();
  const stored = await usual.messages(session.id);
  assert.deepEqual(
    stored.map((message) => message.role),
    ['user', 'assistant', 'user', 'assistant'],
  );
  const paid = stored[1].parts.find((part) => part.type === 'tool-process_payment');
  assert.equal(paid.state, 'output-available');
  assert.equal(paid.output.balance, 950);
  assert.equal(session.posts.length, 2);
}

async function typedWhileStreaming(kit, { usual }) {
  const session = new Session(usual, kit);
  void session.chat.sendMessage({ text: 'slow 10000' });
  await session.until(() => session.text.length > 0, 'the first words');
  const second = new Session(usual, kit, { id: session.id });
  await second.say('say something else');
  assert.equal(second.text, 'something else');
  await session.rest();
  assert.equal(session.message.metadata.ended, 'superseded');
  assert.equal(session.posts.length, 1);
}

async function reloadHeld(kit, { usual }) {
  const gone = new Session(usual, kit);
  await gone.say(TRACK);
  await gone.answer('change_bgm', true);
  await gone.until(() => gone.posts[1]?.status === 200, 'the turn to be held');
  await gone.disconnect();
  const loaded = await gone.reload();
  // A page that receives the answer sends it again and again until there is an output, and never comes to rest. One that was
  // loaded before the answer was stored, and resumes after the hold, has nothing to read and asks again; so does v6, which
  // a stream cannot tell of an answer. The answer is the same.
  await Promise.race([loaded.rest(), loaded.until(() => loaded.posts.length > 0, 'the answer to be sent again')]);
  if (loaded.questions.length > 0) await loaded.answer('change_bgm', true);
  await loaded.output('change_bgm', OUTPUT);
  await loaded.rest();
  assert.deepEqual(loaded.tool('change_bgm').output, OUTPUT);
  assert.match(loaded.text, /jazz/);
  loaded.checkHolds(0, { doubled: false });
  await loaded.check();
}

async function endpointAlone(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('call pick_color {}');
  const { toolCallId } = session.tool('pick_color');
  assert.equal((await usual.toolOutput(session.id, { toolCallId, output: 'teal' })).status, 204);
  const done = async () => textOf((await usual.messages(session.id)).at(-1)).includes('teal');
  await session.until(done, 'the continuation without a reader');
  const loaded = await session.reload();
  await loaded.rest();
  await loaded.check({ posts: 0 });
  // The page that was left open brings another output: it gets what it missed, and the first one counts.
  await session.output('pick_color', 'teal');
  await session.rest();
  assert.deepEqual(comparable(session.chat.messages), comparable(loaded.chat.messages));
  await session.check({ posts: 2 });
}

async function editBeforeQuestion(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('say one');
  const [first] = session.chat.messages;
  await session.say(PAY);
  await session.say('say changed', { messageId: first.id });
  assert.deepEqual(session.chat.messages.map(textOf), ['say changed', 'changed']);
  await session.check({ posts: 3 });
  const kinds = (await usual.audit(session.id)).map((row) => row.kind);
  assert.ok(kinds.includes('approval.superseded') && !kinds.includes('tool.started'), `${kinds}`);
}

async function wallet(kit, { usual }) {
  const session = new Session(usual, kit);
  const balances = [];
  for (const _ of [1, 2]) {
    await session.say(`${PAY} && ${PAY}`);
    for (const { id } of session.questions) await session.chat.addToolApprovalResponse({ id, approved: true });
    await session.rest();
    assert.ok(session.tools.every((part) => nameOf(part) === 'process_payment' && part.state === 'output-available'));
    balances.push(...session.tools.map((part) => part.output.balance));
  }
  assert.deepEqual(balances.sort(), [800, 850, 900, 950]);
  await session.check({ posts: 4 });
}
