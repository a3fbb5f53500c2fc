// Long conversations and long answers: finished messages are left alone, and a chunk costs the same at the end of any
// conversation.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import { heapOf, MOST_HEAP_GROWTH, streamed } from './memory.mjs';

// A machine that does other things measures with an error; work that grew with the messages would be 200 times as much.
const MAX_RATIO = 2.5;

// A debug build takes its time to write it.
const LONG_ANSWER_MS = 240_000;
const ANSWER_WORDS = 4_000;

// What the engine still compiles and keeps after the first answers: less than 250 bytes for each delta that is measured.
const ENGINE_BYTES = 3_000_000;

export const costTests = [
  [
    'cost: finished messages are not drawn again, and a chunk costs the same after 10 and after 2,000 messages',
    async (open) => {
      const cost = {};
      for (const count of [10, 2_000]) {
        const chat = await conversation(open, count);
        const visit = await open({ chat });
        const { before, after, seconds } = await costOfDelta(visit);
        cost[count] = seconds;
        // The message that was the last one is drawn once more: it is not the last any longer.
        const again = [...before].slice(0, -1).filter(([id, times]) => after.get(id) !== times);
        assert.deepEqual(again, []);
        assert.ok(before.size >= 10);
      }
      console.log(`      CPU of an answer of 4,000 words: ${JSON.stringify(cost)} s`);
      assert.ok(cost[2_000] < cost[10] * MAX_RATIO, JSON.stringify(cost));
    },
  ],
  [
    'cost: an answer of 200 kB leaves the page usable',
    async (open) => {
      const visit = await open();
      await visit.say('long 28000');
      await visit.get('stop').waitFor();
      // The page takes what is typed while the answer comes.
      await visit.get('composer').pressSequentially('still here');
      assert.equal(await visit.get('composer').inputValue(), 'still here');
      await visit.sees('word28000', visit.page, LONG_ANSWER_MS);
      await visit.answered();
      const length = await visit
        .get('message-assistant')
        .innerText()
        .then((text) => text.length);
      assert.ok(length > 200_000, `${length} characters`);
    },
  ],
  [
    'cost: memory grows with what was said, not with the deltas',
    async (open) => {
      const visit = await open();
      // What the engine compiles and keeps is there after the first ones.
      for (let answer = 0; answer < 2; answer += 1) await streamed(visit, 3_000);
      const before = await heapOf(visit);
      for (let answer = 0; answer < 4; answer += 1) await streamed(visit, 3_000);
      const after = await heapOf(visit);
      const more = after.bytes - before.bytes;
      console.log(`      memory of 12,000 deltas: ${more} bytes`);
      assert.ok(more <= ENGINE_BYTES + MOST_HEAP_GROWTH * (after.text - before.text), JSON.stringify({ before, after }));
    },
  ],
  [
    'cost: earlier messages of a long conversation come on demand',
    async (open) => {
      const chat = await conversation(open, 200);
      const visit = await open({ chat });
      await visit.get('message-assistant').last().waitFor();
      const shown = await visit.get('message-user').count();
      assert.ok(shown < 40, `${shown} messages drawn`);
      await visit.get('earlier').click();
      await visit.until(async () => (await visit.get('message-user').count()) > shown, 'earlier messages');
    },
  ],
];

/** What an answer takes in the conversation that is open, and how often each message was drawn before and after it. */
export async function costOfDelta(visit) {
  await visit.get('message-assistant').last().waitFor();
  // The first answer fetches the renderer and warms up the engine.
  await visit.say('long 500');
  await visit.answered();
  const before = await renders(visit);
  const measure = await measuring(visit);
  await visit.say(`long ${ANSWER_WORDS}`);
  await visit.sees(`word${ANSWER_WORDS}`, visit.page, LONG_ANSWER_MS);
  await visit.answered();
  const seconds = await measure();
  return { before, after: await renders(visit), seconds, micros: (seconds / ANSWER_WORDS) * 1e6 };
}

/** A chat with so many messages, which the server takes over from a request that it has never seen. */
export async function conversation(open, count) {
  const { server } = await open();
  const id = randomUUID();
  const messages = Array.from({ length: count }, (_, index) => ({
    id: `m${index}`,
    role: index % 2 === 0 ? 'user' : 'assistant',
    parts: [{ type: 'text', text: `Message ${index} has **some** Markdown and \`code\`.` }],
  }));
  messages.push({ id: 'last', role: 'user', parts: [{ type: 'text', text: 'say ready' }] });
  const response = await fetch(`${server.url}/api/chat`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ id, messages }),
  });
  assert.equal(response.status, 200);
  await response.text();
  return id;
}

/** How often each message on the screen was drawn. */
async function renders(visit) {
  const pairs = await visit.page
    .locator('[data-renders]')
    .evaluateAll((items) => items.map(({ dataset }) => [dataset.messageId, dataset.renders]));
  return new Map(pairs);
}

/** CPU seconds of the page from here on. */
async function measuring(visit) {
  const session = await visit.context.newCDPSession(visit.page);
  // Time that the page's thread worked, not time that passed: other work on the machine is none of the page's.
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const read = async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'TaskDuration').value;
  };
  const start = await read();
  return async () => Number(((await read()) - start).toFixed(3));
}
