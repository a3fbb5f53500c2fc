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
import { countFaults, report, runTests } from './suite.mjs';

// Tests that wait for time to run out have a server on which it does so soon.
const HASTY = '[approval]\ntimeout = "1500ms"\n[tools]\nclient_timeout = "2s"\n';

const [binary, words] = process.argv.slice(2);
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
const servers = { usual: await startServer(binary), hasty: await startServer(binary, HASTY) };
const tally = await runTests(tests, servers, words);
for (const server of Object.values(servers)) {
  countFaults(server, tally);
  await server.stop();
}
report('chat', tally);
