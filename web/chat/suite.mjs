// Runs a list of tests with the AI SDK's `Chat` of both versions, a few at a time.

import { KITS } from './session.mjs';

// Most tests wait, for a tool or a hold; more at once would make the machine's speed part of the tests.
const AT_ONCE = 6;

/** Every test with every client, those whose name has the words. Returns how many passed and failed. */
export async function runTests(tests, context, words = '', atOnce = AT_ONCE) {
  const runs = KITS.flatMap((kit) => tests.map(([name, test]) => [`${kit.name}: ${name}`, () => test(kit, context)]));
  if (new Set(runs.map(([name]) => name)).size !== runs.length) throw new Error('two tests have one name');
  const waiting = runs.filter(([name]) => name.includes(words));
  const tally = { passed: 0, failed: 0 };
  await Promise.all(Array.from({ length: atOnce }, () => worker(waiting, tally)));
  return tally;
}

async function worker(waiting, tally) {
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    const [name, test] = next;
    try {
      await test();
      tally.passed += 1;
    } catch (error) {
      tally.failed += 1;
      console.log(`${name}\n    ${(error.stack ?? String(error)).replaceAll('\n', '\n    ')}`);
    }
  }
}

/** What the log of a server must never hold; every such line is a failure. */
export function countFaults(server, tally) {
  for (const line of server.log().split('\n').filter((line) => /panicked| ERROR /.test(line))) {
    tally.failed += 1;
    console.log(`the server's log: ${line}`);
  }
}

/** Says what the test command reads. */
export function report(name, { passed, failed }) {
  console.log(`${name}: ${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
}
