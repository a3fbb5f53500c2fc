// Planted secrets, looked for in everything that a bridge says: its log, its metrics, its errors, its spans, its pages, and what
// it keeps. Keys, tokens and cookies must be nowhere; what users wrote only where users read it.

import assert from 'node:assert/strict';
import { readFileSync, readdirSync } from 'node:fs';
import { createServer } from 'node:http';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { gunzipSync } from 'node:zlib';

import { CLIENT_SECRET, startIssuer } from '../e2e/issuer.mjs';
import { BINARY } from '../target.mjs';
import { Visitor } from './login.mjs';
import { startServer } from './server.mjs';
import { assertNoFaults } from './suite.mjs';

const KEY = 'PLANTED-KEY-of-alice-0123456789';
const WRONG_KEY = 'PLANTED-KEY-of-nobody-0123456789';
const WORDS = 'PLANTED-WORDS nobody else should read this';
const TITLE = 'PLANTED-TITLE of a chat';
const FILE = 'PLANTED-FILE of a user';
const REASON = 'PLANTED-REASON of a denial';
const TOML = `[demo]\npace = "0ms"\n`;
const KEYS = `[auth]\napi_keys = [{ key = "${KEY}", user = "alice" }]\n`;

/** An OpenTelemetry collector that keeps the bytes that it is sent: texts stand in them as they are. */
async function startCollector() {
  const received = [];
  const server = createServer((request, response) => {
    const pieces = [];
    request.on('data', (piece) => pieces.push(piece));
    request.on('end', () => {
      const body = Buffer.concat(pieces);
      received.push(request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body);
      response.writeHead(200, { 'content-type': 'application/x-protobuf' }).end();
    });
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    text: () => Buffer.concat(received).toString('latin1'),
    stop: () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())),
  };
}

