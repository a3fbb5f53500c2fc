// The long run: `node kills.mjs [--kills 500] [--races 1000] [--seed N] [--only TEXT] [--store postgres|sqlite] [--binary FILE]`.
// Kills first, then a deployment, contradicting answers, and a database that goes away.

import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';

import { TARGET } from '../target.mjs';
import { startFleet } from './fleet.mjs';
import { cutDatabase, restartDatabase, rollingRestart } from './outage.mjs';
import { RACING, contradict } from './races.mjs';
import { Random } from './random.mjs';
import { describe, underLoad } from './run.mjs';

const { values } = parseArgs({
  options: {
    kills: { type: 'string', default: '500' },
    races: { type: 'string', default: '1000' },
    seed: { type: 'string', default: String(Date.now() % 1_000_000) },
    only: { type: 'string', default: '' },
    store: { type: 'string', default: 'postgres' },
    binary: { type: 'string', default: process.env.ADK_BRIDGE_BINARY ?? join(TARGET, 'release/adk-bridge') },
  },
});
const seed = Number(values.seed);
const { binary, store, only } = values;
const directory = join(TARGET, 'fleet');
const stories = join(directory, `kills-${seed}.txt`);
mkdirSync(directory, { recursive: true });
rmSync(stories, { force: true });

let isGood = true;

/** Starts a fleet for one part of the run, and tells how it went. */
async function part(name, options, act) {
  console.log(`${name}:`);
  const fleet = await startFleet({ binary, store, ...options });
  try {
    const result = await act(fleet);
    console.log(describe(result));
    for (const { name: failed, problem } of result.failures) console.log(`failed: ${failed}: ${problem.message.split('\n')[0]}`);
    for (const fault of result.faults) console.log(`log: ${fault}`);
    isGood &&= result.failures.length === 0 && result.faults.length === 0;
    for (const { log, name: replica } of fleet.replicas.map((it) => ({ name: it.name, log: it.log() }))) {
      writeFileSync(join(directory, `${name}-${replica}.log`), log);
    }
  } finally {
    await fleet.stop();
  }
}

const report = (line) => console.log(line);
const usual = { seed, only, report, stories };
const quiet = { ...usual, skip: ['expired'] };
const stormy = { ...quiet, isCalm: false };
if (Number(values.kills) > 0) {
  await part('kills', {}, (fleet) => underLoad(fleet, usual, ({ disturber }) => disturber.run(Number(values.kills))));
}
if (store === 'postgres' && Number(values.races) > 0) {
  await part('deployment', {}, (fleet) => underLoad(fleet, quiet, (load) => rollingRestart(fleet, load)));
  await part('database', { relay: true, approvalMs: 60_000 }, (fleet) =>
    underLoad(fleet, stormy, async (load) => {
      await restartDatabase(fleet, load);
      await cutDatabase(fleet, 'reset', 20_000, load);
      await cutDatabase(fleet, 'silent', 20_000, load);
    }),
  );
  await part('races', RACING, async (fleet) => {
    const failures = [];
    const counts = await contradict(fleet, Number(values.races), new Random(seed)).catch((problem) => {
      failures.push({ name: 'races', problem });
    });
    return { ...counts, failures, faults: fleet.faults() };
  });
}
console.log(isGood ? `nothing failed (seed ${seed})` : `failed; seed ${seed}; stories in ${stories}, logs next to it`);
process.exit(isGood ? 0 : 1);
