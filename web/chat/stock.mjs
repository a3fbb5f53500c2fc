// What a page with nothing but stock parts shows: text where it asked for text, and refusals in words.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { Session, textOf } from './session.mjs';

export const stockTests = [
  ['stock, text through TextStreamChatTransport', asText],
  ['stock, a question in plain text', questionAsText],
  ['stock, a failure in plain text', failureAsText],
  ['stock, a refusal is shown in words', refusalInWords],
];

/** A chat that takes text only. Its transport says nothing of that itself, so that the page does. */
function textChat(kit, server) {
  const transport = new kit.ai.TextStreamChatTransport({ api: `${server.url}/api/chat`, headers: { accept: 'text/plain' } });
  return new kit.Chat({ id: randomUUID(), transport, onError: () => {} });
}

async function asText(kit, { usual }) {
  const chat = textChat(kit, usual);
  for (const words of ['20 °C', 'and more']) {
    await chat.sendMessage({ text: `say ${words}` });
    assert.equal(chat.status, 'ready', `${chat.error}`);
    assert.equal(textOf(chat.messages.at(-1)), words);
  }
  assert.equal((await usual.messages(chat.id)).length, 4);
}

async function questionAsText(kit, { usual }) {
  const chat = textChat(kit, usual);
  await chat.sendMessage({ text: 'call process_payment {"amount":50,"recipient":"Hanako"}' });
  assert.equal(chat.status, 'ready');
  assert.match(textOf(chat.messages.at(-1)), /^\[.*process_payment.*\]$/);
  const [asked] = (await usual.audit(chat.id)).map((row) => row.kind);
  assert.equal(asked, 'approval.requested');
}

async function failureAsText(kit, { usual }) {
  const chat = textChat(kit, usual);
  await chat.sendMessage({ text: 'say first words then http 400' });
  assert.equal(chat.status, 'error', 'a program must notice');
  assert.match(textOf(chat.messages.at(-1)), /^\[.*\(error [0-9a-f]{8}\)\]$|^first words/);
}

async function refusalInWords(kit, { usual }) {
  if (kit.overSocket) return;
  const session = new Session(usual, kit, { sdk: 5 });
  await session.chat.sendMessage({ text: 'say hi' });
  assert.equal(session.chat.status, 'error');
  assert.match(session.chat.error.message, /^sdk is "5"; this bridge supports versions 6 and 7 of the AI SDK/);
}
