// Figures of a hand-over: `node bench.mjs [--rounds 30] [--binary FILE]`. The status is 1 if one is not as it has to be.

import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import WebSocket from 'ws';

import { toolsOf } from '../chat/session.mjs';
import { TARGET } from '../target.mjs';
import { USERS, endpoints, startFleet } from './fleet.mjs';

const { values } = parseArgs({
  options: {
    rounds: { type: 'string', default: '30' },
    binary: { type: 'string', default: process.env.ADK_BRIDGE_BINARY ?? join(TARGET, 'release/adk-bridge') },
  },
});
const rounds = Number(values.rounds);
const LEASE_MS = 5_000;
const [user] = USERS;
const now = () => performance.timeOrigin + performance.now();
const after = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const say = (text) => [{ id: randomUUID(), role: 'user', parts: [{ type: 'text', text }] }];

/** Fewer samples have no p99: their largest is judged instead. */
const ENOUGH = 100;

const missed = [];

/** Prints what was measured, in milliseconds; with a bound, says whether it holds. */
function figures(name, values, bound) {
  const sorted = [...values].sort((a, b) => a - b);
  const at = (share) => sorted[Math.ceil(share * sorted.length) - 1];
  const [tail, what] = sorted.length >= ENOUGH ? [at(0.99), 'p99'] : [at(1), `largest of ${sorted.length}`];
  const wanted = bound === undefined ? 'to compare' : `wanted: ${bound} ms`;
  console.log(`${name}: p50 ${at(0.5).toFixed(1)}, ${what} ${tail.toFixed(1)} ms (${sorted.length} rounds; ${wanted})`);
  if (bound !== undefined && !(tail <= bound)) missed.push(`${name}: ${what} is ${tail.toFixed(1)} ms, more than ${bound}`);
}

/** A reader at B of an answer whose owner A is killed: from the kill to the first bytes. */
async function resumeAfterKill(fleet) {
  const [a, b] = fleet.replicas;
  const [atA, atB] = [a, b].map((replica) => endpoints(replica.url, user));
  const id = `killed-${randomUUID()}`;
  const response = await atA.post('/api/chat', { id, messages: say('long 400') });
  const reader = response.body.getReader();
  for (let bytes = 0; bytes < 2_000; ) bytes += (await reader.read()).value.length;
  reader.cancel().catch(() => {});
  const killed = now();
  await a.end('SIGKILL');
  let took;
  while (took === undefined) {
    const resumed = await atB.get(`/api/chat/${id}/stream`).catch(() => undefined);
    if (resumed?.status === 200) {
      const { value } = await resumed.body.getReader().read();
      if (value !== undefined) took = now() - killed;
    } else {
      await resumed?.text();
      await after(20);
    }
    if (now() - killed > 60_000) throw new Error('nobody takes the answer over');
  }
  await a.start();
  return took;
}

async function openLive(url, id) {
  const api = endpoints(url, user);
  const socket = new WebSocket(`${url.replace('http', 'ws')}/live?chat=${id}`, { headers: api.headers });
  await once(socket, 'open');
  await pong(socket);
  return socket;
}

async function pong(socket) {
  const answered = new Promise((resolve) => {
    socket.on('message', (data) => String(data).includes('"pong"') && resolve());
  });
  socket.send(JSON.stringify({ type: 'ping', timestamp: 1 }));
  await answered;
}

/** An idle live connection to a replica that drains: from the server's notice to the first answer elsewhere. */
async function reconnectAfterDrain(fleet, at) {
  const replica = fleet.replicas[at % fleet.replicas.length];
  const id = `idle-${randomUUID()}`;
  await (await endpoints(replica.url, user).post('/api/chat', { id, messages: say('say hello') })).text();
  const socket = await openLive(replica.url, id);
  const noticed = new Promise((resolve) => {
    socket.on('message', (data) => String(data).includes('"reconnect"') && resolve(JSON.parse(String(data)).afterMs));
    socket.on('close', () => resolve(0));
  });
  const ended = replica.end('SIGTERM');
  const afterMs = await noticed;
  const began = now();
  await after(afterMs);
  let next;
  while (next === undefined) next = await openLive(fleet.url, id).catch(() => after(5));
  const took = now() - began;
  socket.terminate();
  next.close();
  await ended;
  await replica.start();
  return took;
}

/** A decision at B about a chat that A owns (its live connection is there): from the post to the tool's start. */
async function decisionElsewhere(fleet, isElsewhere) {
  const [a, b] = fleet.replicas;
  const [atA, atB] = [a, b].map((replica) => endpoints(replica.url, user));
  const id = `decided-${randomUUID()}`;
  const socket = await openLive(a.url, id);
  await (await atA.post('/api/chat', { id, messages: say('call shop__pay {"amount":1,"recipient":"a"} then say ok') })).text();
  const messages = await atA.messages(id);
  const [part] = toolsOf(messages.at(-1));
  Object.assign(part, { state: 'approval-responded', approval: { ...part.approval, approved: true } });
  const began = now();
  await (await (isElsewhere ? atB : atA).post('/api/chat', { id, messages })).text();
  socket.close();
  const line = fleet.journal().find(({ event, key }) => event === 'begun' && key === part.toolCallId);
  return line.at - began;
}

async function measure(count, round) {
  const taken = [];
  for (let index = 0; index < count; index += 1) taken.push(await round(index));
  return taken;
}

const fleet = await startFleet({ binary: values.binary, leaseMs: LEASE_MS, pace: '30ms', paymentMs: 5 });
try {
  await measure(10, () => decisionElsewhere(fleet, true));
  const decisions = Math.max(rounds * 5, ENOUGH);
  const atOwner = await measure(decisions, () => decisionElsewhere(fleet, false));
  figures('a decision at the owner starts its tool', atOwner);
  const elsewhere = await measure(decisions, () => decisionElsewhere(fleet, true));
  figures('a decision elsewhere starts its tool', elsewhere, 20);
  const drained = await measure(rounds, (at) => reconnectAfterDrain(fleet, at));
  figures('a live connection of a drained replica is back', drained, 200);
  const resumed = await measure(Math.ceil(rounds / 3), () => resumeAfterKill(fleet));
  figures('a reader of a killed replica has bytes', resumed, LEASE_MS + 1_000);
} finally {
  await fleet.stop();
}
for (const problem of missed) console.error(`missed: ${problem}`);
process.exit(missed.length > 0 ? 1 : 0);
