// The history that the `Chat` sends counts: what its page edits, deletes and goes back to is what the server shows and
// what the model is sent.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer } from 'node:net';

import { Session, textOf } from './session.mjs';

/** What a page does with its messages between two questions; `lists` are those that it has shown. */
const SCRIPTS = {
  'an edit by truncation': [say, say, (list) => list.slice(0, 2), say],
  'an edit further up': [say, say, say, (list) => list.slice(0, 2), say],
  'the last answer is deleted': [say, say, (list) => list.slice(0, -1), say],
  'an exchange in the middle is deleted': [say, say, say, (list) => [...list.slice(0, 2), ...list.slice(4)], say],
  'an answer in the middle is deleted': [say, say, (list) => list.filter((_, index) => index !== 1), say],
  'a branch is switched and switched back': [
    say,
    say,
    (list) => list.slice(0, 2),
    say,
    (_, lists) => lists[1],
    say,
    (_, lists) => lists[2],
    say,
  ],
  'an exchange is deleted and the last answer regenerated': [say, say, say, withoutSecond, regenerate, say],
  'an answer is deleted and the last one regenerated': [say, say, (list) => list.toSpliced(1, 1), regenerate, say],
  'an exchange is deleted and the last question edited': [say, say, say, withoutSecond, edit, say],
  'both texts of an edited question are come back to': [say, say, edit, (_, lists) => lists[1], say, (_, lists) => lists[2], say],
};

const ACTIONS = new Set([say, regenerate, edit]);

export const historyTests = [
  ...Object.entries(SCRIPTS).map(([name, script]) => [`history, ${name}`, (kit, { usual }) => follows(kit, usual, script)]),
  ['history, an edit before a question that waits', editAwayAQuestion],
  ['history, an exchange is deleted before a payment is approved', deleteBeforeAnApproval],
  ['history, an answer that is lost on the way stays', loseAnAnswer],
  ['history, a new page without the messages adds to them', startsAnew],
];

async function say(session, lists) {
  await session.say(`say answer ${lists.length}`);
  assert.equal(session.text, `answer ${lists.length}`);
  lists.push([...session.chat.messages]);
}

async function regenerate(session, lists) {
  void session.chat.regenerate();
  await session.rest();
  lists.push([...session.chat.messages]);
}

/** Edits the last question, under its id. */
async function edit(session, lists) {
  const { id: messageId } = session.chat.messages.findLast(({ role }) => role === 'user');
  await session.say(`say edit ${lists.length}`, { messageId });
  assert.equal(session.text, `edit ${lists.length}`);
  lists.push([...session.chat.messages]);
}

function withoutSecond(list) {
  return list.toSpliced(2, 2);
}

async function follows(kit, server, script) {
  const session = new Session(server, kit);
  const lists = [];
  for (const step of script) {
    if (ACTIONS.has(step)) {
      await step(session, lists);
      await session.check();
    } else {
      session.chat.messages = step(session.chat.messages, lists);
    }
  }
  // The model was sent no more than in a chat that never was another.
  const fresh = new Session(server, kit);
  for (const message of session.chat.messages.filter(({ role }) => role === 'user')) {
    await fresh.say(message.parts[0].text);
  }
  if (session.chat.messages.length === fresh.chat.messages.length) {
    const usage = ({ message }) => message.metadata.usage.promptTokens ?? message.metadata.usage.inputTokens;
    assert.ok(usage(session) > 0);
    assert.equal(usage(session), usage(fresh));
  }
  const again = await session.reload();
  await again.rest();
  await again.check();
}

async function editAwayAQuestion(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('say hello');
  await session.say('call process_payment {"amount":50,"recipient":"Hanako"}');
  assert.equal(session.questions.length, 1);
  session.chat.messages = session.chat.messages.slice(0, 2);
  await session.say('say never mind');
  await session.check();
  assert.equal(session.chat.messages.length, 4);
  const kinds = (await usual.audit(session.id)).map((row) => row.kind);
  assert.deepEqual(kinds, ['approval.requested', 'approval.superseded']);
}

async function deleteBeforeAnApproval(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.say('say one');
  await session.say('say SECRET');
  await session.say('call process_payment {"amount":50,"recipient":"Hanako"}');
  session.chat.messages = withoutSecond(session.chat.messages);
  await session.answer('process_payment', true);
  await session.rest();
  await session.check();
  assert.equal(session.tool('process_payment').state, 'output-available');
  assert.ok(!JSON.stringify(await usual.messages(session.id)).includes('SECRET'));
}

/** The network takes the answer and brings nothing of it to the page, which writes on. */
async function loseAnAnswer(kit, { usual }) {
  const relay = await startRelay(new URL(usual.url));
  const session = new Session({ ...usual, url: relay.url }, kit);
  await session.say('say one');
  relay.losesAnswers = true;
  void session.chat.sendMessage({ text: 'say lost' });
  await session.until(() => /\[DONE\]|"type":"end"/.test(relay.lost), 'the answer to be lost');
  relay.losesAnswers = false;
  relay.cut();
  await session.until(() => session.chat.status === 'error', 'the page to notice');
  for (const text of ['say two', 'say three']) {
    await session.say(text);
    assert.equal(session.chat.status, 'ready', `${session.chat.error}`);
  }
  relay.stop();
  const texts = (await usual.messages(session.id)).map(textOf);
  const expected = ['say one', 'one', 'say lost', 'lost', 'say two', 'two', 'say three', 'three'];
  assert.deepEqual(texts, expected);
}

/** A relay that can take what the server writes and pass on nothing. */
async function startRelay({ hostname, port }) {
  const pairs = new Set();
  const relay = { losesAnswers: false, lost: '' };
  const server = createServer((page) => {
    const bridge = connect(port, hostname);
    const pair = { page, bridge };
    pairs.add(pair);
    page.on('data', (piece) => bridge.write(piece));
    bridge.on('data', (piece) => (relay.losesAnswers ? (relay.lost += piece) : page.write(piece)));
    for (const socket of [page, bridge]) {
      socket.on('error', () => {});
      socket.on('close', () => (pairs.delete(pair), page.destroy(), bridge.destroy()));
    }
  }).listen(0, '127.0.0.1');
  await once(server, 'listening');
  relay.url = `http://127.0.0.1:${server.address().port}`;
  relay.cut = () => pairs.forEach(({ page }) => page.destroy());
  relay.stop = () => (relay.cut(), server.close());
  return relay;
}

async function startsAnew(kit, { usual }) {
  const first = new Session(usual, kit);
  await first.say('say one');
  const second = new Session(usual, kit, { id: first.id });
  await second.say('say two');
  await second.say('say three');
  const stored = await usual.messages(first.id);
  assert.deepEqual(
    stored.map(({ id }) => id),
    [...first.chat.messages, ...second.chat.messages].map(({ id }) => id),
  );
}
