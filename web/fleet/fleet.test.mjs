// The short form of the judge: three replicas of the release build, haproxy, PostgreSQL, and people who talk meanwhile.

import assert from 'node:assert/strict';
import { mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { TARGET } from '../target.mjs';
import { USERS, endpoints, startFleet } from './fleet.mjs';
import { cutDatabase, restartDatabase, rollingRestart } from './outage.mjs';
import { RACING, contradict } from './races.mjs';
import { Random } from './random.mjs';
import { describe as summary, underLoad } from './run.mjs';

const binary = process.env.ADK_BRIDGE_BINARY ?? join(TARGET, 'release/adk-bridge');
const directory = join(TARGET, 'fleet');
const stories = join(directory, 'stories.txt');
// Another one makes other moments: ADK_BRIDGE_FLEET_SEED.
const seed = Number(process.env.ADK_BRIDGE_FLEET_SEED ?? 0x5eed);
const KILLS = 30;
const RACES = 1_000;
const CUT_MS = 20_000;

/** Nothing failed; what is printed of a failure is enough to look for its reason. */
function check(result, name) {
  console.log(`${name}: ${summary(result)}`);
  const failed = result.failures.map(({ name, problem }) => `${name}: ${problem.message.split('\n')[0]}`);
  assert.deepEqual(failed, [], `seed ${seed}; the stories are in ${stories}`);
  assert.deepEqual(result.faults, [], `seed ${seed}`);
  assert.ok(result.conversations > 10, `${result.conversations} conversations`);
}

describe('fleet', () => {
  mkdirSync(directory, { recursive: true });
  rmSync(stories, { force: true });

  describe('replicas die while people talk', () => {
    let fleet;
    before(async () => (fleet = await startFleet({ binary })));
    after(() => fleet?.stop());

    test('kills, drains and pauses at random moments', async () => {
      const result = await underLoad(fleet, { seed, stories }, ({ disturber }) => disturber.run(KILLS));
      check(result, 'kills');
    });

    test('a rolling restart loses no turn', async () => {
      const result = await underLoad(fleet, { seed, stories, skip: ['expired'] }, (load) => rollingRestart(fleet, load));
      check(result, 'rolling-restart');
      assert.deepEqual(result.remarks, {}, 'a turn was lost, or repeated by its user');
    });
  });

  describe('writers are watched', () => {
    let fleet;
    before(async () => (fleet = await startFleet({ binary, replicas: 1 })));
    after(() => fleet?.stop());

    test('a stranger is noticed in every table that a chat has', async () => {
      const api = endpoints(fleet.url, USERS[0]);
      const question = { id: 'q', role: 'user', parts: [{ type: 'text', text: 'say hello' }] };
      await (await api.post('/api/chat', { id: 'chat', messages: [question] })).text();
      assert.deepEqual(await fleet.strangers(), []);
      const { query } = fleet.postgres;
      const tables = await query(`
        SELECT DISTINCT c.relname AS name FROM pg_constraint f JOIN pg_class c ON c.oid = f.conrelid
        WHERE f.contype = 'f' AND f.confrelid IN ('adk_bridge.chats'::regclass, 'adk_bridge.messages'::regclass)`);
      const [{ chat, message }] = await query('SELECT chat, max(seq) AS message FROM adk_bridge.messages GROUP BY chat');
      const rows = {
        messages: `(chat, id, state, seen, body) VALUES (${chat}, 'm', 'done', true, '{}')`,
        approvals: `(chat, id, message_id, call_id, tool, input, input_hash, asked_at, expires_at, state)
                    VALUES (${chat}, 'a', 'm', 'c', 't', '{}', 'h', 0, 0, 'requested')`,
        tool_runs: `(chat, call_id, message_id, tool, started_at) VALUES (${chat}, 'c', 'm', 't', 0)`,
        events: `(chat, generation, message_id, body) VALUES (${chat}, 0, 'm', '{}')`,
        chat_state: `(chat, key, value) VALUES (${chat}, 'k', '1')`,
        files: `(id, chat, media_type, bytes, created_at) VALUES ('f', ${chat}, 'text/plain', 1, 0)`,
        grown_texts: `(message, part, at, checksum, text) VALUES (${message}, 0, 0, 0, '""')`,
        counted_usage: `(message, input, cached, output) VALUES (${message}, 1, 0, 1)
                        ON CONFLICT (message) DO UPDATE SET input = 1`,
      };
      assert.deepEqual(Object.keys(rows).sort(), tables.map(({ name }) => name).sort());
      for (const [table, row] of Object.entries(rows)) await query(`INSERT INTO adk_bridge.${table} ${row}`);
      for (const column of ['write_epoch', 'generation']) await query(`UPDATE adk_bridge.chats SET ${column} = 1`);
      const noticed = (await fleet.strangers()).map(({ kind }) => kind);
      assert.deepEqual(noticed.sort(), [...Object.keys(rows), 'chats', 'chats'].sort());
    });
  });

  describe('two answers at two replicas', () => {
    let fleet;
    before(async () => (fleet = await startFleet({ binary, ...RACING })));
    after(() => fleet?.stop());

    test('one counts, the other learns it', async () => {
      const { yes, no } = await contradict(fleet, RACES, new Random(seed));
      assert.ok(yes > 0 && no > 0, `yes ${yes}, no ${no}`);
      assert.deepEqual(fleet.faults(), []);
    });
  });

  describe('the database goes away', () => {
    let fleet;
    before(async () => (fleet = await startFleet({ binary, relay: true, approvalMs: 60_000 })));
    after(() => fleet?.stop());

    test('restarted, and unreachable for 20 seconds', async () => {
      const result = await underLoad(fleet, { seed, stories, skip: ['expired'], isCalm: false }, async (load) => {
        await restartDatabase(fleet, load);
        await cutDatabase(fleet, 'silent', CUT_MS, load);
      });
      check(result, 'database');
    });
  });
});
