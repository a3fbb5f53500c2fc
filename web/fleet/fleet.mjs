// Everything that a conversation passes: a balancer, replicas, their PostgreSQL, a model, and a shop that keeps a journal.

import { chmodSync, closeSync, fstatSync, mkdtempSync, openSync, readSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { startProcess } from '../chat/server.mjs';
import { startBalancer } from './balancer.mjs';
import { startPostgres, watchWriters } from './postgres.mjs';
import { startRelay } from './relay.mjs';
import { Replica } from './replica.mjs';

const here = dirname(fileURLToPath(import.meta.url));

/** Who talks; each sees only their own chats, at whichever replica. */
export const USERS = ['alice', 'bob'].map((user) => ({ user, key: `the-key-of-${user}-0123456789` }));

/** How long a replica may be silent before it is dead to others. Short, so that a kill is got over quickly. */
export const LEASE_MS = 3_000;
/** How long a question waits. Longer than it takes to get over two kills. */
export const APPROVAL_MS = 12_000;
const DRAIN_MS = 3_000;

/**
 * Starts a fleet. `options`: binary; replicas (3); store (`postgres`, or `sqlite` for a single replica); relay (whether the
 * replicas reach PostgreSQL through a relay that can be cut); leaseMs; approvalMs; drainMs; pace of the model; paymentMs.
 */
export async function startFleet(options) {
  const { binary, store = 'postgres', pace = '15ms', paymentMs = 200 } = options;
  const { leaseMs = LEASE_MS, approvalMs = APPROVAL_MS, drainMs = DRAIN_MS } = options;
  const count = store === 'sqlite' ? 1 : (options.replicas ?? 3);
  const directory = mkdtempSync(join(tmpdir(), 'adk-bridge-fleet-'));
  // PostgreSQL runs as another user, who must be able to enter it.
  chmodSync(directory, 0o755);
  const ends = [];
  const keep = (it, end = it.stop ?? it.kill) => (ends.unshift(end), it);
  const remove = () => rmSync(directory, { recursive: true, force: true });
  // Whatever ends this process, nothing of the fleet outlives it: all of these send their signals at once.
  const abandon = () => {
    for (const end of ends) void end();
    remove();
  };
  process.once('exit', abandon);
  const stop = async () => {
    process.off('exit', abandon);
    for (const end of ends) await end();
    remove();
  };
  try {
    const journal = join(directory, 'journal.jsonl');
    writeFileSync(journal, '');
    const listening = /listening on (http:\/\/\S+)/;
    const model = keep(await startProcess(binary, ['fake-gemini', `--pace=${pace}`], listening));
    const shop = keep(await startProcess(process.execPath, [join(here, 'shop.mjs'), journal, String(paymentMs)], listening));
    const postgres = store === 'postgres' ? keep(await startPostgres(directory)) : undefined;
    const relay = options.relay ? keep(await startRelay(postgres.port)) : undefined;
    const toml = (name) => `
[server]
${postgres ? `drain = "${drainMs}ms"` : ''}

[auth]
api_keys = [${USERS.map(({ user, key }) => `{ key = "${key}", user = "${user}" }`).join(', ')}]

[agent]
kind = "gemini"
base_url = "${model.url}"
tools = ["get_weather", "process_payment", "change_bgm", "shop__*"]

[[agent.client_tools]]
name = "pick_color"
description = "Lets the user pick a color."

[[tools.mcp]]
name = "shop"
url = "${shop.url}"

[approval]
timeout = "${approvalMs}ms"

${postgres ? shared(postgres.url(relay?.port), name, leaseMs) : ''}
${options.toml ?? ''}
`;
    const replicas = Array.from({ length: count }, (_, index) => {
      const name = `r${index}`;
      const env = { GEMINI_API_KEY: 'any key will do', RUST_BACKTRACE: '1', ...options.env };
      return new Replica({ name, binary, directory, toml: toml(name), env });
    });
    for (const replica of replicas) keep(replica, () => replica.end('SIGKILL'));
    await Promise.all(replicas.map((replica) => replica.start()));
    const { strangers } = postgres ? await watchWriters(postgres) : { strangers: async () => [] };
    const balancer = keep(
      await startBalancer(
        directory,
        replicas.map(({ port }) => port),
      ),
    );
    return {
      binary,
      store,
      leaseMs,
      approvalMs,
      drainMs,
      directory,
      replicas,
      postgres,
      relay,
      balancer,
      strangers,
      stop,
      url: balancer.url,
      /** What the shop has done, oldest first. */
      journal: () => linesOf(journal, 0).lines,
      journalFrom: (byte) => linesOf(journal, byte),
      /** Set by those who take the database away. */
      hasLostDatabase: false,
      /** What replicas report that they should not have met. */
      faults() {
        return replicas.flatMap((replica) => faultsOf(replica, replica.wasPaused || this.hasLostDatabase));
      },
    };
  } catch (problem) {
    await stop();
    throw problem;
  }
}

const shared = (url, name, leaseMs) => `
[store]
url = "${url}?application_name=${name}"

[cluster]
name = "${name}"
lease = "${leaseMs}ms"
key = "the-key-between-replicas-0123456789"
`;

/** The lines of a file that somebody writes to, from a byte on, and where they end; the last one may be half written. */
function linesOf(file, from) {
  const descriptor = openSync(file, 'r');
  try {
    const bytes = Buffer.alloc(fstatSync(descriptor).size - from);
    readSync(descriptor, bytes, 0, bytes.length, from);
    const end = bytes.lastIndexOf('\n') + 1;
    const lines = bytes.toString('utf8', 0, end).split('\n').filter(Boolean);
    return { lines: lines.map((line) => JSON.parse(line)), end: from + end };
  } finally {
    closeSync(descriptor);
  }
}

// What a replica that was paused, or cut off from its database, rightly reports.
const EXPECTED = [
  /could not show in time that it lives/,
  /the server is not ready: (the database cannot be reached|the store is busy)/,
];

function faultsOf(replica, wasCutOff) {
  const lines = replica
    .log()
    .split('\n')
    .filter((line) => /panicked| ERROR /.test(line));
  const isExpected = (line) => wasCutOff && EXPECTED.some((words) => words.test(line));
  return lines.filter((line) => !isExpected(line)).map((line) => `${replica.name}: ${line}`);
}

/** Calls an endpoint as a user, at a balancer or at one replica; `answered(status)` hears of every answer. */
export function endpoints(url, { key }, answered = () => {}) {
  const headers = { authorization: `Bearer ${key}` };
  const get = async (path) => {
    const response = await fetch(url + path, { headers });
    answered(response.status);
    return response;
  };
  const json = async (path) => {
    const response = await get(path);
    if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${(await response.text()).slice(0, 300)}`);
    return response.json();
  };
  return {
    url,
    headers,
    get,
    json,
    /** The stored messages; none if there is no such chat. */
    messages: async (id, query = '') => {
      const response = await get(`/api/chats/${id}${query}`);
      if (response.status === 404) return [];
      if (!response.ok) throw new Error(`loading the chat: ${response.status} ${(await response.text()).slice(0, 300)}`);
      return (await response.json()).messages;
    },
    audit: (id) => json(`/api/audit?chat=${id}`),
    post: (path, body) =>
      fetch(url + path, {
        method: 'POST',
        headers: { ...headers, 'content-type': 'application/json' },
        body: JSON.stringify(body),
      }),
  };
}
