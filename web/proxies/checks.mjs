// What must hold behind every proxy.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { request } from 'node:http';
import { createBrotliDecompress, createGunzip } from 'node:zlib';

import WebSocket from 'ws';

// So many words are waited for, out of so many that would come: the answer is far from its end.
const AWAITED = 200;
const WORDS = 12_000;
// The words come one by one. A busy machine reads some of them together, but not as many as a buffer of 4 kB holds.
const LEAST_READS = 10;
// The whole answer takes four minutes at least: a proxy that collects it is noticed by this, whatever the machine does.
const PATIENCE_MS = 120_000;

/** Chunks arrive one by one, and before the answer has ended. */
export async function streams(client) {
  const chat = randomUUID();
  const { response, reads, text } = await post(client, chat, `long ${WORDS}`, (text) => text.includes(`word${AWAITED} `));
  assert.equal(response.statusCode, 200, text());
  const running = await call(client, 'GET', `/api/chat/${chat}/stream`, { until: () => true });
  assert.equal(running.response.statusCode, 200, 'the answer has ended already: it was collected');
  running.response.destroy();
  const before = reads();
  response.destroy();
  const stopped = await call(client, 'POST', `/api/chat/${chat}/stop`);
  assert.equal(stopped.response.statusCode, 204, stopped.text());
  assert.ok(before >= LEAST_READS, `${before} reads for ${AWAITED} words`);
  return `${before} reads for ${AWAITED} words`;
}

/** A refusal is shown by stock pages as it comes. */
export async function answersInWords(client) {
  const { response, text } = await call(client, 'POST', '/api/chat', { body: { id: 'refused', messages: [] } });
  assert.equal(response.statusCode, 422, text());
  assert.equal(response.headers['x-error-code'], 'missing_field');
  assert.equal(text(), 'a request needs at least one message');
}

/** A page elsewhere changes nothing. */
export async function foreignPagesAreRefused(client) {
  const evil = { origin: 'https://evil.example', 'sec-fetch-site': 'cross-site' };
  const { response, text } = await call(client, 'POST', '/api/chat', { body: asking('evil', 'say hi'), headers: evil });
  assert.equal(response.statusCode, 403, text());
  assert.equal(response.headers['x-error-code'], 'foreign_origin', text());
}

/** Without keys nobody elsewhere is served where the proxy tells of them. */
export const strangersAreRefused = (client) =>
  isRefused(client, { 'x-forwarded-for': '203.0.113.9' }, 'forwarded', 'auth.api_keys');

/** Nor is a page whose name was pointed to this machine (DNS rebinding). */
export const reboundPagesAreRefused = (client) =>
  isRefused(client, { host: 'rebound.example' }, 'foreign_host', 'server.allowed_hosts');

async function isRefused(client, headers, code, remedy) {
  const { response, text } = await call(client, 'GET', '/api/chats', { headers });
  assert.equal(response.statusCode, 403, text());
  assert.equal(response.headers['x-error-code'], code, text());
  assert.ok(text().includes(remedy), text());
}

/** Both WebSockets pass, the stock one at the address of the requests too. */
export async function webSockets(client) {
  for (const [path, frame, expected] of [
    ['/api/chat', stock('say hi'), '"type":"end"'],
    ['/api/chat/ws', stock('say hi'), '"type":"end"'],
    ['/live?chat=live', live('say hi'), '[DONE]'],
  ]) {
    await converse(client, path, frame, expected);
  }
}

/** Pictures are found where the page is, whichever way it received them. */
export async function pictures(client) {
  // Browsers do not say where the page of a WebSocket is, nor anything of a page that is not secure.
  const { 'sec-fetch-site': site, ...silent } = client.headers;
  const posted = async (headers) => (await post({ ...client, headers }, randomUUID(), 'draw a cat')).text();
  const texts = {
    request: await posted(client.headers),
    'silent request': await posted(silent),
    live: await converse({ ...client, headers: silent }, '/live?chat=live', live('draw a cat'), '[DONE]'),
    stock: await converse({ ...client, headers: silent }, '/api/chat', stock('draw a cat'), '"type":"end"'),
  };
  for (const [how, text] of Object.entries(texts)) await isFound(client, how, text);
}

