// Who may use the bridge in other ways than one provider: a proxy that signs, two providers, another configuration while it
// runs; and what is left of a user who is erased. Tokens and logins of one provider are in `login.test.mjs`.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { WebSocket } from 'ws';

import { AUDIENCE, forge, startIssuer, unsigned } from '../e2e/issuer.mjs';
import { HEADER, startSigningProxy } from '../e2e/signing-proxy.mjs';
import { BINARY } from '../target.mjs';
import { Visitor } from './login.mjs';
import { startServer } from './server.mjs';
import { assertNoFaults } from './suite.mjs';

const KEY = 'the-key-of-alice-0123456789';
const DEMO = '[demo]\npace = "0ms"\n';
const SLOW = '[demo]\npace = "50ms"\n';
const keyOf = (user, key = KEY, more = '') => `[[auth.api_keys]]\nkey = "${key}"\nuser = "${user}"\n${more}`;
const ENDLESS = '[limits]\nwrong_keys_per_minute = 10000\n';

const seconds = () => Math.floor(Date.now() / 1_000);
const bearer = (token) => ({ authorization: `Bearer ${token}` });
const who = async (bridge, headers) => (await fetch(`${bridge.url}/api/session`, { headers })).json();
const status = async (bridge, headers, path = '/api/chats') => (await fetch(bridge.url + path, { headers })).status;

/** The log of a process comes a moment after its answer. */
async function logged(bridge, words, from = 0) {
  while (!words.test(bridge.log().slice(from))) await new Promise((resolve) => setTimeout(resolve, 20));
}

/** Asks for an answer that takes long; resolves when it has begun. */
async function slowAnswer(bridge, chat, headers) {
  const response = await fetch(`${bridge.url}/api/chat`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...headers },
    body: JSON.stringify({ id: chat, messages: [{ id: 'm', role: 'user', parts: [{ type: 'text', text: 'slow 100000' }] }] }),
  });
  return reading(response);
}

/** Reads an answer until it has text; `over` resolves to how it ends. */
async function reading(response) {
  assert.equal(response.status, 200, response.status === 200 ? '' : await response.text());
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = '';
  while (!text.includes('text-delta')) text += (await reader.read()).value;
  const over = (async () => {
    try {
      for (;;) {
        const { done, value } = await reader.read();
        if (done) return 'ended';
        text += value;
        if (text.includes('[DONE]')) return 'finished';
      }
    } catch {
      return 'cut';
    }
  })();
  return { over };
}

const resume = async (bridge, chat, headers) => reading(await fetch(`${bridge.url}/api/chat/${chat}/stream`, { headers }));

/** The same, or nothing for somebody who is not known any more. */
async function resumed(bridge, chat, headers) {
  const response = await fetch(`${bridge.url}/api/chat/${chat}/stream`, { headers });
  return response.status === 401 ? undefined : reading(response);
}

/** Logs in on the provider's pages; resolves to the cookie. */
async function logIn(bridge, user, provider = '') {
  const visitor = new Visitor({ url: bridge.url });
  const { status, page } = await visitor.follow(`${bridge.url}/login${provider && `?provider=${provider}`}`, { user, end: '/' });
  assert.equal(status, 200, page);
  return visitor.cookiesFor(bridge.url);
}

const claimsOf = (issuer, change = {}) => {
  const now = seconds();
  return { iss: issuer.issuer, aud: AUDIENCE, sub: 'program', exp: now + 300, iat: now, ...change };
};

