// What happens to the database and to all replicas at once: restarts, a network that is cut, a deployment.

import assert from 'node:assert/strict';

const LOOK_MS = 50;

/** PostgreSQL is restarted; whoever was connected is thrown out. */
export async function restartDatabase(fleet, { log, someMore }) {
  log('PostgreSQL is restarted');
  fleet.hasLostDatabase = true;
  await fleet.postgres.restart();
  await allReady(fleet, log);
  await someMore();
}

/** Nobody reaches the database for a while (`how`: see the relay). Every replica says so, and is ready again on its own. */
export async function cutDatabase(fleet, how, ms, { log, someMore }) {
  log(`the network to PostgreSQL is cut (${how})`);
  fleet.relay.cut(how);
  fleet.hasLostDatabase = true;
  const end = Date.now() + ms;
  await until(
    async () => (await readiness(fleet)).every((status) => status === 503),
    ms,
    'every replica to say that it is not ready',
  );
  log('every replica says that it is not ready');
  while (Date.now() < end) {
    assert.deepEqual(new Set(await readiness(fleet)), new Set([503]), 'a replica without its database says that it is ready');
    await after(LOOK_MS);
  }
  log('the network is back');
  fleet.relay.mend();
  await allReady(fleet, log);
  await someMore();
}

/** A deployment: one replica after the other is ended in order and started again. */
export async function rollingRestart(fleet, { log, someMore }) {
  for (const replica of fleet.replicas) {
    log(`${replica.name} is drained`);
    await replica.end('SIGTERM');
    await replica.start();
    await until(async () => (await status(replica)) === 200, 60_000, `${replica.name} to be ready`);
    log(`${replica.name} is back`);
    await someMore();
  }
}

async function allReady(fleet, log) {
  await until(async () => (await readiness(fleet)).every((status) => status === 200), 60_000, 'every replica to be ready again');
  log('every replica is ready');
}

const readiness = (fleet) => Promise.all(fleet.replicas.map(status));

async function status(replica) {
  const response = await fetch(`${replica.url}/ready`).catch(() => ({ status: 0, text: async () => '' }));
  await response.text();
  return response.status;
}

async function until(condition, limit, what) {
  for (const end = Date.now() + limit; !(await condition()); ) {
    if (Date.now() > end) throw new Error(`waited too long for ${what}`);
    await after(LOOK_MS);
  }
}

const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
