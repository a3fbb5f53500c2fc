// Who may use the bridge, with a real OpenID provider: tokens of programs, and logins of users. The page's own login is tried
// with a browser (`web/e2e/login.mjs`).

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { WebSocket } from 'ws';

import { AUDIENCE, CLIENT_SECRET, forge, forgeWithPublicKey, startIssuer, unsigned } from '../e2e/issuer.mjs';
import { BINARY } from '../target.mjs';
import { Visitor } from './login.mjs';
import { startServer } from './server.mjs';
import { assertNoFaults } from './suite.mjs';

const KEY = 'PLANTED-KEY-of-alice-0123456789';
const DEMO = '[demo]\npace = "0ms"\n';
const KEYS = `[auth]\napi_keys = [{ key = "${KEY}", user = "alice", roles = ["auditor"] }]\n`;

describe('login', { concurrency: 1 }, () => {
  let issuer, stranger, bridge, hasty;
  const used = [];

  before(async () => {
    issuer = await startIssuer({ 'program-ES256': ['controllers'], olga: ['operators'] });
    stranger = await startIssuer();
    const env = { ...issuer.env, RUST_LOG: 'debug' };
    const limits = '[limits]\nwrong_keys_per_minute = 10000\n';
    bridge = await startServer(BINARY, `${KEYS}${issuer.toml()}${limits}`, DEMO, env);
    const hurry = `${issuer.toml('keys_max_age = "1s"')}[auth.login]\nidle = "1s"\n`;
    hasty = await startServer(BINARY, `${hurry}${limits}`, DEMO, env);
    issuer.allow([bridge.url, hasty.url]);
  });
  after(async () => {
    await Promise.all([bridge, hasty].map((it) => it?.stop()));
    await issuer?.stop();
    await stranger?.stop();
  });

  /** The log of a process comes a moment after its answer. */
  const until = async (condition, what) => {
    for (let tries = 0; tries < 500 && !condition(); tries += 1) await new Promise((resolve) => setTimeout(resolve, 20));
    assert.ok(condition(), what());
  };
  const ask = async (token, { path = '/api/chats', at = bridge, ...init } = {}) => {
    used.push(token);
    const response = await fetch(at.url + path, { ...init, headers: { authorization: `Bearer ${token}`, ...init.headers } });
    return { status: response.status, text: await response.text() };
  };
  const who = async (headers, at = bridge) => (await fetch(`${at.url}/api/session`, { headers })).json();
  const claims = (change = {}) => {
    const now = Math.floor(Date.now() / 1_000);
    return { iss: issuer.issuer, aud: AUDIENCE, sub: 'mallory', exp: now + 300, iat: now, ...change };
  };
  /** A line of the log that is new, and has these words. */
  const refusedFor = async (token, words) => {
    const before = bridge.log().length;
    const { status, text } = await ask(token);
    assert.equal(status, 401, text);
    await until(
      () => words.test(bridge.log().slice(before)),
      () => `${words}: ${bridge.log().slice(before)}`,
    );
  };

  test('tokens that the provider has issued are taken, in each way of signing', async () => {
    for (const alg of ['RS256', 'ES256', 'EdDSA']) {
      const token = await issuer.token(alg);
      assert.equal(JSON.parse(Buffer.from(token.split('.')[0], 'base64url')).alg, alg);
      const { status, text } = await ask(token);
      assert.equal(status, 200, text);
      const { user, via, roles } = await who({ authorization: `Bearer ${token}` });
      const expected = alg === 'ES256' ? ['user', 'auditor'] : ['user'];
      assert.deepEqual({ user, via, roles }, { user: `corp:program-${alg}`, via: 'oidc', roles: expected });
    }
  });

  test('users of keys and of providers are not the same, whatever they are called', async () => {
    const named = forge(claims({ sub: 'alice' }), issuer.keyFor('ES256'));
    const chat = (id) =>
      JSON.stringify({ id, messages: [{ id: 'm1', role: 'user', parts: [{ type: 'text', text: 'say hi' }] }] });
    const headers = { 'content-type': 'application/json' };
    const said = await ask(KEY, { path: '/api/chat', method: 'POST', body: chat('of-the-key'), headers });
    assert.equal(said.status, 200, said.text);
    assert.deepEqual(JSON.parse((await ask(named)).text), []);
    assert.equal((await ask(named, { path: '/api/chats/of-the-key' })).status, 404);
    assert.equal(JSON.parse((await ask(KEY)).text).length, 1);
  });

  test('what can be reached of the provider is known before a start', async () => {
    const directory = mkdtempSync(join(tmpdir(), 'adk-bridge-check-'));
    const config = join(directory, 'adk-bridge.toml');
    writeFileSync(
      config,
      `${DEMO}${issuer.toml()}[auth.proxy]\nheader = "x-who"\njwks_url = "${issuer.issuer}/jwks"\naudience = "a"\n`,
    );
    const check = async () => {
      const child = spawn(BINARY, ['check-config', '--config', config, '--reach'], {
        env: { ...process.env, ...issuer.env },
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let printed = '';
      child.stdout.on('data', (piece) => (printed += piece));
      const [code] = await once(child, 'close');
      return { code, printed };
    };
    const fine = await check();
    assert.equal(fine.code, 0, fine.printed);
    assert.match(fine.printed, /ok +auth\.oidc corp: it publishes 3 keys\n/);
    assert.match(fine.printed, /ok +auth\.proxy: it publishes 3 keys\n/);
    issuer.away();
    const away = await check();
    issuer.allow([bridge.url, hasty.url]);
    rmSync(directory, { recursive: true });
    assert.equal(away.code, 2, away.printed);
    assert.match(away.printed, /problem +auth\.oidc corp: 127\.0\.0\.1:\d+ answers 503; .*issuer/);
    assert.match(away.printed, /problem +auth\.proxy: 127\.0\.0\.1:\d+ answers 503; correct jwks_url/);
    assert.ok(![fine, away].some(({ printed }) => printed.includes(CLIENT_SECRET)));
  });

  test('everything else is refused, and the log says why', async () => {
    const key = issuer.keyFor('RS256');
    const now = Math.floor(Date.now() / 1_000);
    for (const [token, words] of [
      [forge(claims({ exp: now - 120 }), key), /a token of corp is refused: it expired 1\d\d seconds ago/],
      [forge(claims({ exp: undefined }), key), /not until when/],
      [forge(claims({ nbf: now + 600 }), key), /nbf is \d+ seconds ahead/],
      [forge(claims({ aud: 'urn:other' }), key), /audience "urn:other"/],
      [await issuer.token('RS256', 'urn:other'), /audience "urn:other"/],
      [await stranger.token('RS256'), /issuer is "http:\/\/127.0.0.1:\d+", which is none of auth.oidc/],
      [forge(claims(), stranger.keyFor('RS256')), /the key "RS256-.*" that signed it is none of the issuer's/],
      [forge(claims(), { ...stranger.keyFor('RS256'), kid: key.kid }), /its signature is wrong/],
      [forge(claims({ iss: `${issuer.issuer}/` }), key), /issuer is /],
      [unsigned(claims()), /signed with "none"/],
      [forgeWithPublicKey(claims(), key), /signed with "HS256"/],
      [forge(claims(), key, { alg: 'RS512' }), /signed with "RS512"/],
      [forge(claims(), key, { alg: 'ES256' }), /none of the issuer's/],
      [forge(claims(), key, { crit: ['exp'] }), /crit/],
      [forge(claims(), key, { typ: 'logout+jwt' }), /type "logout\+jwt"/],
      [forge(claims({ sub: '' }), key), /no claim "sub"/],
    ]) {
      await refusedFor(token, words);
    }
    assert.equal((await ask(forge(claims(), key))).status, 200, 'the forge makes good tokens');
  });

  test('made-up keys do not make the bridge ask the provider each time, and keep nobody out', async () => {
    const key = issuer.keyFor('EdDSA');
    const before = issuer.asked.filter((path) => path === '/jwks').length;
    for (let number = 0; number < 30; number += 1) {
      const { status } = await ask(forge(claims(), key, { kid: `made-up-${number}` }));
      // Whether there is such a key is not known while it is not asked.
      assert.ok([401, 503].includes(status), `${status}`);
      assert.equal((await ask(forge(claims({ number }), key))).status, 200);
    }
    const asked = issuer.asked.filter((path) => path === '/jwks').length - before;
    assert.ok(asked <= 6, `${asked} times`);
  });

  /** Logs in on the provider's pages. */
  const logIn = async (user, at = bridge, visitor = new Visitor({ url: at.url })) => {
    const { status, address, page } = await visitor.follow(`${at.url}/login?to=%2F%23hers`, { user, end: '/' });
    assert.equal(status, 200, page);
    assert.equal(new URL(address).hash, '#hers');
    const cookie = visitor.cookiesFor(at.url);
    used.push(/adk-bridge-login=([^;]*)/.exec(cookie)[1]);
    return { visitor, cookie };
  };

  test('a login is a cookie, which counts only where its own page sends it', async () => {
    const { cookie } = await logIn('olga');
    const { user, name, roles, login, keys } = await who({ cookie });
    assert.deepEqual({ user, name, roles }, { user: 'corp:olga', name: 'olga of Example', roles: ['user', 'approver', 'admin'] });
    assert.deepEqual({ login, keys }, { login: [{ name: 'corp', path: '/login?provider=corp' }], keys: true });
    const post = (headers) => fetch(`${bridge.url}/api/ticket`, { method: 'POST', headers: { cookie, ...headers } });
    for (const [headers, status] of [
      [{}, 403],
      [{ origin: 'https://evil.example' }, 403],
      [{ origin: 'null' }, 403],
      [{ origin: 'http://127.0.0.1:1' }, 403],
      [{ 'sec-fetch-site': 'cross-site' }, 403],
      [{ 'sec-fetch-site': 'same-origin' }, 200],
      [{ origin: bridge.url }, 200],
    ]) {
      assert.equal((await post(headers)).status, status, JSON.stringify(headers));
    }
    assert.equal((await fetch(`${bridge.url}/api/chats`, { headers: { cookie } })).status, 200);
    // A wrong key is not made good by a cookie.
    const both = await fetch(`${bridge.url}/api/chats`, { headers: { cookie, authorization: 'Bearer wrong' } });
    assert.equal(both.status, 401);
    for (const forged of ['x', cookie.replace(/login=./, 'login=!'), `adk-bridge-login=${'A'.repeat(86)}`]) {
      assert.equal((await fetch(`${bridge.url}/api/chats`, { headers: { cookie: forged } })).status, 401, forged);
    }
  });

  test('WebSockets open by the cookie for the own page only, and close when the user logs out', async () => {
    const { cookie } = await logIn('wanda');
    const open = (headers) =>
      new Promise((resolve) => {
        const socket = new WebSocket(`${bridge.url.replace('http', 'ws')}/live`, { headers });
        socket.once('message', () => resolve({ socket, opened: true }));
        socket.once('close', (code) => resolve({ opened: false, code }));
        socket.once('error', () => resolve({ opened: false }));
      });
    assert.equal((await open({ cookie })).opened, false);
    assert.equal((await open({ cookie, origin: 'https://evil.example' })).opened, false);
    assert.equal((await open({ origin: bridge.url })).code, 4401);
    const { socket, opened } = await open({ cookie, origin: bridge.url });
    assert.ok(opened);
    const closed = new Promise((resolve) => socket.once('close', resolve));
    const left = await fetch(`${bridge.url}/logout`, { method: 'POST', headers: { cookie, origin: bridge.url } });
    assert.equal(left.status, 200);
    await closed;
    assert.equal((await who({ cookie })).user, null);
  });

  test('two tabs log in at the same time, and a browser keeps a few attempts', async () => {
    const begin = async (cookies = {}) => {
      const cookie = Object.entries(cookies).map(([name, value]) => `${name}=${value}`);
      const begun = await fetch(`${bridge.url}/login`, { redirect: 'manual', headers: { cookie: cookie.join('; ') } });
      const kept = { ...cookies };
      for (const set of begun.headers.getSetCookie()) {
        const [, name, value, age] = /^([^=]+)=([^;]*);.*Max-Age=(\d+)/.exec(set);
        if (age === '0') delete kept[name];
        else kept[name] = value;
      }
      return { kept, state: new URL(begun.headers.get('location')).searchParams.get('state') };
    };
    const states = [];
    let kept = {};
    for (let tab = 0; tab < 4; tab += 1) {
      const begun = await begin(kept);
      kept = begun.kept;
      states.push(begun.state);
    }
    assert.equal(Object.keys(kept).length, 3);
    const cookie = Object.entries(kept).map(([name, value]) => `${name}=${value}`);
    const iss = encodeURIComponent(issuer.issuer);
    const back = async (state) => {
      const query = `code=made-up&state=${state}&iss=${iss}`;
      return (await fetch(`${bridge.url}/login/callback?${query}`, { headers: { cookie: cookie.join('; ') } })).status;
    };
    // Those that are known reach the provider, which knows no such code.
    assert.deepEqual([await back(states[0]), await back(states[1]), await back(states[3])], [400, 502, 502]);
  });

  test('whoever makes up codes has to wait before the provider is asked again', async () => {
    const strict = await startServer(BINARY, `${issuer.toml()}[limits]\nwrong_keys_per_minute = 3\n`, DEMO, issuer.env);
    try {
      const begun = await fetch(`${strict.url}/login`, { redirect: 'manual' });
      const cookie = begun.headers.getSetCookie()[0].split(';')[0];
      const state = new URL(begun.headers.get('location')).searchParams.get('state');
      const iss = encodeURIComponent(issuer.issuer);
      const before = issuer.asked.filter((path) => path === '/token').length;
      const statuses = [];
      for (let number = 0; number < 6; number += 1) {
        const path = `/login/callback?code=made-up-${number}&state=${state}&iss=${iss}`;
        const response = await fetch(strict.url + path, { headers: { cookie } });
        statuses.push(response.status);
        if (response.status === 429) assert.ok(Number(response.headers.get('retry-after')) > 0);
      }
      assert.deepEqual(statuses, [502, 502, 502, 429, 429, 429]);
      assert.equal(issuer.asked.filter((path) => path === '/token').length - before, 3);
    } finally {
      await strict.stop();
    }
  });

  test('a reload gives and takes roles of users who are logged in', async () => {
    const start = (roles) => issuer.toml().replace(/^roles = .*$/m, `roles = ${roles}`);
    const changing = await startServer(BINARY, start('{ operators = "admin" }'), DEMO, issuer.env);
    try {
      issuer.allow([bridge.url, hasty.url, changing.url]);
      const { cookie } = await logIn('olga', changing);
      assert.deepEqual((await who({ cookie }, changing)).roles, ['user', 'admin']);
      assert.match(await changing.reload(start('{ operators = "auditor" }')), /was loaded again/);
      assert.deepEqual((await who({ cookie }, changing)).roles, ['user', 'auditor']);
      const erased = await fetch(`${changing.url}/api/users/corp%3Apaul`, {
        method: 'DELETE',
        headers: { cookie, origin: changing.url },
      });
      assert.equal(erased.status, 403);
    } finally {
      await changing.stop();
    }
  });

  test('a new login has a new cookie, and the one before serves no more', async () => {
    const { visitor, cookie } = await logIn('rita');
    const { cookie: next } = await logIn('rita', bridge, visitor);
    assert.notEqual(next, cookie);
    assert.equal((await who({ cookie })).user, null);
    assert.equal((await who({ cookie: next })).user, 'corp:rita');
  });

  test('logging out is asked for by the own page, and ends one login or all', async () => {
    const logins = [await logIn('zoe'), await logIn('zoe'), await logIn('zoe')].map(({ cookie }) => cookie);
    const users = async () => Promise.all(logins.map(async (cookie) => (await who({ cookie })).user));
    const leave = (cookie, headers, query = '') =>
      fetch(`${bridge.url}/logout${query}`, { method: 'POST', headers: { cookie, ...headers } });
    const own = { origin: bridge.url };
    assert.equal((await leave(logins[0], {})).status, 403);
    assert.equal((await leave(logins[0], { origin: 'https://evil.example' })).status, 403);
    assert.deepEqual(await users(), ['corp:zoe', 'corp:zoe', 'corp:zoe']);
    const left = await leave(logins[0], own);
    assert.match(left.headers.get('set-cookie'), /^adk-bridge-login=; Path=\/; Max-Age=0; HttpOnly; SameSite=Lax/);
    const { redirect } = await left.json();
    assert.ok(redirect.startsWith(`${issuer.issuer}/session/end?id_token_hint=`), redirect);
    used.push(new URL(redirect).searchParams.get('id_token_hint'));
    assert.deepEqual(await users(), [null, 'corp:zoe', 'corp:zoe']);
    assert.equal((await leave(logins[1], own, '?everywhere=true')).status, 200);
    assert.deepEqual(await users(), [null, null, null]);
    // Twice is no harm.
    assert.equal((await leave(logins[1], own)).status, 200);
  });

  test('an admin logs somebody out everywhere', async () => {
    const [admin, user] = [await logIn('olga'), await logIn('paul')];
    const end = ({ cookie }) =>
      fetch(`${bridge.url}/api/users/corp%3Apaul/logins`, { method: 'DELETE', headers: { cookie, origin: bridge.url } });
    assert.equal((await end(user)).status, 403);
    assert.deepEqual(await (await end(admin)).json(), { ended: 1 });
    assert.equal((await who({ cookie: user.cookie })).user, null);
  });

  test('logins outlive a restart, and end when they are not used', async () => {
    const { cookie } = await logIn('ruth');
    await bridge.restart();
    assert.equal((await who({ cookie })).user, 'corp:ruth');
    const idle = await logIn('ida', hasty);
    let user;
    for (let tries = 0; tries < 50 && user !== null; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, 1_100));
      ({ user } = await who({ cookie: idle.cookie }, hasty));
    }
    assert.equal(user, null);
  });

  test('answers that belong to no login here are refused', async () => {
    const begun = await fetch(`${bridge.url}/login?to=https%3A%2F%2Fevil.example`, { redirect: 'manual' });
    assert.equal(begun.status, 303);
    const asked = new URL(begun.headers.get('location'));
    assert.equal(asked.searchParams.get('code_challenge_method'), 'S256');
    const [attempt] = begun.headers.getSetCookie();
    assert.match(attempt, /^adk-bridge-attempt-[\w-]{12}=.*; HttpOnly; SameSite=Lax$/);
    const cookie = attempt.split(';')[0];
    const back = (query, headers = { cookie }) => fetch(`${bridge.url}/login/callback?${query}`, { headers, redirect: 'manual' });
    const state = asked.searchParams.get('state');
    const iss = encodeURIComponent(issuer.issuer);
    for (const [query, headers, status] of [
      [`code=x&state=${state}&iss=${iss}`, {}, 400],
      [`code=x&state=wrong&iss=${iss}`, undefined, 400],
      [`code=x&iss=${iss}`, undefined, 400],
      [`code=x&state=${state}&iss=https%3A%2F%2Fevil.example`, undefined, 400],
      [`code=x&state=${state}`, undefined, 400],
      [`error=access_denied&state=${state}&iss=${iss}`, undefined, 403],
      [`code=PLANTED-CODE&state=${state}&iss=${iss}`, undefined, 502],
    ]) {
      const response = await back(query, headers);
      assert.equal(response.status, status, query);
      assert.match(await response.text(), /Log in again/);
      assert.equal(response.headers.getSetCookie().filter((it) => it.startsWith('adk-bridge-login')).length, 0);
    }
    await until(() => /a user cannot log in at corp: 127.0.0.1:\d+ answers 400 \(invalid_grant\)/.test(bridge.log()), bridge.log);
  });

  test('a new key is known as soon as it is used, and the old one is not taken any more', async () => {
    const old = forge(claims(), issuer.keyFor('ES256'));
    assert.equal((await ask(old, { at: hasty })).status, 200);
    issuer.rotate();
    const fresh = forge(claims(), issuer.keyFor('ES256'));
    assert.equal((await ask(fresh, { at: hasty })).status, 200);
    assert.equal((await ask(old, { at: hasty })).status, 401);
    const started = await startServer(BINARY, `${KEYS}${issuer.toml()}`, DEMO, issuer.env);
    try {
      const before = forge(claims(), issuer.keyFor('ES256'));
      assert.equal((await ask(before, { at: started })).status, 200);
      issuer.rotate();
      assert.equal((await ask(forge(claims(), issuer.keyFor('ES256')), { at: started })).status, 200);
      for (const token of [old, before]) assert.equal((await ask(token, { at: started })).status, 401);
    } finally {
      await started.stop();
    }
    await until(() => /the key "ES256-.*" that signed it is none of the issuer's/.test(hasty.log()), hasty.log);
    assert.equal((await ask(await issuer.token('RS256'), { at: hasty })).status, 200);
  });

  test('known keys serve while the provider is away', async () => {
    const key = issuer.keyFor('EdDSA');
    assert.equal((await ask(forge(claims(), key), { at: hasty })).status, 200);
    const failures = async () => {
      const { text } = await ask(forge(claims(), key), { path: '/metrics', at: hasty });
      return Number(/background_failures_total\{task="provider_keys"\} (\d+)/.exec(text)[1]);
    };
    const before = await failures();
    issuer.away();
    for (let number = 0; number < 5; number += 1) {
      const { status, text } = await ask(forge(claims({ number }), key), { at: hasty });
      assert.equal(status, 200, text);
    }
    // It is asked again in the background, and alerts look at how often that fails.
    let after = before;
    for (let tries = 0; tries < 500 && after === before; tries += 1) {
      await new Promise((resolve) => setTimeout(resolve, 20));
      after = await failures();
    }
    assert.ok(after > before);
    issuer.allow([bridge.url, hasty.url]);
  });

  test('no secret is found anywhere', async () => {
    const metrics = await ask(KEY, { path: '/metrics' });
    const found = { 'the log': bridge.log(), 'the log of hasty': hasty.log(), 'the metrics': metrics.text };
    for (const { data } of [bridge, hasty]) {
      for (const file of readdirSync(data, { recursive: true, withFileTypes: true })) {
        if (file.isFile()) found[file.name] = readFileSync(join(file.parentPath, file.name)).toString('latin1');
      }
    }
    const secrets = [CLIENT_SECRET, KEY, 'PLANTED-CODE', ...issuer.secrets, ...used].filter((it) => it.length > 8);
    assert.ok(secrets.length > 20);
    for (const [place, text] of Object.entries(found)) {
      for (const secret of secrets) assert.ok(!text.includes(secret), `${place} has ${secret}`);
    }
  });

  test('no bridge has panicked or logged an error', () => assertNoFaults({ bridge, hasty }));
});
