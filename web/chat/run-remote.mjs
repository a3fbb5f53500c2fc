// Runs the AI SDK's `Chat` of both versions against the real binary with a real ADK server behind it.
//
// usage: node run-remote.mjs PATH_OF_ADK_BRIDGE PYTHON_WITH_GOOGLE_ADK [WORDS]     (only tests whose name has the words)

import { alone, restartTests, sharedTests, startShared } from './remote.mjs';
import { countFaults, report, runTests } from './suite.mjs';

const [binary, python, words] = process.argv.slice(2);
if (python === undefined) {
  console.error('usage: node run-remote.mjs PATH_OF_ADK_BRIDGE PYTHON_WITH_GOOGLE_ADK [WORDS]');
  process.exit(2);
}

const { adk, servers } = await startShared(binary, python);
const shared = await runTests(sharedTests, servers, words);
for (const server of Object.values(servers)) {
  countFaults(server, shared);
  await server.stop();
}

const own = restartTests.map(([name, test]) => [name, alone(binary, python, adk, test)]);
const restarts = await runTests(own, {}, words, 2);
await adk.kill();
report('adk', { passed: shared.passed + restarts.passed, failed: shared.failed + restarts.failed });
