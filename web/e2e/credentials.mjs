// What an agent asks the user to grant: a real ADK server, a real provider, and windows of a real browser.

import assert from 'node:assert/strict';
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';

import { PHONE } from './browser.mjs';
import { CLIENT_SECRET, consent, logIn, refuse } from './login-provider.mjs';
import { accessible } from './look.mjs';

const TOOL = 'adk_request_credential';
const SECRET = 'PLANTED-USER-SECRET-0815';
const DENIED = 'denied: the user did not grant access';

/** Opens the window of a login. */
async function opened(visit, place = 0) {
  const [popup] = await Promise.all([
    visit.page.waitForEvent('popup'),
    visit.card(TOOL).nth(place).getByTestId('credential-open').click(),
  ]);
  return popup;
}

/** Neither the server, nor its log, nor the page has any of the secrets. */
async function keepsSecrets({ server, page, chat }, provider) {
  const secrets = [CLIENT_SECRET, SECRET, 'PLANTED-PROVIDER-PASSWORD', ...provider.tokens];
  const found = {
    page: await page.content(),
    log: server.log,
    messages: JSON.stringify(await server.json(`/api/chats/${chat}`)),
    audit: JSON.stringify(await server.json(`/api/audit?chat=${chat}`)),
  };
  for (const name of readdirSync(server.data, { recursive: true, withFileTypes: true })) {
    if (name.isFile()) found[name.name] = readFileSync(join(name.parentPath, name.name)).toString('latin1');
  }
  for (const [place, text] of Object.entries(found)) {
    for (const secret of secrets) assert.ok(!text.includes(secret), `${place} has ${secret}`);
  }
}

async function errorOf(visit) {
  const part = (await visit.messages()).at(-1).parts.find(({ type }) => type === `tool-${TOOL}`);
  return part.errorText;
}

