// Logging in with the page: a real provider, and a real browser.

import assert from 'node:assert/strict';

import { PHONE } from './browser.mjs';
import { logIn } from './login-provider.mjs';
import { accessible } from './look.mjs';

/** From the page to the provider and back. */
async function enter(visit, user) {
  await visit.get('login-corp').click();
  await logIn(visit.page, user);
  await visit.page.getByRole('button', { name: 'Continue' }).click();
  await visit.get('account').waitFor();
}

/** Chooses what the menu of the account offers, and confirms it at the provider. */
async function leave(visit, words) {
  await visit.get('account').click();
  await visit.page.getByRole('menuitem', { name: words, exact: true }).click();
  await visit.page.getByRole('button', { name: 'Yes, sign me out' }).click();
  await visit.get('login').waitFor();
}

export const loginTests = [
  [
    'login: at the provider and back to the chat that was open, and out again',
    async (open, { servers, issuer }) => {
      const visit = await open({ server: servers.login, alsoAt: issuer.issuer });
      await visit.get('login').waitFor();
      await enter(visit, 'alice');
      assert.ok(visit.page.url().endsWith(`#${visit.chat}`), visit.page.url());
      await visit.say('say hello');
      await visit.sees('hello');
      await visit.answered();
      // No script sees the cookie.
      assert.equal(await visit.page.evaluate(() => document.cookie), '');
      await visit.page.reload();
      await visit.sees('hello');
      await visit.get('account').click();
      await visit.page.getByTestId('account-name').getByText('alice of Example').waitFor();
      await visit.page.keyboard.press('Escape');
      await visit.get('account-name').waitFor({ state: 'detached' });
      await leave(visit, 'Log out');
      // The provider has forgotten the user, too: it asks again.
      await visit.get('login-corp').click();
      await visit.page.locator('input[name=login]').waitFor();
    },
  ],
  [
    'login: a WebSocket opens with the cookie',
    async (open, { servers, issuer }) => {
      const visit = await open({ server: servers.login, alsoAt: issuer.issuer });
      await enter(visit, 'lena');
      const opened = await visit.page.evaluate(
        () =>
          new Promise((resolve) => {
            const socket = new WebSocket(`${location.origin.replace('http', 'ws')}/live`);
            socket.onmessage = () => resolve('opened');
            socket.onclose = ({ code }) => resolve(`closed with ${code}`);
          }),
      );
      assert.equal(opened, 'opened');
    },
  ],
  [
    'login: on all devices out',
    async (open, { servers, issuer }) => {
      const visits = [];
      for (let number = 0; number < 2; number += 1) {
        const visit = await open({ server: servers.login, alsoAt: issuer.issuer });
        await enter(visit, 'bob');
        visits.push(visit);
      }
      const [here, there] = visits;
      await leave(here, 'Log out on all devices');
      // The other page finds out with its next look.
      await there.get('login').waitFor();
    },
  ],
  [
    'login: who refuses at the provider can begin again',
    async (open, { servers, issuer }) => {
      const visit = await open({ server: servers.login, alsoAt: issuer.issuer });
      await visit.get('login-corp').click();
      await logIn(visit.page, 'carol');
      await visit.page.getByRole('link', { name: 'Cancel' }).click();
      await visit.page.getByText('You are not logged in').waitFor();
      await visit.page.getByRole('link', { name: 'Log in again' }).click();
      await visit.page.getByRole('button', { name: 'Continue' }).click();
      await visit.get('account').waitFor();
    },
  ],
  [
    'login: the dialog can be used by everybody, in every theme and on a phone',
    async (open, { servers }) => {
      for (const [name, options] of [
        ['light', { colorScheme: 'light' }],
        ['dark', { colorScheme: 'dark' }],
        ['phone', { viewport: PHONE, locale: 'ja' }],
      ]) {
        const visit = await open({ server: servers.login, ...options });
        await visit.get('login-corp').waitFor();
        await accessible(visit, `login-${name}`);
        await visit.picture(`login-${name}`);
      }
    },
  ],
];
