// Runs every test with the AI SDK's `Chat` of both versions against the real binary.
//
// usage: node run.mjs PATH_OF_ADK_BRIDGE [WORDS]     (only tests whose name has the words)

import { adkTests } from './adk.mjs';
import { answerTests } from './answers.mjs';
import { approvalTests } from './approvals.mjs';
import { clientToolTests } from './client-tools.mjs';
import { conversationTests } from './conversation.mjs';
import { edgeTests } from './edges.mjs';
import { reloadTests } from './reload.mjs';
import { startServer } from './server.mjs';
import { KITS } from './session.mjs';

// Most tests wait, for a tool or a hold; more at once would make the machine's speed part of the tests.
const AT_ONCE = 6;

// Tests that wait for time to run out have a server on which it does so soon.
const HASTY = '[approval]\ntimeout = "1500ms"\n[tools]\nclient_timeout = "2s"\n';

const [binary, words = ''] = process.argv.slice(2);
if (binary === undefined) {
  console.error('usage: node run.mjs PATH_OF_ADK_BRIDGE [WORDS]');
  process.exit(2);
}

const tests = [
  ...conversationTests,
  ...approvalTests,
  ...clientToolTests,
  ...adkTests,
  ...answerTests,
  ...reloadTests,
  ...edgeTests,
];
const runs = KITS.flatMap((kit) => tests.map(([name, test]) => [`${kit.name}: ${name}`, () => test(kit, servers)]));
const chosen = runs.filter(([name]) => name.includes(words));
const names = new Set(runs.map(([name]) => name));
if (names.size !== runs.length) throw new Error('two tests have one name');

const servers = { usual: await startServer(binary), hasty: await startServer(binary, HASTY) };
let passed = 0;
let failed = 0;
const waiting = [...chosen];
await Promise.all(Array.from({ length: AT_ONCE }, worker));
for (const server of Object.values(servers)) {
  for (const line of server.log().split('\n').filter((line) => /panicked| ERROR /.test(line))) {
    failed += 1;
    console.log(`the server's log: ${line}`);
  }
  await server.stop();
}
console.log(`chat: ${passed} passed, ${failed} failed`);
process.exitCode = failed > 0 || passed === 0 ? 1 : 0;

async function worker() {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    const [name, test] = next;
    try {
      await test();
      passed += 1;
    } catch (error) {
      failed += 1;
      console.log(`${name}\n    ${(error.stack ?? String(error)).replaceAll('\n', '\n    ')}`);
    }
  }
}
