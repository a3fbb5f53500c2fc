// Runs every browser test against the real binary with the page that was built into web/ui/dist.
//
// usage: node run.mjs PATH_OF_ADK_BRIDGE DIRECTORY_FOR_ARTIFACTS [WORDS]     (only tests whose name has the words)

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';

import { approvalTests } from './approvals.mjs';
import { launch } from './browser.mjs';
import { chatTests } from './chat.mjs';
import { clientToolTests } from './client-tools.mjs';
import { connectionTests } from './connection.mjs';
import { conversationTests } from './conversations.mjs';
import { costTests } from './cost.mjs';
import { deliveryTests } from './delivery.mjs';
import { inspectorTests } from './inspector.mjs';
import { liveTests } from './live.mjs';
import { lookTests } from './look.mjs';
import { startServer } from './server.mjs';
import { Visit } from './visit.mjs';
import { voiceTests } from './voice.mjs';

// Most of a test's time is waiting; more at once would make the machine's speed part of the tests.
const AT_ONCE = 3;

// Tests that wait for a question to expire have a server on which it does so soon.
const HASTY = '[demo]\npace = "0ms"\n[approval]\ntimeout = "2s"\n';

const [binary, artifacts, words = ''] = process.argv.slice(2);
if (binary === undefined || artifacts === undefined) {
  console.error('usage: node run.mjs PATH_OF_ADK_BRIDGE DIRECTORY_FOR_ARTIFACTS [WORDS]');
  process.exit(2);
}

const tests = [
  ...chatTests,
  ...approvalTests,
  ...clientToolTests,
  ...conversationTests,
  ...connectionTests,
  ...inspectorTests,
  ...liveTests,
  ...voiceTests,
  ...lookTests,
  ...deliveryTests,
  ...costTests,
].filter(([name]) => name.includes(words));

mkdirSync(artifacts, { recursive: true });
const world = {
  binary,
  artifacts,
  browser: await launch(),
  servers: { usual: await startServer(binary), hasty: await startServer(binary, HASTY) },
};
let passed = 0;
let failed = 0;
try {
  const waiting = [...tests];
  await Promise.all(Array.from({ length: AT_ONCE }, () => worker(waiting)));
  for (const server of Object.values(world.servers)) {
    for (const line of server.log.split('\n').filter((text) => /panicked| ERROR /.test(text))) {
      failed += 1;
      console.log(`the server's log: ${line}`);
    }
  }
} finally {
  await world.browser.close();
  for (const server of Object.values(world.servers)) await server.stop();
}
console.log(`ui: ${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;

async function worker(waiting) {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    const [name, test] = next;
    const visits = [];
    const open = async (options) => {
      const visit = await Visit.open(world, options);
      visits.push(visit);
      return visit;
    };
    const started = Date.now();
    try {
      await test(open, world);
      for (const visit of visits) await visit.close();
      passed += 1;
      console.log(`ok    ${name} (${((Date.now() - started) / 1000).toFixed(1)} s)`);
    } catch (error) {
      failed += 1;
      console.log(`FAIL  ${name}\n    ${(error.stack ?? String(error)).replaceAll('\n', '\n    ')}`);
      await kept(name, visits);
    }
  }
}

/** What the page showed and said when a test failed. */
async function kept(name, visits) {
  for (const [index, visit] of visits.entries()) {
    const path = join(artifacts, `failed-${name.replaceAll(/\W+/g, '-')}-${index}.png`);
    await visit.page?.screenshot({ path, timeout: 5_000 }).catch(() => {});
    for (const problem of visit.problems ?? []) console.log(`    ${problem}`);
    await visit.context?.close().catch(() => {});
  }
}