/** The same where nothing but requests passes. */
export async function picturesOfRequests(client) {
  await isFound(client, 'request', (await post(client, randomUUID(), 'draw a cat')).text());
}

async function isFound(client, how, text) {
  const [, address] = /"url":"([^"]*\/api\/files\/[^"]*)"/.exec(text) ?? [];
  assert.ok(address !== undefined, `${how}: ${text}`);
  const { origin, pathname, search } = new URL(address, client.origin);
  // A browser of this machine finds the bridge itself, too.
  const found = client.origin === client.url ? [client.origin, client.bridge.url] : [client.origin];
  assert.ok(found.includes(origin), `${how}: ${origin} is neither of ${found}`);
  const { response } = await call(client, 'GET', pathname + search);
  assert.equal(response.statusCode, 200, how);
  assert.equal(response.headers['content-type'], 'image/png', how);
}

const stock = (text) => ({ type: 'send', requestId: 'r1', trigger: 'submit-message', ...asking('ws', text) });
const live = (text) => ({ type: 'message', ...asking('live', text) });

/** Sends a frame over a WebSocket; resolves to all that comes up to a word. */
async function converse(client, path, frame, expected) {
  const socket = new WebSocket(client.url.replace('http', 'ws') + path, {
    headers: { ...client.headers, origin: client.origin },
  });
  let text = '';
  await within(
    path,
    new Promise((resolve, reject) => {
      socket.on('open', () => socket.send(JSON.stringify(frame)));
      socket.on('message', (data) => (text += data).includes(expected) && resolve());
      socket.on('error', reject);
      socket.on('close', (code) => reject(new Error(`${path} was closed with ${code}: ${text}`)));
    }),
  );
  socket.terminate();
  return text;
}

function asking(id, text) {
  return { id, messages: [{ id: randomUUID(), role: 'user', parts: [{ type: 'text', text }] }] };
}

const post = (client, chat, text, until) => call(client, 'POST', '/api/chat', { body: asking(chat, text), until });

/** A request as a browser sends it from the page; resolves when the answer has ended, or says enough. */
function call(client, method, path, { body, headers = {}, until } = {}) {
  const url = new URL(path, client.url);
  const sent = {
    'accept-encoding': 'gzip, deflate, br',
    accept: '*/*',
    ...client.headers,
    ...(method === 'POST' && { origin: client.origin, 'content-type': 'application/json' }),
    ...headers,
  };
  return within(
    `${method} ${path}`,
    new Promise((resolve, reject) => {
      const asked = request(url, { method, headers: sent }, (response) => {
        let text = '';
        let reads = 0;
        const answer = { response, text: () => text, reads: () => reads };
        const check = () => until?.(text) && resolve(answer);
        response.on('data', () => (reads += 1));
        response.on('error', reject);
        const decoded = plain(response);
        decoded.on('data', (piece) => ((text += piece), check()));
        decoded.on('end', () => resolve(answer));
        decoded.on('error', reject);
        check();
      });
      asked.on('error', reject);
      asked.end(body === undefined ? undefined : JSON.stringify(body));
    }),
  );
}

/** Proxies may compress, as long as every piece goes on at once. */
function plain(response) {
  const decoders = { gzip: createGunzip, br: createBrotliDecompress };
  const decoder = decoders[response.headers['content-encoding']];
  return decoder === undefined ? response : response.pipe(decoder());
}

async function within(what, promise) {
  let timer;
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`${what}: nothing after ${PATIENCE_MS / 1000} seconds`)), PATIENCE_MS);
  });
  try {
    return await Promise.race([promise, late]);
  } finally {
    clearTimeout(timer);
  }
}
