// The connection: lost, found, restarted; and nothing typed is lost.

import assert from 'node:assert/strict';

import { startServer } from './server.mjs';

export const connectionTests = [
  [
    'connection: until the server has answered it says so, and what is typed meanwhile is sent',
    async (open) => {
      const visit = await open();
      let release = () => {};
      const released = new Promise((resolve) => (release = resolve));
      await visit.page.route('**/api/agents', async (route) => {
        await released;
        await route.continue();
      });
      await visit.page.reload();
      await visit.get('connection').getByText('Connecting').waitFor();
      await visit.say('say early');
      release();
      await visit.sees('early');
      await visit.get('connection').waitFor({ state: 'detached' });
    },
  ],
  [
    'connection: a server that goes away is shown with a countdown, and what was typed arrives when it is back',
    async (open, world) => {
      const server = await startServer(world.binary);
      try {
        const visit = await open({ server });
        await visit.say('say before');
        await visit.answered();
        await server.kill();
        await visit
          .get('connection')
          .getByText(/Trying again/)
          .waitFor();
        await visit.say('say typed while away');
        await visit.get('error').waitFor();
        assert.equal(await visit.get('queue').count(), 0, 'shown twice');
        await visit.picture('away');
        // The note goes after a few seconds, so that it is looked for from the start.
        const toast = visit.get('toasts').getByText('The server was restarted').waitFor();
        await Promise.all([toast, server.start().then(() => visit.sees('typed while away'))]);
        const typed = (await visit.messages()).filter(({ role }) => role === 'user');
        assert.equal(typed.length, 2);
        assert.equal(await visit.get('message-user').count(), 2);
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'connection: an answer that a restart cuts off is shown as far as it came',
    async (open, world) => {
      const server = await startServer(world.binary);
      try {
        const visit = await open({ server });
        await visit.say('slow 10000');
        await visit.sees('word8');
        await server.kill();
        await server.start();
        await visit.get('ended').getByText('Interrupted').waitFor();
        await visit.sees('word2');
        await visit.say('say going on');
        await visit.sees('going on');
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'connection: a browser without network says so, and sends when it is back',
    async (open) => {
      const visit = await cutOff(open);
      await visit.say('say from the tunnel');
      await visit.get('error').waitFor();
      await visit.context.setOffline(false);
      await visit.sees('from the tunnel');
      assert.equal((await visit.messages()).length, 4);
    },
  ],
  [
    'connection: a message that never arrived is sent after a reload',
    async (open, world) => {
      const server = await startServer(world.binary);
      try {
        const visit = await open({ server });
        await visit.say('say before');
        await visit.answered();
        await visit.page.route('**/api/chat?*', (route) => route.abort());
        await visit.say('say kept');
        await visit.get('error').waitFor();
        await visit.page.unroute('**/api/chat?*');
        await visit.page.reload();
        await visit.sees('kept');
        assert.equal((await visit.messages()).length, 4);
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'connection: a message that was edited without network is sent when it is back',
    async (open) => {
      const visit = await cutOff(open);
      await rewritten(visit, 'say in other words');
      await visit.get('error').waitFor();
      await visit.context.setOffline(false);
      await visit.sees('in other words');
      await visit.answered();
      assert.deepEqual(await typed(visit), ['say in other words']);
    },
  ],
  [
    'connection: a message that was edited and arrived although its answer was lost is not sent again',
    async (open) => {
      const visit = await open();
      await visit.say('say before');
      await visit.answered();
      let posts = 0;
      await visit.page.route('**/api/chat?*', async (route) => {
        posts += 1;
        await route.fetch();
        await route.abort();
      });
      await rewritten(visit, 'say in other words');
      await visit.sees('in other words');
      await visit.answered();
      assert.deepEqual(await typed(visit), ['say in other words']);
      assert.equal(posts, 1);
    },
  ],
  [
    'connection: a draft is kept over a reload, per chat',
    async (open) => {
      const visit = await open();
      await visit.get('composer').fill('half a thought');
      await visit.page.reload();
      await visit.until(async () => (await visit.get('composer').inputValue()) === 'half a thought', 'the draft');
      await visit.get('new-chat').click();
      await visit.until(async () => (await visit.get('composer').inputValue()) === '', 'an empty field');
    },
  ],
  [
    'connection: a server with keys is opened with one, files included, although the refusal of another comes late',
    async (open, world) => {
      const keys = '[demo]\npace = "0ms"\n[auth]\napi_keys = [{ key = "a-long-enough-secret-key", user = "hanako" }]\n';
      const server = await startServer(world.binary, keys);
      try {
        const visit = await open({ server });
        await visit.get('key-field').fill('not the key');
        await visit.page.keyboard.press('Enter');
        await visit.page.getByText('does not accept this key').waitFor();
        let release;
        const released = new Promise((resolve) => (release = resolve));
        const isOld = (request) => request.headers().authorization === 'Bearer not the key';
        await visit.page.route('**/api/chats', async (route) => {
          if (isOld(route.request())) await released;
          await route.continue();
        });
        const asked = visit.page.waitForRequest((request) => request.url().endsWith('/api/chats') && isOld(request));
        await visit.page.evaluate(() => window.dispatchEvent(new Event('online')));
        await asked;
        await visit.get('key-field').fill('a-long-enough-secret-key');
        await visit.page.keyboard.press('Enter');
        release();
        await visit.get('suggestions').waitFor();
        await visit.get('key-field').waitFor({ state: 'detached' });
        await visit.say('draw a cat');
        const picture = visit.get('picture').locator('img');
        await visit.until(() => picture.evaluate((image) => image.naturalWidth > 0), 'the picture to be shown');
      } finally {
        await server.stop();
      }
    },
  ],
];

/** A page with an answer whose browser has lost its network. */
async function cutOff(open) {
  const visit = await open();
  await visit.say('say before');
  await visit.answered();
  await visit.context.setOffline(true);
  await visit.get('connection').getByText('You are offline').waitFor();
  return visit;
}

async function rewritten(visit, text) {
  await visit.get('message-user').hover();
  await visit.get('edit').click();
  await visit.get('edit-field').fill(text);
  await visit.get('edit-send').click();
}

async function typed(visit) {
  return (await visit.messages()).filter(({ role }) => role === 'user').map(({ parts }) => parts[0].text);
}
