// Logins with a real OpenID provider at two replicas: what begins at one goes on, and ends, at the other.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { request } from 'node:http';
import { join } from 'node:path';
import { text } from 'node:stream/consumers';
import { after, before, describe, test } from 'node:test';

import { WebSocket } from 'ws';

import { Visitor } from '../chat/login.mjs';
import { startIssuer } from '../e2e/issuer.mjs';
import { TARGET } from '../target.mjs';
import { startFleet } from './fleet.mjs';

const binary = process.env.ADK_BRIDGE_BINARY ?? join(TARGET, 'release/adk-bridge');
// A replica remembers a login for a few seconds, and looks every half minute whether those of its connections have ended.
const LIMIT_MS = 120_000;

describe('logins of a fleet', () => {
  let issuer, fleet;
  before(async () => {
    issuer = await startIssuer({ ada: ['operators'] });
    fleet = await startFleet({ binary, replicas: 2, toml: issuer.toml(), env: issuer.env });
    issuer.allow([fleet.url]);
  });
  after(async () => {
    await fleet?.stop();
    await issuer?.stop();
  });

  /** Asks one replica for an address of the fleet, as the balancer would: `fetch` names no other host than it asks. */
  const send = async (replica, address, { headers, method, body } = {}) => {
    const asked = request(address.replace(fleet.url, replica.url), {
      method,
      headers: { ...headers, host: new URL(fleet.url).host },
    });
    asked.end(body);
    const [answer] = await once(asked, 'response');
    const fields = Object.entries(answer.headersDistinct).flatMap(([name, values]) => values.map((value) => [name, value]));
    return new Response(await text(answer), { status: answer.statusCode, headers: fields });
  };

  const live = async (replica, chat, cookie) => {
    const headers = { cookie, origin: fleet.url, host: new URL(fleet.url).host };
    const socket = new WebSocket(`${replica.url.replace('http', 'ws')}/live?chat=${chat}`, { headers });
    await once(socket, 'open');
    socket.send(JSON.stringify({ type: 'ping', timestamp: 1 }));
    const [pong] = await once(socket, 'message');
    assert.match(String(pong), /"pong"/);
    return { closed: new Promise((resolve) => socket.once('close', resolve)) };
  };

  test('a login goes on and ends at every replica', { timeout: LIMIT_MS }, async () => {
    const [a, b] = fleet.replicas;
    // Begun at A; the provider sends the user back to B.
    const asked = [];
    const visitor = new Visitor({
      url: fleet.url,
      send: (address, options) => {
        if (!address.startsWith(fleet.url)) return fetch(address, options);
        const { pathname } = new URL(address);
        const replica = pathname === '/login' ? a : b;
        asked.push([pathname, replica.name]);
        return send(replica, address, options);
      },
    });
    const { status, page } = await visitor.follow(`${fleet.url}/login`, { user: 'olga', end: '/' });
    assert.equal(status, 200, page);
    assert.deepEqual(asked[0], ['/login', a.name]);
    assert.ok(
      asked.some(([path, name]) => path.startsWith('/login/') && name === b.name),
      JSON.stringify(asked),
    );

    const cookie = visitor.cookiesFor(fleet.url);
    const own = { cookie, origin: fleet.url };
    const who = async (replica) => (await (await send(replica, `${fleet.url}/api/session`, { headers: { cookie } })).json()).user;
    assert.deepEqual(await Promise.all([who(a), who(b)]), ['corp:olga', 'corp:olga']);

    // A owns the chat, and B passes a live connection on.
    const body = JSON.stringify({ id: 'hers', messages: [{ id: 'm', role: 'user', parts: [{ type: 'text', text: 'say hi' }] }] });
    const said = await send(a, `${fleet.url}/api/chat`, {
      method: 'POST',
      body,
      headers: { ...own, 'content-type': 'application/json' },
    });
    assert.equal(said.status, 200);
    await said.text();
    const atOwner = await live(a, 'hers', cookie);
    const through = await live(b, 'hers', cookie);
    const [{ owner }] = await fleet.postgres.query(
      "SELECT r.name AS owner FROM adk_bridge.ownership JOIN adk_bridge.replicas r ON instance = owner WHERE chat_id = 'hers'",
    );
    assert.equal(owner, a.name);

    const left = await send(a, `${fleet.url}/logout`, { method: 'POST', headers: own });
    assert.equal(left.status, 200);
    assert.equal(await who(a), null);
    // B finds out when what it remembers is too old.
    while ((await who(b)) !== null) await new Promise((resolve) => setTimeout(resolve, 100));
    assert.equal((await send(b, `${fleet.url}/api/chats`, { headers: { cookie } })).status, 401);
    await Promise.all([atOwner.closed, through.closed]);
  });

  test('who is erased at one replica is logged out at every one', { timeout: LIMIT_MS }, async () => {
    const [a, b] = fleet.replicas;
    const logIn = async (user) => {
      const through = (address, options) => (address.startsWith(fleet.url) ? send(b, address, options) : fetch(address, options));
      const visitor = new Visitor({ url: fleet.url, send: through });
      await visitor.follow(`${fleet.url}/login`, { user, end: '/' });
      return visitor.cookiesFor(fleet.url);
    };
    const [admin, cookie] = [await logIn('ada'), await logIn('zed')];
    const who = async (replica) => (await (await send(replica, `${fleet.url}/api/session`, { headers: { cookie } })).json()).user;
    assert.deepEqual(await Promise.all([who(a), who(b)]), ['corp:zed', 'corp:zed']);
    const sockets = [await live(a, 'one', cookie), await live(b, 'two', cookie)];
    const erased = await send(a, `${fleet.url}/api/users/corp%3Azed`, {
      method: 'DELETE',
      headers: { cookie: admin, origin: fleet.url },
    });
    const { logins, replicas, unreachable } = await erased.json();
    assert.deepEqual([erased.status, logins, replicas, unreachable], [200, 1, [b.name], []]);
    // At once: each has forgotten what it remembered.
    assert.deepEqual(await Promise.all([who(a), who(b)]), [null, null]);
    await Promise.all(sockets.map(({ closed }) => closed));
    const { length } = await fleet.postgres.query("SELECT 1 FROM adk_bridge.logins WHERE user_id = 'corp:zed'");
    assert.equal(length, 0);
  });
});
