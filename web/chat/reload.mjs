// Reloads and lost connections in every state: the page gets the same message back, once.

import assert from 'node:assert/strict';

import { Session, comparable, toolsOf } from './session.mjs';

const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';

/**
 * Where a page may be when it is reloaded: what is said before the words that the model is kept at until the page has been
 * reloaded, what is answered, and when the moment has come.
 */
const MOMENTS = [
  { name: 'while the answer streams', say: [], at: (session) => session.text.length > 0 },
  {
    name: 'while words stream after a tool',
    say: ['call get_weather {"location":"Tokyo"}'],
    at: (session) => session.text.length > 0,
  },
  {
    name: 'while the approved tool runs',
    say: [PAY],
    approve: true,
    at: (session) => session.posts[1]?.status === 200,
  },
  {
    name: 'after the answer, while words stream',
    say: ['say one moment', PAY],
    approve: true,
    at: (session) => session.message.parts.filter((part) => part.type === 'text').length > 1,
  },
  {
    name: 'after a denial, while words stream',
    say: [PAY],
    approve: false,
    at: (session) => session.text.length > 0,
  },
];

export const reloadTests = [
  ...[undefined, 'adk'].flatMap((dialect) =>
    MOMENTS.map((moment) => [
      `reload, ${dialect ?? 'native'}, ${moment.name}`,
      (kit, context) => reloadAt(kit, context, { ...moment, dialect }),
    ]),
  ),
  ...[undefined, 'adk'].map((dialect) => [
    `reload, ${dialect ?? 'native'}, while a question waits`,
    (kit, { usual }) => reloadWaiting(kit, usual, dialect),
  ]),
  ['reload, when all is said', reloadDone],
  ['reload, while a client tool waits', reloadClientTool],
  ['reload, and the answer ends before the page resumes', endedMeanwhile],
  ['reload, and the question comes before the page resumes', askedMeanwhile],
  ['reload, an unknown chat', unknown],
  ['disconnect, the turn runs on', disconnect],
  ['disconnect, while the approved tool runs', disconnectRunning],
  ['disconnect, and come back while it streams', comeBack],
];

async function reloadAt(kit, { gated, model }, { say, approve, at, dialect }) {
  const gate = model.gate();
  const text = [...say, `say begun ${gate.word} ended`].join(' then ');
  const stayed = new Session(gated, kit, { dialect, sdk: kit.sdk === 7 ? 7 : undefined });
  if (approve === undefined) {
    void stayed.chat.sendMessage({ text });
  } else {
    await stayed.say(text);
    await stayed.answer('process_payment', approve);
  }
  // A client of the other dialect is shown nothing before the end: the moment is when its request is taken.
  const taken = () => stayed.posts.at(-1)?.status === 200 && stayed.chat.status !== 'ready';
  await stayed.until(() => (dialect === 'adk' ? taken() : at(stayed)), 'the moment');
  const loaded = await stayed.reload();
  await loaded.until(() => loaded.requests[0]?.status !== undefined, 'the resumed stream');
  gate.open();
  await Promise.all([stayed.rest(), loaded.rest()]);
  assert.equal(loaded.requests[0].method, 'GET');
  assert.equal(loaded.requests[0].status, 200);
  assert.equal(loaded.posts.length, 0, 'a reload sends nothing automatically');
  await stayed.check();
  await loaded.check({ sameAsServer: kit.sdk === 7 });
  const verdicts = kit.sdk === 7;
  assert.deepEqual(shown(loaded.chat.messages, verdicts), shown(stayed.chat.messages, verdicts));
}

/** v6 has no chunk that carries the answer to a question, so that a replay cannot tell it. */
function shown(messages, verdicts) {
  return comparable(messages).map((message) => ({
    ...message,
    parts: message.parts.map((part) =>
      verdicts || part.approval === undefined ? part : { ...part, approval: { id: part.approval.id } },
    ),
  }));
}

async function reloadWaiting(kit, server, dialect) {
  const gone = new Session(server, kit, { dialect });
  await gone.say(`say one moment then ${PAY}`);
  const loaded = await gone.reload();
  await loaded.rest();
  assert.equal(loaded.requests[0].status, 204);
  assert.equal(loaded.chat.status, 'ready');
  assert.deepEqual(shown(loaded.chat.messages, true), shown(gone.chat.messages, true));
  await loaded.answer('process_payment', true);
  await loaded.rest();
  assert.equal(loaded.tool('process_payment').output.balance, 950);
  await loaded.check({ posts: 1 });

  // The page that was left open answers as well: it gets what it missed, and nothing happens twice.
  await gone.answer('process_payment', true);
  await gone.rest();
  await gone.check({ posts: 2 });
  assert.deepEqual(shown(gone.chat.messages, true), shown(loaded.chat.messages, true));
  const kinds = (await server.audit(gone.id)).map((row) => row.kind);
  assert.equal(kinds.filter((kind) => kind === 'tool.started').length, 1);
  assert.ok(!kinds.includes('answer.refused'), `${kinds}`);
}