export const credentialTests = [
  ...['', '?dialect=adk'].map((query) => [
    `credentials: what is granted in a window goes to the agent, and the answer goes on by itself ${query}`,
    async (open, { servers, provider }) => {
      const visit = await open({ server: servers.vault, query, alsoAt: provider.issuer });
      await visit.say('call read_mail');
      await visit.cardIs(TOOL, 'asked');
      const card = visit.card(TOOL);
      await card.getByText(`access to ${new URL(provider.issuer).host}`).waitFor();
      await card.getByTestId('credential-scopes').getByText('mail').waitFor();
      await visit.picture(`credential-asked${query.replace(/\W/g, '')}`);
      const popup = await opened(visit);
      const closed = popup.waitForEvent('close');
      await consent(popup, 'alice');
      await closed;
      await visit.sees('read_mail={"of": "alice", "status": 200}');
      await visit.answered();
      await visit.cardIs(TOOL, 'done');
      await visit.cardIs('read_mail', 'done');
      await keepsSecrets(visit, provider);
    },
  ]),
  [
    'credentials: OpenID Connect',
    async (open, { servers, provider }) => {
      const visit = await open({ server: servers.vault, alsoAt: provider.issuer });
      await visit.say('call who_am_i');
      const popup = await opened(visit);
      await consent(popup, 'bob');
      await visit.sees('who_am_i={"of": "bob", "status": 200}');
      await visit.answered();
      await keepsSecrets(visit, provider);
    },
  ],
  [
    'credentials: what the user refuses at the provider ends there',
    async (open, { servers, provider }) => {
      const visit = await open({ server: servers.vault, alsoAt: provider.issuer });
      await visit.say('call read_mail');
      const popup = await opened(visit);
      await refuse(popup);
      await visit.cardIs(TOOL, 'denied');
      await visit.sees('the user did not grant the access that it needs');
      await visit.answered();
      await visit.picture('credential-refused');
      assert.equal(await errorOf(visit), DENIED);
      await keepsSecrets(visit, provider);
    },
  ],
  [
    'credentials: a window that is closed can be opened again, and the question can be refused on the page',
    async (open, { servers, provider }) => {
      const visit = await open({ server: servers.vault, alsoAt: provider.issuer });
      await visit.say('call read_mail');
      const popup = await opened(visit);
      await logIn(popup, 'alice');
      await popup.close();
      await visit.get('credential-status').getByText('closed before access was granted').waitFor();
      const again = await opened(visit);
      await again.locator('form').first().waitFor();
      await visit.get('credential-refuse').click();
      await visit.cardIs(TOOL, 'denied');
      await visit.answered();
      assert.equal(await errorOf(visit), DENIED);
    },
  ],
  [
    'credentials: a question that expires says so, in the card and in the window',
    async (open, { servers, provider }) => {
      const visit = await open({ server: servers.hastyVault, alsoAt: provider.issuer });
      await visit.say('call read_mail');
      const popup = await opened(visit);
      await logIn(popup, 'alice');
      await visit.cardIs(TOOL, 'failed');
      await visit.answered();
      await popup.getByRole('button', { name: 'Continue' }).click();
      await popup.getByText('No longer asked').waitFor();
      assert.equal(await errorOf(visit), 'expired: access was not granted in time');
    },
  ],
  [
    'credentials: two at once are granted one after the other',
    async (open, { servers, provider }) => {
      const visit = await open({ server: servers.vault, alsoAt: provider.issuer });
      await visit.say('call read_mail && call read_news');
      await visit.until(async () => (await visit.card(TOOL).count()) === 2, 'two questions');
      const first = await opened(visit, 1);
      const closed = first.waitForEvent('close');
      await consent(first, 'alice');
      await closed;
      const second = await opened(visit, 0);
      // The provider knows the user by now.
      await second.getByRole('button', { name: 'Continue' }).click();
      await visit.sees('read_mail={"of": "alice", "status": 200}; read_news={"of": "alice", "status": 200}');
      await visit.answered();
      await keepsSecrets(visit, provider);
    },
  ],
  [
    'credentials: without a window the page itself goes to the provider, and comes back to the chat',
    async (open, { servers, provider }) => {
      const visit = await open({ server: servers.vault, alsoAt: provider.issuer });
      await visit.page.evaluate(() => (window.open = () => null));
      await visit.say('call read_mail');
      await visit.get('credential-open').click();
      await consent(visit.page, 'alice');
      await visit.sees('read_mail={"of": "alice", "status": 200}');
      await visit.answered();
      assert.ok(visit.page.url().endsWith(`#${visit.chat}`));
    },
  ],
  ...[
    ['use_key', { apiKey: SECRET }],
    ['use_password', { username: 'me', password: SECRET }],
    ['use_token', { token: SECRET }],
  ].map(([tool, fields]) => [
    `credentials: what is typed in for ${tool} goes to the agent, and not into the chat`,
    async (open, { servers, provider }) => {
      const visit = await open({ server: servers.vault, alsoAt: provider.issuer });
      await visit.say(`call ${tool}`);
      await visit.cardIs(TOOL, 'asked');
      for (const [name, value] of Object.entries(fields)) await visit.get(`credential-${name}`).fill(value);
      await visit.get('credential-give').click();
      await visit.sees(`${tool}={"length": ${Object.values(fields).join('').length}}`);
      await visit.answered();
      await visit.cardIs(TOOL, 'done');
      await keepsSecrets(visit, provider);
    },
  ]),
  [
    'credentials: the card can be used by everybody, in every theme and on a phone',
    async (open, { servers }) => {
      for (const [name, options] of [
        ['light', { colorScheme: 'light' }],
        ['dark', { colorScheme: 'dark' }],
        ['phone', { viewport: PHONE, locale: 'ja' }],
      ]) {
        const visit = await open({ server: servers.vault, ...options });
        await visit.say('call read_mail && call use_password');
        await visit.until(async () => (await visit.card(TOOL).count()) === 2, 'two questions');
        await visit.get('credential-open').waitFor();
        await visit.get('credential-password').waitFor();
        await accessible(visit, `credentials-${name}`);
        await visit.picture(`credentials-${name}`);
      }
    },
  ],
];

/** Tests that restart servers need them for themselves. */
export const credentialRestartTests = [
  [
    'credentials: the bridge, or the ADK server, is restarted while the user is at the provider',
    async (open, { servers, provider, vault }) => {
      for (const restart of [() => servers.keptVault.kill().then(() => servers.keptVault.start()), () => vault.restart()]) {
        const visit = await open({ server: servers.keptVault, alsoAt: provider.issuer });
        await visit.say('call read_mail');
        const popup = await opened(visit);
        await logIn(popup, 'alice');
        await restart();
        await popup.getByRole('button', { name: 'Continue' }).click();
        await visit.until(
          async () => JSON.stringify(await visit.messages().catch(() => '')).includes('read_mail={\\"of\\": \\"alice\\"'),
          'the answer',
        );
        await keepsSecrets(visit, provider);
      }
    },
  ],
];
