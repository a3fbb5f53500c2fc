// Conversations: list, search, rename, delete with undo, links, tabs and windows that follow along.

import assert from 'node:assert/strict';

import { startServer } from './server.mjs';

export const conversationTests = [
  [
    'conversations: found by their titles, renamed, deleted and brought back',
    async (open, world) => {
      const server = await startServer(world.binary);
      try {
        const visit = await open({ server });
        await visit.say('say kyoto');
        await visit.answered();
        await visit.get('new-chat').click();
        await visit.get('suggestions').waitFor();
        await visit.say('say osaka');
        await visit.sees('osaka');
        await visit.answered();
        const items = visit.get('chat-item');
        await visit.until(async () => (await items.count()) === 2, 'two chats in the list');
        await visit.get('chat-search').fill('KYO');
        await visit.until(async () => (await items.count()) === 1, 'one chat to be found');
        await items.first().hover();
        await items.getByRole('button', { name: /Options/ }).click();
        await visit.page.getByRole('menuitem', { name: 'Rename' }).click();
        await visit.get('rename-field').fill('Trip to Nara');
        await visit.page.keyboard.press('Enter');
        await visit.get('chat-search').fill('nara');
        await items.getByText('Trip to Nara').waitFor();
        await visit.picture('conversations');
        await visit.get('chat-search').fill('');

        const remove = async () => {
          await items.filter({ hasText: 'Trip to Nara' }).hover();
          await items
            .filter({ hasText: 'Trip to Nara' })
            .getByRole('button', { name: /Options/ })
            .click();
          await visit.page.getByRole('menuitem', { name: 'Delete' }).click();
          await items.getByText('Trip to Nara').waitFor({ state: 'detached' });
        };
        await remove();
        await visit.get('toasts').getByRole('button', { name: 'Undo' }).click();
        await items.getByText('Trip to Nara').waitFor();
        assert.equal((await server.json('/api/chats')).length, 2);
        await remove();
        await visit.until(async () => (await server.json('/api/chats')).length === 1, 'the server to have deleted it');
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'conversations: a list that is longer than a page has its end, is searched whole, and names an old chat that is opened',
    async (open, world) => {
      const server = await startServer(world.binary);
      try {
        for (let number = 0; number < 205; number += 1) await server.say(`c${number}`, `say (${number})`);
        const visit = await open({ server, chat: 'c2' });
        await visit.get('chat-title').getByText('say (2)').waitFor();
        const items = visit.get('chat-item');
        const item = (number) => items.filter({ hasText: `say (${number})` });
        assert.equal(await item(2).count(), 1);
        assert.equal(await items.count(), 201);
        await visit.get('chat-search').fill('(1)');
        await item(1).waitFor();
        assert.equal(await items.count(), 1);
        await visit.page.reload();
        await visit.get('older-chats').click();
        await item(0).waitFor();
        assert.equal(await items.count(), 205);
        assert.equal(await visit.get('older-chats').count(), 0);
        // An old chat that goes on is the newest, and one that is deleted does not come back with the next page.
        await visit.say('say again');
        await visit.answered();
        await visit.until(async () => (await items.first().innerText()).includes('(2)'), 'the chat at the head of the list');
        assert.equal(await items.count(), 205);
        await item(0).hover();
        await item(0).getByRole('button').click();
        const toast = visit.get('toasts').getByText('deleted');
        await Promise.all([toast.waitFor(), visit.page.getByRole('menuitem', { name: 'Delete' }).click()]);
        await toast.waitFor({ state: 'detached' });
        await visit.until(
          async () => (await server.json('/api/chats?before=c1&at=9999999999999')).every(({ id }) => id !== 'c0'),
          'the server to have deleted it',
        );
        await visit.looksAgain();
        assert.equal(await items.count(), 204);
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'conversations: who deletes with the keyboard goes on with the next chat of the list',
    async (open, world) => {
      const server = await startServer(world.binary);
      try {
        for (const id of ['c1', 'c2', 'c3']) await server.say(id, `say ${id}`);
        const visit = await open({ server });
        const item = (id) => visit.get('chat-item').filter({ hasText: `say ${id}` });
        const isOn = (name) => document.activeElement.role === 'menuitem' && document.activeElement.textContent.includes(name);
        const stands = (name) =>
          visit.until(() => visit.page.evaluate(isOn, name), `the focus in the menu, on ${name || 'anything'}`);
        const removes = async (id) => {
          await item(id).getByRole('button').focus();
          await visit.page.keyboard.press('Enter');
          // The menu takes the keyboard a moment after it is drawn.
          await stands('');
          await visit.page.keyboard.press('End');
          await stands('Delete');
          await visit.page.keyboard.press('Enter');
          await item(id).waitFor({ state: 'detached' });
        };
        const isFocused = (id) =>
          visit.until(
            () =>
              item(id)
                .getByRole('link')
                .evaluate((link) => link === document.activeElement),
            `the focus on ${id}`,
          );
        await removes('c2');
        await isFocused('c1');
        await removes('c1');
        await isFocused('c3');
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'conversations: a link opens its chat, and going back returns to the one before',
    async (open) => {
      const visit = await open();
      await visit.say('say linked');
      await visit.answered();
      await visit.get('new-chat').click();
      await visit.get('suggestions').waitFor();
      await visit.page.goBack();
      await visit.sees('linked');
      const other = await visit.newTab();
      await visit.sees('linked', other);
    },
  ],
  [
    'conversations: a chat goes on while another one is open',
    async (open, { servers, model }) => {
      const visit = await open({ server: servers.gated });
      const gate = model.gate();
      await visit.say(`say begun ${gate.word} ended`);
      await visit.sees('begun');
      await visit.get('new-chat').click();
      await visit.get('suggestions').waitFor();
      await visit.say('say meanwhile');
      await visit.sees('meanwhile');
      gate.open();
      await visit.page.locator(`a[href="#${visit.chat}"]`).click();
      await visit.sees('ended');
      await visit.answered();
    },
  ],
  [
    'conversations: another tab sees an answer while it is written',
    async (open, { servers, model }) => {
      const visit = await open({ server: servers.gated });
      const other = await visit.newTab();
      const gate = model.gate();
      // The other tab asks for the messages a moment too early, and for what runs when it runs.
      await other.route(`**/api/chats/${visit.chat}*`, (route) => route.fulfill({ status: 404 }), { times: 1 });
      let runs = () => {};
      const isRunning = new Promise((resolve) => (runs = resolve));
      await other.route('**/stream*', (route) => isRunning.then(() => route.fallback()));
      await visit.say(`say begun ${gate.word} ended`);
      await visit.sees('begun');
      runs();
      await visit.sees('begun', other);
      await visit.get('stop', other).waitFor();
      await visit.get('message-user', other).waitFor();
      await other.unrouteAll();
      gate.open();
      await visit.sees('ended', other);
      await visit.answered(other);
      assert.equal(await visit.get('message-assistant', other).count(), 1);
      assert.equal(await visit.get('message-user', other).count(), 1);
    },
  ],
  [
    'conversations: another browser follows along too',
    async (open) => {
      const visit = await open();
      await visit.say('say one');
      await visit.answered();
      const elsewhere = await open({ chat: visit.chat });
      await elsewhere.sees('one');
      await visit.say('say two');
      await elsewhere.sees('two');
    },
  ],
  [
    'conversations: a reload in the middle of an answer takes it up again',
    async (open, { servers, model }) => {
      const visit = await open({ server: servers.gated });
      const gate = model.gate();
      await visit.say(`say begun ${gate.word} ended`);
      await visit.sees('begun');
      await visit.page.reload();
      await visit.sees('begun');
      await visit.get('stop').waitFor();
      gate.open();
      await visit.sees('ended');
      await visit.answered();
      assert.equal(await visit.get('message-assistant').count(), 1);
      assert.equal((await visit.messages()).length, 2);
    },
  ],
];
