// Conversations without questions: words, server tools, images, going back, stopping, failing.

import assert from 'node:assert/strict';

import { Session, textOf } from './session.mjs';

// One red pixel.
const PIXEL =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==';

const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';

export const conversationTests = [
  ['text', words],
  ['a long text', longWords],
  ['a conversation of three turns', threeTurns],
  ['a server tool', serverTool],
  ['server tools in parallel, then in sequence', serverTools],
  ['regenerate', regenerate],
  ['regenerate an earlier answer', regenerateEarlier],
  ['regenerate a reply that waits for an answer', regenerateWaiting],
  ['edit an earlier message', edit],
  ['the user types on while a question waits', typesOn],
  ['stop at the server and continue', stopAndContinue],
  ['stop in the client alone and continue', stopInClient],
  ['stop while a question waits', stopWaiting],
  ['an error before the answer, and retry', errorAndRetry],
  ['an error in the middle, and retry', cutAndRetry],
  ['an error that stays', errorThatStays],
  ['an image in', imageIn],
  ['an image out', imageOut],
];

async function words(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('say hello, "世界" 😀\\');
  assert.equal(session.text, 'hello, "世界" 😀\\');
  await session.check({ posts: 1 });
}

async function longWords(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('long 3000');
  assert.equal(session.text.split(/\s+/).filter(Boolean).length, 3000);
  await session.check({ posts: 1 });
}

async function threeTurns(kit, { usual }) {
  const session = new Session(usual, kit);
  for (const word of ['one', 'two', 'three']) await session.say(`say ${word}`);
  assert.deepEqual(session.chat.messages.filter((message) => message.role === 'assistant').map(textOf), ['one', 'two', 'three']);
  await session.check({ posts: 3 });
}

async function serverTool(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('what is the weather in Tokyo');
  assert.equal(session.tool('get_weather').state, 'output-available');
  assert.match(session.text, /in Tokyo/);
  await session.check({ posts: 1 });
}

async function serverTools(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say(
    'call get_weather {"location":"Tokyo"} && call roll_dice {"count":2} then call get_weather {"location":"Paris"} then say done',
  );
  assert.deepEqual(
    session.tools.map((part) => part.state),
    ['output-available', 'output-available', 'output-available'],
  );
  assert.match(session.text, /done$/);
  await session.check({ posts: 1 });
}

async function regenerate(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('say hello');
  const before = session.message.id;
  void session.chat.regenerate();
  await session.rest();
  assert.equal(session.text, 'hello');
  assert.equal(session.chat.messages.length, 2);
  assert.notEqual(session.message.id, before);
  assert.equal(session.posts.at(-1).body.trigger, 'regenerate-message');
  await session.check({ posts: 2 });
}

async function regenerateEarlier(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('say one');
  const earlier = session.message.id;
  await session.say('say two');
  void session.chat.regenerate({ messageId: earlier });
  await session.rest();
  assert.deepEqual(session.chat.messages.map(textOf), ['say one', 'one']);
  await session.check({ posts: 3 });
}

async function regenerateWaiting(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say(PAY);
  const forgotten = session.questions[0].id;
  void session.chat.regenerate();
  await session.rest();
  assert.notEqual(session.questions[0].id, forgotten);
  await session.answer('process_payment', true);
  await session.rest();
  assert.equal(session.tool('process_payment').output.balance, 950);
  await session.check({ posts: 3 });
  const kinds = (await usual.audit(session.id)).map((row) => row.kind);
  assert.equal(kinds.filter((kind) => kind === 'tool.started').length, 1);
}

async function edit(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('say one');
  await session.say('say two');
  const first = session.chat.messages[0].id;
  await session.say('say changed', { messageId: first });
  assert.deepEqual(session.chat.messages.map(textOf), ['say changed', 'changed']);
  assert.equal(session.chat.messages[0].id, first);
  await session.check({ posts: 3 });
  await session.say('say after');
  assert.deepEqual(session.chat.messages.map(textOf), ['say changed', 'changed', 'say after', 'after']);
  await session.check({ posts: 4 });
}

async function typesOn(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say(PAY);
  const asked = session.message;
  const [{ id }] = session.questions;
  await session.say('say never mind');
  assert.equal(session.text, 'never mind');
  assert.equal(session.chat.messages.length, 4);
  const before = await usual.messages(session.id);
  assert.equal(before[1].parts.at(-2).state, 'output-error');

  // The client still shows the question; its answer does not send anything automatically, and changes nothing later.
  await session.chat.addToolApprovalResponse({ id, approved: true });
  await session.rest();
  assert.equal(session.posts.length, 2);
  await session.say('say still here');
  assert.equal(session.text, 'still here');
  assert.equal(session.posts.length, 3);
  const after = await usual.messages(session.id);
  assert.deepEqual(after.slice(0, before.length), before);
  assert.equal(after[1].id, asked.id);
  const kinds = (await usual.audit(session.id)).map((row) => row.kind);
  assert.ok(!kinds.includes('tool.started') && !kinds.includes('approval.approved'), `${kinds}`);
  assert.ok(kinds.includes('approval.superseded'), `${kinds}`);
}

