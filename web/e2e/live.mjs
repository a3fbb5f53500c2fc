// The same chat over one live connection: typed turns, approvals, client tools, and the switch between the modes.

import assert from 'node:assert/strict';

import { startServer } from './server.mjs';

/** Chooses the mode as a user does. */
async function switchTo(visit, name) {
  await visit.get('mode').click();
  await visit.page.getByRole('menuitemradio', { name }).click();
}

export const liveTests = [
  [
    'live: one conversation in both modes',
    async (open) => {
      const visit = await open();
      await visit.say('say over requests');
      await visit.answered();
      await switchTo(visit, 'Live');
      await visit.sees('over requests');
      await visit.say('say over the socket');
      await visit.sees('over the socket');
      await visit.answered();
      await switchTo(visit, 'Requests');
      await visit.say('say and back');
      await visit.sees('and back');
      await visit.answered();
      assert.equal((await visit.messages()).length, 6);
      assert.equal(await visit.get('message-user').count(), 3);
    },
  ],
  [
    'live: what is written before the history is there waits for it',
    async (open) => {
      const visit = await open();
      await visit.say('say first');
      await visit.answered();
      let release;
      const held = new Promise((resolve) => {
        release = resolve;
      });
      await visit.page.route('**/api/chats/*', async (route) => {
        await held;
        await route.continue();
      });
      await switchTo(visit, 'Live');
      await visit.say('say second');
      release();
      await visit.sees('second');
      await visit.answered();
      await visit.page.unrouteAll({ behavior: 'wait' });
      assert.equal(await visit.get('message-user').count(), 2);
      assert.equal((await visit.messages()).length, 4);
    },
  ],
  [
    'live: the mode can be changed in the middle of an answer',
    async (open, { servers, model }) => {
      const visit = await open({ server: servers.gated });
      const gate = model.gate();
      await visit.say(`say begun ${gate.word} ended`);
      await visit.sees('begun');
      await switchTo(visit, 'Live');
      await visit.sees('begun');
      await visit.get('stop').waitFor();
      gate.open();
      await visit.sees('ended');
      await visit.answered();
      assert.equal(await visit.get('message-assistant').count(), 1);
    },
  ],
  ...['approve', 'deny'].map((button) => [
    `live: ${button}, over a reload`,
    async (open) => {
      const visit = await open();
      await switchTo(visit, 'Live');
      await visit.say('pay Hanako 50 dollars');
      await visit.get('approval').waitFor();
      await visit.page.reload();
      await visit.get(button).click();
      await visit.sees(button === 'approve' ? 'Paid 50 USD to Hanako' : 'You declined process_payment');
      await visit.answered();
      assert.equal((await visit.audit('tool.started')).length, button === 'approve' ? 1 : 0);
      assert.equal(await visit.get('message-assistant').count(), 1);
    },
  ]),
  [
    'live: a client tool, a queue and a stop',
    async (open, { servers, model }) => {
      const visit = await open({ server: servers.gated });
      await switchTo(visit, 'Live');
      await visit.say('where am I');
      await visit.get('approve').click();
      await visit.sees('You are at 35.0116, 135.7681');
      await visit.answered();
      const gate = model.gate();
      await visit.say(`say begun ${gate.word} ended`);
      await visit.sees('begun');
      await visit.say('say queued');
      await visit.get('queue').getByText('say queued').waitFor();
      gate.open();
      await visit.sees('queued');
      await visit.answered();
      await visit.say('slow 10000');
      await visit.sees('word3');
      await visit.get('stop').click();
      await visit.get('send').waitFor();
      await visit.get('ended').last().waitFor();
    },
  ],
  [
    'live: a second window takes the chat over, and the first one takes it back',
    async (open) => {
      const visit = await open();
      await switchTo(visit, 'Live');
      await visit.say('say one');
      await visit.answered();
      const other = await visit.newTab();
      await visit.get('live-closed').waitFor();
      await visit.say('say two', other);
      await visit.sees('two', other);
      await visit.sees('two');
      await visit.get('take-over').click();
      await visit.get('live-closed', other).waitFor();
      await visit.say('say three');
      await visit.sees('three');
      assert.equal((await visit.messages()).length, 6);
    },
  ],
  [
    'live: a question outlives the server, and is answered afterwards',
    async (open, world) => {
      const server = await startServer(world.binary);
      try {
        const visit = await open({ server });
        await switchTo(visit, 'Live');
        await visit.say('pay Hanako 50 dollars');
        await visit.get('approval').waitFor();
        await server.kill();
        await visit.get('connection').waitFor();
        await server.start();
        await visit.get('connection').waitFor({ state: 'detached' });
        await visit.get('approve').click();
        await visit.sees('Paid 50 USD to Hanako');
        assert.deepEqual(await visit.audit('tool.started'), ['tool.started']);
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'live: the inspector shows the frames',
    async (open) => {
      const visit = await open();
      await switchTo(visit, 'Live');
      await visit.get('inspector-toggle').click();
      await visit.say('say framed');
      await visit.sees('framed');
      await visit.get('chunk-row').filter({ hasText: 'audio_config' }).waitFor();
      await visit.get('chunk-row').filter({ hasText: 'finish stop' }).waitFor();
      await visit.get('inspector-timings').click();
      await visit.get('timings').getByText('WebSocket').waitFor();
    },
  ],
];