async function reloadDone(kit, { usual }) {
  const gone = new Session(usual, kit);
  await gone.say('say one');
  await gone.say('call get_weather {"location":"Tokyo"}');
  const loaded = await gone.reload();
  await loaded.rest();
  assert.equal(loaded.requests[0].status, 204);
  assert.deepEqual(comparable(loaded.chat.messages), comparable(gone.chat.messages));
  await loaded.say('say two');
  await loaded.check({ posts: 1 });
}

async function reloadClientTool(kit, { usual }) {
  const gone = new Session(usual, kit);
  await gone.say('call pick_color {}');
  const loaded = await gone.reload();
  await loaded.rest();
  assert.equal(loaded.tool('pick_color').state, 'input-available');
  await loaded.output('pick_color', 'teal');
  await loaded.rest();
  assert.match(loaded.text, /teal/);
  await loaded.check({ posts: 1 });
}

/** Between the two requests of a page that loads, what it was not given may have come to its end. */
async function endedMeanwhile(kit, { gated, model }) {
  for (const dialect of [undefined, 'adk']) {
    const gate = model.gate();
    const stayed = new Session(gated, kit, { dialect });
    void stayed.chat.sendMessage({ text: `say begun ${gate.word} ended` });
    await stayed.until(() => stayed.posts[0]?.status === 200, 'the turn to begin');
    const loaded = await stayed.reload({ resume: () => (gate.open(), stayed.rest()) });
    assert.equal(loaded.chat.messages.length, 1);
    await loaded.rest();
    assert.deepEqual(comparable(loaded.chat.messages), comparable(stayed.chat.messages));
    await loaded.check({ posts: 0 });
    await loaded.chat.resumeStream();
    assert.equal(loaded.requests.at(-1).status, 204, 'it is given once');
  }
}

async function askedMeanwhile(kit, { gated, model }) {
  for (const dialect of [undefined, 'adk']) {
    const gate = model.gate();
    const stayed = new Session(gated, kit, { dialect });
    void stayed.chat.sendMessage({ text: `say begun ${gate.word} ended then ${PAY}` });
    await stayed.until(() => stayed.posts[0]?.status === 200, 'the turn to begin');
    const loaded = await stayed.reload({ resume: () => (gate.open(), stayed.rest()) });
    await loaded.rest();
    assert.deepEqual(comparable(loaded.chat.messages), comparable(stayed.chat.messages));
    await loaded.answer('process_payment', true);
    await loaded.rest();
    await loaded.check({ posts: 1 });
  }
}

async function unknown(kit, { usual }) {
  const session = new Session(usual, kit);
  await session.chat.resumeStream();
  assert.equal(session.requests[0].status, 204);
  assert.equal(session.chat.status, 'ready');
  assert.deepEqual(session.chat.messages, []);
}

async function disconnect(kit, { usual }) {
  const gone = new Session(usual, kit);
  void gone.chat.sendMessage({ text: 'slow 6 then call get_weather {"location":"Tokyo"} then say done' });
  await gone.until(() => gone.text.length > 0, 'the first words');
  await gone.disconnect();
  const finished = async () => {
    const message = (await usual.messages(gone.id)).at(-1);
    return message.role === 'assistant' && message;
  };
  await gone.until(finished, 'the turn to run on');
  const message = await finished();
  assert.equal(toolsOf(message)[0].state, 'output-available');
  assert.match(message.parts.at(-1).text, /done$/);
  assert.equal(message.metadata.ended, undefined);
  const loaded = await gone.reload();
  await loaded.rest();
  await loaded.check({ posts: 0 });
}

async function disconnectRunning(kit, { usual }) {
  const gone = new Session(usual, kit);
  await gone.say(PAY);
  await gone.answer('process_payment', true);
  await gone.until(() => gone.posts[1]?.status === 200, 'the answer to be taken');
  await gone.disconnect();
  const loaded = await gone.reload();
  await loaded.rest();
  assert.equal(loaded.tool('process_payment').output.balance, 950);
  assert.match(loaded.text, /Paid 50/);
  assert.equal(loaded.chat.messages.length, 2);
}

async function comeBack(kit, { usual }) {
  const session = new Session(usual, kit);
  void session.chat.sendMessage({ text: 'slow 8' });
  await session.until(() => session.text.length > 0, 'the first words');
  await session.disconnect();
  await session.chat.resumeStream();
  await session.rest();
  assert.equal(session.chat.messages.length, 2);
  await session.check({ posts: 1 });
}
