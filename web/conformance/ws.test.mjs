// Runs the real `WebSocketChatTransport` of ai 7 on frames that Rust wrote, and keeps the frames that it sends.
//
// The corpus comes from `conformance ws-frames` (crates/conformance/src/ws.rs), which documents it; the frames are for its `ws-check`.

import assert from 'node:assert/strict';
import { writeFileSync } from 'node:fs';
import { after, test } from 'node:test';

import { safeValidateWebSocketChatTransportRequest, WebSocketChatTransport } from 'ai-7';

import { corpusFile, readCorpus } from './corpus.mjs';

// A transport that waits for a frame that never comes would wait without end.
const LIMIT_MS = 60_000;

const MESSAGES = [{ id: 'u1', role: 'user', parts: [{ type: 'text', text: 'hello\n"あ😀"' }] }];

const sentByAll = [];
after(() => writeFileSync(corpusFile('ws-client.jsonl'), sentByAll.map((text) => `${text}\n`).join('')));

const tests = [
  ...readCorpus('ws.jsonl').map((testCase) => [testCase.name, () => serverCase(testCase)]),
  ['every field of a send', sendWithEveryField],
  ['every field of a resume', resumeWithEveryField],
  ['an aborted request', aborted],
  ['a cancelled stream', cancelled],
];
for (const [name, run] of tests) test(name, { timeout: LIMIT_MS }, run);

/** Asks as the case says, answers with its frames and compares what the transport makes of them. */
async function serverCase({ requests, frames, closes }) {
  const { transport, sent, sockets } = connect();
  const outcomes = [];
  for (const [index, request] of requests.entries()) {
    outcomes.push(outcome(ask(transport, request.kind)));
    await until(() => sent.length === index + 1);
  }
  const ids = sent.map((frame) => frame.requestId);
  for (const frame of frames) {
    const data = frame.replace(/"requestId":"request-(\d)"/, (_, index) => `"requestId":"${ids[index]}"`);
    sockets[0].onmessage({ data });
  }
  for (const [index, { chunks, ends, errorText }] of requests.entries()) {
    assert.deepEqual(await outcomes[index], { chunks, ends, ...(errorText === undefined ? {} : { errorText }) });
  }
  assert.equal(sockets.length, 1);
  assert.equal(sockets[0].closedWith, closes);
  await validForTheSdk(sent);
}

async function sendWithEveryField() {
  const { transport, sent } = connect({ headers: { 'X-One': '1' }, body: { dialect: 'adk' } });
  await transport.sendMessages({
    chatId: 'c"1',
    messages: MESSAGES,
    trigger: 'regenerate-message',
    messageId: 'm1',
    headers: { 'x-two': '2' },
    metadata: { deep: [1, 'x', null] },
    body: { sdk: 7 },
  });
  await validForTheSdk(sent);
  const { requestId, ...rest } = sent[0];
  assert.deepEqual(rest, {
    type: 'send',
    id: 'c"1',
    trigger: 'regenerate-message',
    messageId: 'm1',
    messages: MESSAGES,
    headers: { 'x-one': '1', 'x-two': '2' },
    body: { dialect: 'adk', sdk: 7 },
    metadata: { deep: [1, 'x', null] },
  });
}

async function resumeWithEveryField() {
  const { transport, sent } = connect({ body: { dialect: 'native' } });
  outcome(transport.reconnectToStream({ chatId: 'c1', headers: { a: 'b' }, metadata: 5, body: { sdk: 7 } }));
  await until(() => sent.length === 1);
  await validForTheSdk(sent);
  assert.equal(sent[0].type, 'resume');
  assert.equal(sent[0].metadata, 5);
}

async function aborted() {
  const { transport, sent } = connect();
  const abort = new AbortController();
  const stream = await ask(transport, 'send', { abortSignal: abort.signal });
  abort.abort();
  assert.deepEqual(await outcome(stream), { chunks: [], ends: 'end' });
  await abortFrame(sent);
}

async function cancelled() {
  const { transport, sent } = connect();
  await (await ask(transport, 'send')).cancel();
  await abortFrame(sent);
}

async function abortFrame(sent) {
  await until(() => sent.length === 2);
  await validForTheSdk(sent);
  assert.deepEqual(sent[1], { type: 'abort', requestId: sent[0].requestId });
}

function ask(transport, kind, options) {
  return kind === 'resume'
    ? transport.reconnectToStream({ chatId: 'c1', ...options })
    : transport.sendMessages({ chatId: 'c1', messages: MESSAGES, trigger: 'submit-message', ...options });
}

/** What a request came to: its chunks, and whether it ended, failed or had nothing to give. */
async function outcome(request) {
  const chunks = [];
  try {
    const stream = await request;
    if (stream === null) return { chunks, ends: 'null' };
    for await (const chunk of stream) chunks.push(chunk);
    return { chunks, ends: 'end' };
  } catch (error) {
    return { chunks, ends: 'error', errorText: error.message };
  }
}

/** A transport whose socket keeps what it sends and receives what the test hands it. */
function connect(options = {}) {
  const sent = [];
  const sockets = [];
  class FakeSocket {
    readyState = 0;
    bufferedAmount = 0;
    constructor() {
      sockets.push(this);
      queueMicrotask(() => {
        this.readyState = 1;
        this.onopen({});
      });
    }
    send(text) {
      sent.push(JSON.parse(text));
      sentByAll.push(text);
    }
    close(code) {
      this.readyState = 3;
      this.closedWith = code;
    }
  }
  const transport = new WebSocketChatTransport({ url: 'ws://localhost/api/chat/ws', webSocket: FakeSocket, ...options });
  return { transport, sent, sockets };
}

/** The SDK has a check for servers: what it accepts we must accept. */
async function validForTheSdk(frames) {
  for (const value of frames) {
    assert.equal((await safeValidateWebSocketChatTransportRequest({ value })).success, true);
  }
}

async function until(condition) {
  for (const end = Date.now() + LIMIT_MS; !condition() && Date.now() < end; ) {
    await new Promise((resolve) => setImmediate(resolve));
  }
  assert.ok(condition(), 'the transport did not send what it should');
}
