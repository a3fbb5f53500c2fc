// What the page costs: its first load, a delta in short and long conversations, and its memory after an hour of streaming.
// `cargo xtask bench page` builds what it needs. Fails if memory grows with the deltas beyond their text.

import assert from 'node:assert/strict';
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { BINARY } from '../target.mjs';
import { launch } from './browser.mjs';
import { conversation, costOfDelta } from './cost.mjs';
import { firstLoad } from './first-load.mjs';
import { heapOf, MOST_HEAP_GROWTH, streamed } from './memory.mjs';
import { startServer } from './server.mjs';
import { Visit } from './visit.mjs';

const LOADS = 7;

// An hour at 30 deltas a second, in answers of a few pages.
const HOUR_DELTAS = 108_000;
const ANSWER_DELTAS = 3_000;
// What the engine compiles and keeps is there after the first answers.
const FIRST_ANSWERS = 3;

const browser = await launch();
const server = await startServer(BINARY);
try {
  const world = { browser, artifacts: mkdtempSync(join(tmpdir(), 'adk-bridge-page-')), servers: { usual: server } };
  const open = (options) => Visit.open(world, options);
  await loads(open);
  await deltas(open);
  await hour(open);
} finally {
  await browser.close();
  await server.stop();
}

async function loads(open) {
  const all = [];
  for (let load = 0; load < LOADS; load += 1) all.push(await firstLoad(open));
  const median = (number) => all.map(number).sort((a, b) => a - b)[LOADS >> 1];
  console.log(`\nFirst load, medians of ${LOADS} in new profiles.\n`);
  console.log('| first load | |\n|---|--:|');
  for (const type of Object.keys(all[0].bytes)) {
    console.log(`| ${type}, kB as sent | ${(median(({ bytes }) => bytes[type]) / 1000).toFixed(1)} |`);
  }
  console.log(`| requests | ${median(({ requests }) => requests)} |`);
  console.log(`| until the page can be used, ms | ${median(({ usable }) => usable).toFixed(0)} |`);
  console.log(`| CPU of the page until it rests, ms | ${median(({ cpu }) => cpu).toFixed(0)} |`);
  console.log(`| longest task, ms | ${median(({ longest }) => longest).toFixed(0)} |`);
}

async function deltas(open) {
  console.log('\n| CPU of a delta | µs |\n|---|--:|');
  for (const count of [10, 2_000]) {
    const visit = await open({ chat: await conversation(open, count) });
    const { micros } = await costOfDelta(visit);
    console.log(`| in a conversation of ${count.toLocaleString('en-US')} messages | ${micros.toFixed(0)} |`);
    await visit.close();
  }
}

async function hour(open) {
  const visit = await open();
  console.log(`\n| deltas in one tab | text, MB | memory of scripts, MB | nodes | listeners |\n|--:|--:|--:|--:|--:|`);
  const seen = [];
  for (let answers = 1; answers <= HOUR_DELTAS / ANSWER_DELTAS; answers += 1) {
    await streamed(visit, ANSWER_DELTAS);
    if (answers % FIRST_ANSWERS !== 0) continue;
    const heap = { deltas: answers * ANSWER_DELTAS, ...(await heapOf(visit)) };
    seen.push(heap);
    const megabytes = (bytes) => (bytes / 1e6).toFixed(2);
    console.log(
      `| ${heap.deltas.toLocaleString('en-US')} | ${megabytes(heap.text)} | ${megabytes(heap.bytes)} | ${heap.nodes} | ${heap.listeners} |`,
    );
  }
  const [first, last] = [seen[0], seen.at(-1)];
  const growth = (last.bytes - first.bytes) / (last.text - first.text);
  console.log(`\nmemory grew by ${growth.toFixed(2)} bytes for each byte of text`);
  assert.ok(growth <= MOST_HEAP_GROWTH, `at most ${MOST_HEAP_GROWTH} are meant`);
  await visit.close();
}