async function stopAndContinue(kit, { usual }) {
  const session = new Session(usual, kit);
  void session.chat.sendMessage({ text: 'slow 10000' });
  await session.until(() => session.text.length > 0, 'the first words');
  assert.equal((await usual.stopTurn(session.id)).status, 204);
  await session.rest();
  assert.notEqual(session.text, '');
  assert.equal(session.message.metadata.ended, 'stopped');
  await session.check({ posts: 1 });
  await session.say('say go on');
  assert.equal(session.text, 'go on');
  await session.check({ posts: 2 });
}

async function stopInClient(kit, { usual }) {
  const session = new Session(usual, kit);
  void session.chat.sendMessage({ text: 'slow 10000' });
  await session.until(() => session.text.length > 0, 'the first words');
  await session.chat.stop();
  await session.until(() => session.chat.status === 'ready', 'the client to stop');
  await session.say('say go on');
  assert.equal(session.text, 'go on');
  assert.equal(session.chat.messages.length, 4);
  const stored = await usual.messages(session.id);
  assert.deepEqual(
    stored.map((message) => message.id),
    session.chat.messages.map((message) => message.id),
  );
  assert.equal(stored[1].metadata.ended, kit.overSocket ? 'stopped' : 'superseded');
  await session.say('say again');
  assert.equal(session.posts.length, 3);
}

async function stopWaiting(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say(PAY);
  assert.equal((await usual.stopTurn(session.id)).status, 204);
  await session.answer('process_payment', true);
  await session.rest();
  assert.equal(session.tool('process_payment').state, 'output-error');
  await session.say('say go on');
  assert.equal(session.text, 'go on');
  assert.equal(session.posts.length, 3);
  const kinds = (await usual.audit(session.id)).map((row) => row.kind);
  assert.ok(kinds.includes('answer.refused') && !kinds.includes('tool.started'), `${kinds}`);
}

async function errorAndRetry(kit, { usual }) {
  const session = new Session(usual, kit);
  // Failures are counted per conversation, so that each client needs one of its own.
  await session.say(`http 400 once then say recovered ${kit.name}`);
  assert.equal(session.chat.status, 'error');
  assert.match(session.chat.error.message, /\(error [0-9a-f]{8}\)/);
  void session.chat.regenerate();
  await session.rest();
  assert.equal(session.text, `recovered ${kit.name}`);
  assert.equal(session.chat.messages.length, 2);
  await session.check({ posts: 2 });
}

async function cutAndRetry(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say(`say the first half then cut once then say the second half ${kit.name}`);
  assert.equal(session.chat.status, 'error');
  assert.match(session.text, /the first half/);
  const stored = await usual.messages(session.id);
  assert.equal(stored.at(-1).metadata.ended, 'failed');
  void session.chat.regenerate();
  await session.rest();
  assert.match(session.text, /the second half/);
  assert.equal(session.chat.messages.length, 2);
  await session.check({ posts: 2 });
}

async function errorThatStays(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('http 503');
  assert.equal(session.chat.status, 'error');
  assert.equal(session.posts.length, 1);
  session.chat.clearError();
  await session.say('say better now');
  assert.equal(session.text, 'better now');
  assert.equal(session.posts.length, 2);
}

async function imageIn(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('what is in this picture?', { files: [{ type: 'file', mediaType: 'image/png', url: PIXEL }] });
  assert.match(session.text, /I see 1 image: image\/png/);
  await session.check({ posts: 1, sameAsServer: false });
  const [asked] = await usual.messages(session.id);
  assert.deepEqual(
    asked.parts.map((part) => part.type),
    ['file', 'text'],
  );
}

async function imageOut(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('call generate_image {"prompt":"a cat"}');
  const images = session.message.parts.filter((part) => part.type === 'file');
  assert.equal(images.length, 1);
  assert.equal(images[0].mediaType, 'image/png');
  const bytes = new Uint8Array(await (await fetch(new URL(images[0].url, usual.url))).arrayBuffer());
  assert.deepEqual([...bytes.slice(1, 4)], [...Buffer.from('PNG')]);
  await session.check({ posts: 1 });
}