describe('a proxy that signs who its users are', { concurrency: 1 }, () => {
  let proxy, bridge, hasty, strict;
  before(async () => {
    proxy = await startSigningProxy();
    bridge = await startServer(BINARY, `${keyOf('alice')}${proxy.toml()}${ENDLESS}`, SLOW);
    hasty = await startServer(BINARY, `${proxy.toml('keys_max_age = "1s"')}${ENDLESS}`, DEMO);
    strict = await startServer(BINARY, `${proxy.toml()}[limits]\nwrong_keys_per_minute = 3\n`, DEMO);
  });
  after(async () => {
    await Promise.all([bridge, hasty, strict].map((it) => it?.stop()));
    await proxy?.stop();
  });
  const by = (assertion) => ({ [HEADER]: assertion });

  test('what it signs names the user and the roles', async () => {
    const plain = await who(bridge, by(await proxy.assertion('ann')));
    assert.deepEqual([plain.user, plain.via, plain.roles], ['proxy:ann', 'proxy', ['user']]);
    assert.ok(plain.expiresAt > Date.now(), `${plain.expiresAt}`);
    const admin = await who(bridge, by(await proxy.assertion('a b', { groups: ['operators'] })));
    assert.deepEqual([admin.user, admin.roles], ['proxy:a%20b', ['user', 'admin']]);
    assert.equal(await status(bridge, {}), 401);
  });

  test('everything else is refused, and the log says why', async () => {
    const stranger = await startSigningProxy();
    const key = proxy.key();
    const shared = { alg: 'HS256', kid: key.kid, secret: new TextEncoder().encode('what an attacker has chosen') };
    const now = seconds();
    const claims = { iss: 'https://proxy.example', aud: 'x', sub: 'eve', iat: now, exp: now + 600 };
    for (const [assertion, words] of [
      ['eve', /three parts/],
      [unsigned(claims), /signed with "none"/],
      [await proxy.assertion('eve', {}, shared), /signed with "HS256"/],
      [await proxy.assertion('eve', {}, { ...stranger.key(), kid: key.kid }), /its signature is wrong/],
      [await proxy.assertion('eve', {}, { ...stranger.key(), kid: 'another' }), /none of the issuer's/],
      [await proxy.assertion('eve', { aud: '/projects/1/global/backendServices/3' }), /it is for the audience/],
      [await proxy.assertion('eve', { iss: 'https://proxy.example.evil' }), /its issuer is/],
      [await proxy.assertion('eve', { exp: now - 120 }), /it expired 1\d\d seconds ago/],
      [await proxy.assertion('eve', { exp: undefined }), /not until when/],
      [await proxy.assertion('eve', { nbf: now + 600 }), /nbf is \d+ seconds ahead/],
      [await proxy.assertion(''), /no claim "sub"/],
    ]) {
      const before = bridge.log().length;
      assert.equal(await status(bridge, by(assertion)), 401, assertion);
      await logged(bridge, words, before);
    }
    await stranger.stop();
  });

  test('what is there and wrong refuses, whatever else is right', async () => {
    const [good, bad] = [await proxy.assertion('ann'), await proxy.assertion('ann', { aud: 'x' })];
    assert.equal((await who(bridge, { ...bearer(KEY), ...by(good) })).user, 'alice');
    for (const headers of [
      { ...bearer('wrong'), ...by(good) },
      { authorization: 'Basic d3Jvbmc=', ...by(good) },
      { ...bearer('ey.a.b'), ...by(good) },
    ]) {
      assert.equal(await status(bridge, headers), 401, JSON.stringify(headers));
    }
    assert.equal(await status(bridge, by(bad)), 401);
    // Where no key and no token is taken, the header is somebody else's.
    assert.equal((await who(hasty, { ...bearer('of another service'), ...by(good) })).user, 'proxy:ann');
  });

  test('a WebSocket and a stream end with the assertion that opened them, and the turn goes on', async () => {
    const lasting = by(await proxy.assertion('brief'));
    /** Both are opened with one that lasts so many seconds; on a busy machine that may be too few. */
    const openedFor = async (left) => {
      // Clocks may differ by a minute.
      const brief = by(await proxy.assertion('brief', { exp: seconds() - 60 + left }));
      const socket = new WebSocket(`${bridge.url.replace('http', 'ws')}/live?chat=voice`, { headers: brief });
      const closed = new Promise((resolve) => socket.once('close', resolve));
      const opened = await new Promise((resolve) => {
        socket.once('open', () => resolve(true));
        for (const event of ['close', 'error']) socket.once(event, () => resolve(false));
      });
      const stream = opened && (await resumed(bridge, 'slow', brief));
      return stream ? { brief, closed, over: stream.over } : openedFor(2 * left);
    };
    const first = await slowAnswer(bridge, 'slow', lasting);
    const { brief, closed, over } = await openedFor(4);
    assert.equal(await over, 'cut');
    await closed;
    assert.equal(await status(bridge, brief), 401);
    const again = await resume(bridge, 'slow', lasting);
    const stopped = await fetch(`${bridge.url}/api/chat/slow/stop`, { method: 'POST', headers: lasting });
    assert.equal(stopped.status, 204);
    assert.deepEqual(await Promise.all([first.over, again.over]), ['finished', 'finished']);
  });

  test('what has expired is no wrong key, however much of it comes', async () => {
    const expired = await Promise.all([...Array(8)].map((_, n) => proxy.assertion(`user-${n}`, { exp: seconds() - 90 })));
    for (const assertion of expired) assert.equal(await status(strict, by(assertion)), 401);
    for (let number = 0; number < 3; number += 1) assert.equal(await status(strict, by('made up')), 401);
    assert.equal(await status(strict, by('made up')), 429);
    const metrics = await (await fetch(`${strict.url}/metrics`, { headers: by(await proxy.assertion('ann')) })).text();
    assert.match(metrics, /adk_bridge_refused_credentials_total\{reason="expired"\} 8\n/);
    assert.match(metrics, /adk_bridge_refused_credentials_total\{reason="wrong"\} 4\n/);
  });

  test('a key that was withdrawn serves no longer than keys_max_age, also for what was checked before', async () => {
    const old = by(await proxy.assertion('ann'));
    assert.equal(await status(hasty, old), 200);
    await proxy.rotate();
    // So long may it serve.
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    assert.equal(await status(hasty, old), 401);
    assert.equal(await status(hasty, by(await proxy.assertion('ann'))), 200);
  });

  test('known keys serve while the proxy cannot be asked, and the log says so', async () => {
    const assertion = by(await proxy.assertion('ann'));
    assert.equal(await status(hasty, assertion), 200);
    proxy.has('away');
    await new Promise((resolve) => setTimeout(resolve, 1_100));
    for (let number = 0; number < 5; number += 1) {
      assert.equal(await status(hasty, by(await proxy.assertion(`ann-${number}`))), 200);
    }
    assert.equal(await status(hasty, assertion), 200);
    await logged(hasty, /cannot be looked up: .* 503; those of .* ago serve meanwhile/);
    proxy.has('');
  });

  test('a proxy that says nothing is not waited for to the end', async () => {
    proxy.has('silent');
    const silent = /takes longer than 3s to say its keys; those of .* ago serve meanwhile/;
    while (!silent.test(hasty.log())) assert.equal(await status(hasty, by(await proxy.assertion('ann'))), 200);
    proxy.has('');
  });

  test('no bridge has panicked or logged an error', () => assertNoFaults({ bridge, hasty, strict }));
});

describe('two providers, and another configuration', { concurrency: 1 }, () => {
  let corp, partner, bridge;
  before(async () => {
    corp = await startIssuer({ olga: ['operators'] });
    const says = (use, id) => ({
      sub: id,
      email: `${id}@example.com`,
      // Some providers say so at this endpoint only.
      ...(use === 'userinfo' && { email_verified: id !== 'mallory' }),
      groups: [],
    });
    partner = await startIssuer({}, { name: 'partner', says });
    const compat = '[server]\ncompat = ["adk-stream-protocol"]\n';
    bridge = await startServer(BINARY, `${compat}${keyOf('alice')}${corp.toml()}${ENDLESS}`, SLOW, corp.env);
    for (const issuer of [corp, partner]) issuer.allow([bridge.url]);
  });
  after(async () => {
    await bridge?.stop();
    await Promise.all([corp, partner].map((it) => it?.stop()));
  });
  const both = () => `${keyOf('alice')}${corp.toml()}${partner.toml('user_claim = "email"')}${ENDLESS}`;
  const post = (cookie, origin) =>
    fetch(`${bridge.url}/api/ticket`, { method: 'POST', headers: { cookie, origin } }).then((response) => response.status);
  let olga;

  test('a reload adds a provider, a key and an origin, and keeps logins', async () => {
    olga = await logIn(bridge, 'olga');
    const stranger = forge(claimsOf(partner, { email: 'p@example.com' }), partner.keyFor('ES256'));
    const page = 'https://page.example';
    assert.equal(await status(bridge, bearer(stranger)), 401);
    assert.equal(await post(olga, page), 403);
    const bob = keyOf('bob', 'the-key-of-bob-0123456789');
    const said = await bridge.reload(`[server]\nallowed_origins = ["${page}"]\n${both()}${bob}`);
    assert.match(said, /changed: auth.api_keys, auth.oidc, server.allowed_origins$/);
    assert.equal((await who(bridge, bearer('the-key-of-bob-0123456789'))).user, 'bob');
    assert.equal((await who(bridge, { cookie: olga })).user, 'corp:olga');
    assert.equal(await post(olga, page), 200);
    assert.equal(await post(olga, 'https://evil.example'), 403);
    // A wrong key in the other header is not made good by a cookie either.
    assert.equal((await who(bridge, { 'x-api-key': KEY, cookie: olga })).user, 'alice');
    assert.equal(await status(bridge, { 'x-api-key': 'wrong', cookie: olga }), 401);
    await bridge.reload(both());
    assert.equal(await post(olga, page), 403);
    assert.equal(await status(bridge, bearer('the-key-of-bob-0123456789')), 401);
  });

  test('the page lets the user choose, and neither takes the other for itself', async () => {
    const { login } = await who(bridge, {});
    assert.deepEqual(login, [
      { name: 'corp', path: '/login?provider=corp' },
      { name: 'partner', path: '/login?provider=partner' },
    ]);
    const choice = await fetch(`${bridge.url}/login?to=${encodeURIComponent('/#a&b')}`, { redirect: 'manual' });
    assert.equal(choice.status, 200);
    const links = [...(await choice.text()).matchAll(/href="([^"]*)">(\w+)</g)];
    assert.deepEqual(
      links.map(([, , name]) => name),
      ['corp', 'partner'],
    );
    for (const [index, [issuer, user]] of [
      [corp, 'corp:pat'],
      [partner, 'partner:pat@example.com'],
    ].entries()) {
      const visitor = new Visitor({ url: bridge.url });
      const link = bridge.url + links[index][1].replaceAll('&amp;', '&');
      const begun = await fetch(link, { redirect: 'manual' });
      assert.ok(begun.headers.get('location').startsWith(`${issuer.issuer}/auth?`), begun.headers.get('location'));
      const { address } = await visitor.follow(link, { user: 'pat', end: '/' });
      assert.equal(new URL(address).hash, '#a&b');
      assert.equal((await who(bridge, { cookie: visitor.cookiesFor(bridge.url) })).user, user);
    }
    assert.equal(await status(bridge, {}, '/login?provider=nobody'), 404);
    // The answer of one provider is none to a login that was begun with the other.
    const begun = await fetch(`${bridge.url}/login?provider=corp`, { redirect: 'manual' });
    const [attempt] = begun.headers.getSetCookie();
    const state = new URL(begun.headers.get('location')).searchParams.get('state');
    const iss = encodeURIComponent(partner.issuer);
    const mixed = await fetch(`${bridge.url}/login/callback?code=x&state=${state}&iss=${iss}`, {
      headers: { cookie: attempt.split(';')[0] },
    });
    assert.equal(mixed.status, 400);
    // Nor is a token of one signed by the other.
    const taken = forge(claimsOf(corp), { ...partner.keyFor('ES256'), kid: corp.keyFor('ES256').kid });
    assert.equal(await status(bridge, bearer(taken)), 401);
  });

  test('an address that the provider has verified, but says so elsewhere, names its user', async () => {
    const cookie = await logIn(bridge, 'vera', 'partner');
    assert.equal((await who(bridge, { cookie })).user, 'partner:vera@example.com');
    const visitor = new Visitor({ url: bridge.url });
    const refused = await visitor.follow(`${bridge.url}/login?provider=partner`, { user: 'mallory', end: '/login/callback' });
    assert.equal(refused.status, 502);
    await logged(bridge, /its e-mail address is not verified/);
  });

  test('an answer that is being read ends with the login, and the turn goes on', async () => {
    const own = { cookie: await logIn(bridge, 'rita', 'corp'), origin: bridge.url };
    const { over } = await slowAnswer(bridge, 'hers', own);
    const follower = await resume(bridge, 'hers', own);
    const left = await fetch(`${bridge.url}/logout`, { method: 'POST', headers: own });
    assert.equal(left.status, 200);
    assert.deepEqual(await Promise.all([over, follower.over]), ['cut', 'cut']);
    const again = { cookie: await logIn(bridge, 'rita', 'corp'), origin: bridge.url };
    const resumed = await resume(bridge, 'hers', again);
    assert.equal((await fetch(`${bridge.url}/api/chat/hers/stop`, { method: 'POST', headers: again })).status, 204);
    assert.equal(await resumed.over, 'finished');
  });

  test('who is erased is logged out, and nothing is left of the logins', async () => {
    const user = 'corp%3Azed';
    const [first, second] = [await logIn(bridge, 'zed', 'corp'), await logIn(bridge, 'zed', 'corp')];
    const exported = await (await fetch(`${bridge.url}/api/export`, { headers: { cookie: first } })).text();
    const lines = exported
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line));
    const logins = lines.filter(({ type }) => type === 'login');
    assert.equal(logins.length, 2, exported);
    const [{ createdAt, usedAt, endsAt, ...said }] = logins;
    assert.deepEqual(said, { type: 'login', provider: 'corp', name: 'zed of Example', groups: [], roles: ['user'], claims: {} });
    assert.ok(createdAt <= usedAt && usedAt < endsAt);
    assert.equal(lines.at(-1).logins, 2);
    for (const cookie of [first, second]) assert.ok(!exported.includes(/login=([\w-]{20})/.exec(cookie)[1]));

    const { over } = await slowAnswer(bridge, 'his', { cookie: first, origin: bridge.url });
    const erase = (headers) => fetch(`${bridge.url}/api/users/${user}`, { method: 'DELETE', headers });
    assert.equal((await erase({ cookie: second, origin: bridge.url })).status, 403);
    const erased = await (await erase({ cookie: olga, origin: bridge.url })).json();
    assert.deepEqual([erased.user, erased.logins, erased.chats], ['corp:zed', 2, 1]);
    await over;
    for (const cookie of [first, second]) {
      assert.equal((await who(bridge, { cookie })).user, null);
      assert.equal(await status(bridge, { cookie }), 401);
    }
    await logged(bridge, /corp:olga has erased corp:zed: 1 chats, \d+ bytes, 2 logins/);
    assert.equal((await (await erase({ cookie: olga, origin: bridge.url })).json()).logins, 0);
  });

  test('logins are counted', async () => {
    const metrics = await (await fetch(`${bridge.url}/metrics`, { headers: bearer(KEY) })).text();
    const counted = (result) => Number(new RegExp(`adk_bridge_logins_total\\{result="${result}"\\} (\\d+)`).exec(metrics)[1]);
    assert.ok(counted('completed') >= 7, metrics);
    assert.deepEqual([counted('unknown'), counted('not_accepted'), counted('denied')], [1, 1, 0]);
  });

  test('a provider that is removed takes its logins and its tokens along', async () => {
    const token = forge(claimsOf(corp), corp.keyFor('ES256'));
    assert.equal(await status(bridge, bearer(token)), 200);
    const { over } = await slowAnswer(bridge, 'last', { cookie: olga, origin: bridge.url });
    assert.match(
      await bridge.reload(`${keyOf('alice')}${partner.toml('user_claim = "email"')}${ENDLESS}`),
      /changed: auth.oidc$/,
    );
    assert.equal(await over, 'cut');
    assert.equal((await who(bridge, { cookie: olga })).user, null);
    assert.equal(await status(bridge, bearer(token)), 401);
    assert.equal(await status(bridge, bearer(KEY)), 200);
    // Without any key or provider, it would serve this machine only.
    await bridge.reload(ENDLESS);
    await logged(bridge, /only a restart changes these keys: auth.api_keys, auth.oidc/);
    assert.equal(await status(bridge, bearer(KEY)), 200);
    assert.equal(await status(bridge, {}), 401);
  });

  test('no token and no secret is in the log', () => {
    const log = bridge.log();
    for (const secret of [KEY, ...corp.secrets, ...partner.secrets]) assert.ok(!log.includes(secret), log);
  });

  test('no bridge has panicked or logged an error', () => assertNoFaults({ bridge }));
});
