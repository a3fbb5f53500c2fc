// The AI SDK's `Chat` of both versions against the real binary with a real ADK server behind it.

import { after, before, describe, test } from 'node:test';

import { BINARY, PYTHON } from '../target.mjs';
import { alone, restartTests, sharedTests, startShared } from './remote.mjs';
import { AT_ONCE, assertNoFaults, withEveryKit } from './suite.mjs';

// Each of these starts servers of its own, ADK's among them.
const RESTARTS_AT_ONCE = 2;

describe('adk', () => {
  const servers = {};
  const ends = [];

  before(() => startShared(BINARY, PYTHON, servers, ends));
  after(() => Promise.all(ends.map((end) => end())));

  describe('conversations', { concurrency: AT_ONCE }, () => withEveryKit(sharedTests, servers));

  test('no server has panicked or logged an error', () => {
    const { adk: _google, ...bridges } = servers;
    assertNoFaults(bridges);
  });

  describe('restarts', { concurrency: RESTARTS_AT_ONCE }, () => {
    withEveryKit(
      restartTests.map(([name, run]) => [name, (kit) => alone(BINARY, PYTHON, servers.adk, run)(kit)]),
      servers,
    );
  });
});
