// Runs every browser test against the real binary with the page that was built into web/ui/dist.
//
// usage: node run.mjs PATH_OF_ADK_BRIDGE DIRECTORY_FOR_ARTIFACTS PYTHON_WITH_GOOGLE_ADK [WORDS]
//
// With words only tests whose name has them are run.

import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { stripVTControlCharacters } from 'node:util';

import { agentOf, startAdkServer } from '../chat/adk-server.mjs';
import { approvalTests } from './approvals.mjs';
import { launch } from './browser.mjs';
import { chatTests } from './chat.mjs';
import { clientToolTests } from './client-tools.mjs';
import { connectionTests } from './connection.mjs';
import { conversationTests } from './conversations.mjs';
import { costTests } from './cost.mjs';
import { deliveryTests } from './delivery.mjs';
import { FORMS, formTests } from './forms.mjs';
import { inspectorTests } from './inspector.mjs';
import { liveTests } from './live.mjs';
import { lookTests } from './look.mjs';
import { startModel } from './model.mjs';
import { startServer } from './server.mjs';
import { Visit } from './visit.mjs';
import { voiceTests } from './voice.mjs';

// Most of a test's time is waiting; more at once would make the machine's speed part of the tests.
const AT_ONCE = 3;

// Where a failure is told in one line, this much of it.
const MAX_REASON = 400;

// Tests that wait for a question to expire have a server on which it does so soon.
const HASTY = '[demo]\npace = "0ms"\n[approval]\ntimeout = "2s"\n';

const [binary, artifacts, python, words = ''] = process.argv.slice(2);
if (python === undefined) {
  console.error('usage: node run.mjs PATH_OF_ADK_BRIDGE DIRECTORY_FOR_ARTIFACTS PYTHON_WITH_GOOGLE_ADK [WORDS]');
  process.exit(2);
}

const isWanted = ([name]) => name.includes(words);
const tests = [
  ...chatTests,
  ...approvalTests,
  ...clientToolTests,
  ...formTests,
  ...conversationTests,
  ...connectionTests,
  ...inspectorTests,
  ...liveTests,
  ...lookTests,
  ...deliveryTests,
].filter(isWanted);
// Sound is made and heard as time passes, and work is measured: each of these has the machine to itself.
const lonely = [...voiceTests, ...costTests].filter(isWanted);

mkdirSync(artifacts, { recursive: true });
const model = await startModel(binary);
const adk = await startAdkServer(python);
const world = {
  binary,
  artifacts,
  model,
  browser: await launch(),
  servers: {
    usual: await startServer(binary),
    hasty: await startServer(binary, HASTY),
    gated: await startServer(binary, model.toml, model.env),
    forms: await startServer(binary, FORMS),
    adk: await startServer(binary, agentOf(adk.url, 'scripted')),
  },
};
let passed = 0;
const failures = [];
try {
  await Promise.all(Array.from({ length: AT_ONCE }, () => worker(tests)));
  await worker(lonely);
  for (const [name, server] of Object.entries(world.servers)) {
    const faults = server.log.split('\n').filter((text) => /panicked| ERROR /.test(text));
    failures.push(...faults.map((line) => `the log of the ${name} server: ${line}`));
  }
} finally {
  await world.browser.close();
  for (const server of Object.values(world.servers)) await server.stop();
  await model.stop();
  await adk.kill();
}
// Said last and briefly: of a long output often only the end is seen.
for (const failure of failures) console.log(`FAILED ${failure}`);
console.log(`ui: ${passed} passed, ${failures.length} failed`);
process.exitCode = failures.length > 0 || passed === 0 ? 1 : 0;

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
      const story = stripVTControlCharacters(error.stack ?? String(error));
      console.log(`FAIL  ${name}\n    ${story.replaceAll('\n', '\n    ')}`);
      await kept(name, visits);
      const problems = visits.flatMap((visit) => visit.problems ?? []);
      const reason = [story, ...problems].join(' | ').replace(/\s+/g, ' ').slice(0, MAX_REASON);
      failures.push(`${name}: ${reason}`);
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