describe('secrets', { concurrency: 1 }, () => {
  let issuer, collector, bridge;

  before(async () => {
    issuer = await startIssuer({ olga: ['operators'] });
    collector = await startCollector();
    const env = { ...issuer.env, OTEL_EXPORTER_OTLP_ENDPOINT: collector.url, OTEL_BSP_SCHEDULE_DELAY: '50' };
    // At the level of the log that is on by default.
    delete process.env.RUST_LOG;
    bridge = await startServer(BINARY, `${KEYS}${issuer.toml()}`, TOML, env);
    issuer.allow([bridge.url]);
  });
  after(async () => {
    await bridge?.stop();
    await issuer?.stop();
    await collector?.stop();
  });

  test('what is secret is in nothing that the bridge says', async () => {
    const errors = [];
    const send = async (path, { headers = {}, expected = 200, ...init } = {}) => {
      const response = await fetch(bridge.url + path, { redirect: 'manual', headers, ...init });
      const text = await response.text();
      assert.equal(response.status, expected, `${path}: ${text}`);
      if (response.status >= 400) errors.push(text, ...response.headers.values());
      return { text, response };
    };
    const json = { 'content-type': 'application/json' };
    const token = await issuer.token('ES256');
    const visitor = new Visitor({ url: bridge.url });
    const { status, page } = await visitor.follow(`${bridge.url}/login`, { user: 'olga', end: '/' });
    assert.equal(status, 200, page);
    const cookie = visitor.cookiesFor(bridge.url);
    const secret = /adk-bridge-login=([^;]*)/.exec(cookie)[1];
    assert.ok(secret.length > 40, cookie);

    // Three users, each known in another way, say, upload, name and deny something.
    const users = [{ authorization: `Bearer ${KEY}` }, { authorization: `Bearer ${token}` }, { cookie, origin: bridge.url }];
    const spans = () => collector.text().split('POST /api/chat').length - 1;
    for (const [number, who] of users.entries()) {
      const id = `chat-${number}`;
      const headers = { ...json, ...who };
      const say = (messages, expected) =>
        send('/api/chat', { method: 'POST', headers, body: JSON.stringify({ id, messages }), expected });
      const text = `call process_payment {"amount": 5, "recipient": "${WORDS}"}`;
      const asked = await say([{ id: 'm1', role: 'user', parts: [{ type: 'text', text }] }]);
      assert.ok(asked.text.includes(WORDS), 'its own user reads it');
      const chat = `/api/chats/${id}`;
      await send(chat, { method: 'PATCH', headers, body: JSON.stringify({ title: TITLE }), expected: 204 });
      const plain = { ...who, 'content-type': 'text/plain' };
      await send(`/api/files?chat=${id}`, { method: 'POST', headers: plain, body: FILE, expected: 201 });
      const { messages } = JSON.parse((await send(chat, { headers: who })).text);
      const part = messages[1].parts.find((it) => it.approval !== undefined);
      Object.assign(part, { state: 'approval-responded' });
      Object.assign(part.approval, { approved: false, reason: REASON });
      await say([messages[1]]);
      // What is refused is not repeated.
      await say([{ id: 'm9', role: 'robot', parts: [{ type: 'text', text: WORDS }] }], 422);
      await send('/api/chat', { method: 'POST', headers, body: `{"id": "${WORDS}", ${WORDS}`, expected: 400 });
      await send(`/api/chats/unknown-${number}`, { headers: who, expected: 404 });
    }
    const refused = [
      { authorization: `Bearer ${WRONG_KEY}` },
      { authorization: `Bearer ${token.slice(0, -8)}AAAAAAAA` },
      { authorization: `Basic ${KEY}` },
      { cookie: `adk-bridge-login=${secret.slice(0, -8)}AAAAAAAA` },
    ];
    for (const headers of refused) await send('/api/chats', { headers, expected: 401 });
    // The cookie is good, and another page sends it.
    const other = { cookie, origin: 'http://evil.example' };
    await send('/api/ticket', { method: 'POST', headers: other, expected: 403 });
    const back = `/login/callback?code=PLANTED-CODE&state=PLANTED-STATE`;
    const pages = [(await send(back, { headers: { cookie }, expected: 400 })).text];
    for (const path of ['/', '/api/docs', '/api/openapi.json', '/api/session', '/health', '/ready']) {
      pages.push((await send(path, { headers: { cookie } })).text);
    }
    const metrics = (await send('/metrics', { headers: users[0] })).text;
    // Two turns of each user, and three requests that were refused, have their spans when they have ended.
    for (let tries = 0; tries < 1_500 && spans() < 2 * users.length; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    assert.ok(spans() >= 2 * users.length, `${spans()} spans`);
    assert.ok(collector.text().includes('execute_tool process_payment') || collector.text().includes('invoke_agent'));
    assert.ok(errors.length > 20 && metrics.includes('adk_bridge_approvals_total{event="denied"} 3'), metrics);

    const sinks = {
      log: bridge.log(),
      metrics,
      errors: errors.join('\n'),
      spans: collector.text(),
      pages: pages.join('\n'),
    };
    const credentials = [KEY, WRONG_KEY, CLIENT_SECRET, token, secret, 'PLANTED-CODE', 'PLANTED-STATE', ...issuer.secrets];
    const ofUsers = [WORDS, TITLE, FILE, REASON, 'PLANTED-PROVIDER-PASSWORD'];
    const parts = (texts) => texts.filter((it) => it.length > 8).flatMap((it) => [it, it.slice(-16)]);
    for (const [sink, text] of Object.entries(sinks)) {
      assert.ok(text.length > 100, `${sink} has something`);
      for (const found of [...parts(credentials), ...ofUsers, 'PLANTED-']) {
        assert.ok(!text.includes(found), `${sink} has ${found}: …${around(text, found)}…`);
      }
    }
    // What users wrote is kept, and what they were recognised by is not.
    const kept = readdirSync(bridge.data, { recursive: true, withFileTypes: true }).filter((it) => it.isFile());
    const texts = kept.map((it) => readFileSync(join(it.parentPath, it.name)).toString('latin1')).join('\n');
    for (const found of ofUsers.slice(0, 4)) assert.ok(texts.includes(found), `${found} is kept`);
    for (const found of parts(credentials)) assert.ok(!texts.includes(found), `${found} is kept`);
  });

  test('the bridge has not panicked or logged an error', () => assertNoFaults({ bridge }));
});

function around(text, found) {
  const at = text.indexOf(found);
  return text.slice(Math.max(0, at - 200), at + 50);
}
