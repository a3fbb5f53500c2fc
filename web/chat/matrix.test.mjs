// Every one of Google's ADK servers behind the real binary, with the AI SDK's `Chat` of both versions and both dialects.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { BINARY } from '../target.mjs';
import { agentOf } from './adk-server.mjs';
import { SERVERS } from './adk-servers.mjs';
import { loseSessions, rowsOf } from './matrix.mjs';
import { startServer } from './server.mjs';
import { KITS } from './session.mjs';
import { AT_ONCE, assertNoFaults } from './suite.mjs';

// A socket carries the same frames; the other suites try it.
const CLIENTS = KITS.filter((kit) => !kit.overSocket);

// Only servers with this in their name, for those who work on one.
const WANTED = process.env.ADK_BRIDGE_SERVER ?? '';

for (const server of SERVERS.filter(({ name }) => name.includes(WANTED))) {
  describe(server.name, () => {
    const context = {};

    before(async () => {
      context.adk = await server.start();
      context.bridge = await startServer(BINARY, '', agentOf(context.adk.url, 'scripted'));
    });
    after(async () => {
      await context.bridge?.stop();
      await context.adk?.kill();
    });

    test('it is found out, and only what it has is offered', async () => {
      const shown = await context.bridge.agent();
      assert.equal(shown.server.name, server.shown);
      assert.equal(shown.server.voice, server.voice);
      assert.equal(shown.server.restoring, server.restoring);
      assert.deepEqual(shown.modalities, server.voice ? ['text', 'audio'] : ['text']);
      assert.match(context.bridge.log(), new RegExp(`server +${server.shown}`));
    });

    describe('what an agent can do', { concurrency: AT_ONCE }, () => {
      for (const kit of CLIENTS) {
        for (const [name, play] of rowsOf(server, context)) test(`${kit.name}, ${name}`, () => play(kit));
      }
    });

    test('what was said is told again after a restart, and nothing runs unasked', async () => {
      await loseSessions(CLIENTS, context);
      const told = server.restoring === 'events' ? /the conversation was restored/ : /repeats the conversation as text/;
      assert.match(context.bridge.log(), told);
    });

    test('no bridge has panicked or logged an error', () => assertNoFaults({ bridge: context.bridge }));
  });
}
