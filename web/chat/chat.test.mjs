// The AI SDK's `Chat` of both versions against the real binary.

import { after, before, describe, test } from 'node:test';

import { BINARY } from '../target.mjs';
import { adkTests } from './adk.mjs';
import { answerTests } from './answers.mjs';
import { approvalTests } from './approvals.mjs';
import { clientToolTests } from './client-tools.mjs';
import { conversationTests } from './conversation.mjs';
import { edgeTests } from './edges.mjs';
import { historyTests } from './history.mjs';
import { startModel } from './model.mjs';
import { pageToolTests } from './page-tools.mjs';
import { reloadTests } from './reload.mjs';
import { startServer } from './server.mjs';
import { stockTests } from './stock.mjs';
import { AT_ONCE, assertNoFaults, withEveryKit } from './suite.mjs';

// Tests that wait for time to run out have a server on which it does so soon: one for questions, one for outputs, so that
// no test has to hurry.
const HASTY = '[approval]\ntimeout = "1500ms"\n';
const IMPATIENT = '[tools]\nclient_timeout = "2s"\n';

describe('chat', () => {
  const context = {};
  const ends = [];
  const start = async (server) => {
    ends.push((await server).stop);
    return server;
  };

  before(async () => {
    context.usual = await start(startServer(BINARY));
    context.hasty = await start(startServer(BINARY, HASTY));
    context.impatient = await start(startServer(BINARY, IMPATIENT));
    context.model = await start(startModel(BINARY));
    const { toml, env } = context.model;
    context.gated = await start(startServer(BINARY, '', toml(['get_weather', 'process_payment']), env));
  });
  after(() => Promise.all(ends.map((end) => end())));

  describe('conversations', { concurrency: AT_ONCE }, () => {
    withEveryKit(
      [
        ...conversationTests,
        ...approvalTests,
        ...clientToolTests,
        ...pageToolTests,
        ...adkTests,
        ...answerTests,
        ...reloadTests,
        ...edgeTests,
        ...stockTests,
        ...historyTests,
      ],
      context,
    );
  });

  test('no server has panicked or logged an error', () => assertNoFaults(context));
});
