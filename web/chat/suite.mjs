// Gives a table of tests to `node:test`, one test for every row and version of the AI SDK.

import assert from 'node:assert/strict';
import { test } from 'node:test';

import { KITS } from './session.mjs';

// Most tests wait, for a tool or a hold; more at once would make the machine's speed part of the tests.
export const AT_ONCE = 6;

/** Each row is a name and a function of the client and the context, which is complete before the first test runs. */
export function withEveryKit(rows, context) {
  const names = rows.map(([name]) => name);
  assert.equal(new Set(names).size, names.length, 'two tests have one name');
  for (const kit of KITS) {
    for (const [name, run] of rows) test(`${kit.name}: ${name}`, () => run(kit, context));
  }
}

/** What the log of a server must never hold. */
export function assertNoFaults(servers) {
  const faults = Object.entries(servers).flatMap(([name, { log }]) =>
    log()
      .split('\n')
      .filter((line) => /panicked| ERROR /.test(line))
      .map((line) => `${name}: ${line}`),
  );
  assert.deepEqual(faults, []);
}
