// Every one of Google's ADK servers behind the real binary, with the AI SDK's `Chat` of both versions and both dialects.

import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';

import { BINARY } from '../target.mjs';
import { agentOf } from './adk-server.mjs';
import { SERVERS } from './adk-servers.mjs';
import { appsOf, loseSessions, named, rowsOf } from './matrix.mjs';
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
      for (const app of appsOf(server)) context[app] = await startServer(BINARY, '', agentOf(context.adk.url, app));
    });
    const bridges = () => Object.entries(context).filter(([name]) => name !== 'adk');
    after(async () => {
      await Promise.all(bridges().map(([, bridge]) => bridge.stop()));
      await context.adk?.kill();
    });

    const noVoice = server.voice ? undefined : 'the server has no voice';
    test(named('it is found out, and only what it has is offered', noVoice), async () => {
      const shown = await context.bridge.agent();
      assert.equal(shown.server.name, server.shown);
      assert.equal(shown.server.voice, server.voice);
      assert.equal(shown.server.restoring, server.restoring);
      assert.deepEqual(shown.modalities, noVoice ? ['text'] : ['text', 'audio']);
      assert.match(context.bridge.log(), new RegExp(`server +${server.shown}`));
    });

    describe('what an agent can do', { concurrency: AT_ONCE }, () => {
      for (const kit of CLIENTS) {
        for (const [name, play] of rowsOf(server, context)) test(`${kit.name}, ${name}`, () => play(kit));
      }
    });

    const noEvents = server.restoring === 'events' ? undefined : 'the server takes no events: its model gets them as a text';
    test(named('what was said is there again after a restart, and nothing runs unasked', noEvents), async () => {
      await loseSessions(CLIENTS, context);
      assert.match(context.bridge.log(), noEvents ? /repeats the conversation as text/ : /the conversation was restored/);
    });

    test('no bridge has panicked or logged an error', () => assertNoFaults(Object.fromEntries(bridges())));
  });
}
