// How the page looks and is used: colours, languages, phone, keyboard alone, screen readers.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import { PHONE, WIDE } from './browser.mjs';
import { startServer } from './server.mjs';

const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

export const lookTests = [
  ...['light', 'dark'].flatMap((colorScheme) =>
    [undefined, PHONE].map((viewport) => [
      `look: no serious fault for screen readers, ${colorScheme}, ${viewport ? 'phone' : 'desktop'}`,
      async (open) => {
        const visit = await open({ colorScheme, ...(viewport && { viewport }) });
        const name = `${colorScheme}-${viewport ? 'phone' : 'desktop'}`;
        await visit.get('suggestions').waitFor();
        await accessible(visit, 'empty');
        await visit.say('say # Title\n\nText with `code`.\n\n```js\nlet a = 1;\n```\n\n| a | b |\n|---|---|\n| 1 | 2 |');
        await visit.answered();
        await visit.say('think about bridges');
        await visit.answered();
        await visit.say('search the database');
        await visit.get('approve').click();
        await visit.sees('Found 10 users');
        await visit.answered();
        await visit.get('tool-card').getByRole('button').first().click();
        await accessible(visit, 'answers');
        await visit.picture(`answers-${name}`);
        await visit.say('pay Hanako 50 dollars and Bob 20 dollars');
        await visit.get('approval-bar').waitFor();
        await visit.get('approval-countdown').first().waitFor();
        await accessible(visit, 'questions');
        await visit.picture(`questions-${name}`);
        if (viewport) await visit.get('open-sidebar').click();
        await visit.get('settings').click();
        await visit.page.getByRole('menuitemradio', { name: 'Dark' }).waitFor();
        await accessible(visit, 'settings');
        await visit.picture(`settings-${name}`);
        if (viewport) return;
        await visit.page.keyboard.press('Escape');
        await visit.get('inspector-toggle').click();
        await visit.get('inspector').waitFor();
        await accessible(visit, 'inspector');
      },
    ]),
  ),
  [
    'look: colours and language can be chosen, and stay',
    async (open) => {
      const visit = await open();
      const isDark = () => visit.page.evaluate(() => document.documentElement.classList.contains('dark'));
      await visit.get('settings').click();
      await visit.page.getByRole('menuitemradio', { name: 'Dark' }).click();
      await visit.until(isDark, 'the dark colours');
      await visit.page.getByRole('menuitemradio', { name: '日本語' }).click();
      await visit.page.getByText('何をお手伝いしましょうか').waitFor();
      await visit.page.reload();
      await visit.page.getByText('何をお手伝いしましょうか').waitFor();
      assert.equal(await isDark(), true);
      assert.equal(await visit.page.evaluate(() => document.documentElement.lang), 'ja');
      await visit.get('settings').click();
      await visit.page.getByRole('menuitemradio', { name: 'システム' }).click();
      await visit.until(async () => !(await isDark()), 'the light colours');
      await visit.page.emulateMedia({ colorScheme: 'dark' });
      await visit.until(isDark, 'the system’s colours');
    },
  ],
  [
    'look: the settings lead to the documents and to the description of the API',
    async (open) => {
      const visit = await open({ viewport: PHONE });
      await visit.get('open-sidebar').click();
      await visit.get('settings').click();
      const documents = visit.page.getByRole('menuitem', { name: 'Documents' });
      assert.equal(await documents.evaluate((link) => link.href), new URL('docs/', visit.page.url()).href);
      const opened = visit.context.waitForEvent('page');
      await visit.page.getByRole('menuitem', { name: 'API' }).click();
      const api = await opened;
      await api.getByRole('heading', { name: /adk-bridge/ }).waitFor();
      await visit.page.getByTestId('composer').waitFor();
    },
  ],
  [
    'look: a Japanese browser is spoken to in Japanese',
    async (open) => {
      const visit = await open({ locale: 'ja-JP' });
      await visit.page.getByRole('button', { name: /承認して支払う/ }).click();
      await visit.page.getByRole('button', { name: '承認', exact: true }).click();
      await visit.cardIs('process_payment', 'done');
      await visit.answered();
      await visit.picture('japanese');
    },
  ],
  [
    'look: on a wide screen lines stay readable, and nothing is cut off',
    async (open) => {
      const visit = await open({ viewport: WIDE });
      await visit.say(`say ${'a long line of words '.repeat(60)}`);
      await visit.answered();
      await visit.say('search the database');
      await visit.get('approve').click();
      await visit.sees('Found 10 users');
      await visit.get('inspector-toggle').click();
      await visit.get('inspector').waitFor();
      const [lines, page] = await visit.page.evaluate(() => [
        document.querySelector('[data-testid=message-assistant]').getBoundingClientRect().width,
        document.documentElement.scrollWidth,
      ]);
      assert.ok(lines > 500 && lines < 900, `lines of ${lines} pixels`);
      assert.equal(page, WIDE.width);
      await accessible(visit, 'wide');
      await visit.picture('wide');
    },
  ],
  [
    'look: who wants no motion gets none',
    async (open) => {
      const motion = async (reducedMotion) => {
        const visit = await open({ reducedMotion });
        const shown = visit.get('suggestions');
        return shown.evaluate((element) => Number.parseFloat(getComputedStyle(element).animationDuration));
      };
      assert.ok((await motion('no-preference')) > 0.1);
      assert.ok((await motion('reduce')) <= 0.001);
    },
  ],
  [
    'look: a page as the README shows it',
    async (open, { binary }) => {
      const server = await startServer(binary);
      try {
        for (const [id, text] of [
          ['cat', 'Draw a cat'],
          ['weather', 'What is the weather in Tokyo?'],
        ])
          await server.say(id, text);
        const visit = await open({ server, viewport: { width: 1180, height: 760 } });
        await visit.say('Search the database for Tokyo');
        await visit.get('approve').click();
        await visit.sees('Found 2 users');
        await visit.answered();
        await visit.say('Pay Hanako 50 dollars');
        await visit.get('approval-countdown').waitFor();
        await visit.get('chat-item').nth(2).waitFor();
        await visit.picture('page');
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'look: everything is reached with the keyboard alone',
    async (open, { binary }) => {
      // A list in which nothing else happens.
      const server = await startServer(binary);
      try {
        await byKeysAlone(await open({ server }));
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'look: the keyboard stays where it is when the list of chats is put in another order',
    async (open, { binary }) => {
      const server = await startServer(binary);
      try {
        const visit = await open({ server });
        for (const id of ['first', 'second', 'third']) await server.say(id, `say ${id}`);
        const titles = () => visit.get('chat-item').allInnerTexts();
        await visit.until(async () => (await titles())[0] === 'say third', 'three chats');
        await visit.page.locator('a[href="#second"]').focus();
        await server.say('first', 'say more');
        await visit.until(async () => (await titles())[0] === 'say first', 'another order');
        const focused = await visit.page.evaluate(() => document.activeElement?.getAttribute('href'));
        assert.equal(focused, '#second');
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'look: what is written from right to left is shown so, where it is written and where it is answered',
    async (open) => {
      const visit = await open();
      await visit.get('composer').fill('שלום');
      const runs = (side, locator) =>
        visit.until(() => locator.evaluate((element, wanted) => getComputedStyle(element).direction === wanted, side), side);
      await runs('rtl', visit.get('composer'));
      await visit.say('say مرحبا بالعالم، كيف حالك؟\n\nHello again');
      await visit.answered();
      const answer = visit.get('message-assistant').last();
      await runs('rtl', answer.getByText('مرحبا'));
      await runs('ltr', answer.getByText('Hello again'));
      await visit.say('مرحبا');
      await runs('rtl', visit.get('message-user').last().getByText('مرحبا'));
      await visit.answered();
      await visit.picture('right-to-left');
    },
  ],
  [
    'look: on a low screen an empty page is read from its beginning',
    async (open) => {
      const visit = await open({ viewport: { width: 640, height: 320 } });
      await visit.get('suggestions').waitFor();
      await visit.page.getByRole('heading').first().waitFor();
      assert.equal(await visit.get('scroller').evaluate(({ scrollTop }) => scrollTop), 0);
      assert.equal(await visit.get('to-end').count(), 0);
      await visit.say(`say ${'A line.\n\n'.repeat(30)}The end`);
      await visit.sees('The end');
      await visit.until(
        () =>
          visit.get('scroller').evaluate((box) => box.scrollTop > 0 && box.scrollHeight - box.scrollTop - box.clientHeight < 5),
        'the end of the answer',
      );
    },
  ],
  [
    'look: the phone shows the list over the page, and nothing is wider than the screen',
    async (open) => {
      const visit = await open({ viewport: PHONE });
      await visit.say('search the database');
      await visit.get('approve').click();
      await visit.sees('Found 10 users');
      await visit.answered();
      await visit.get('tool-card').getByRole('button').first().click();
      const overflow = () =>
        visit.page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
      assert.equal(await overflow(), 0);
      await visit.get('open-sidebar').click();
      await visit.get('sidebar').waitFor();
      await visit.picture('phone-list');
      await visit.get('new-chat').click();
      await visit.get('sidebar').waitFor({ state: 'detached' });
      await visit.get('suggestions').waitFor();
      assert.equal(await overflow(), 0);
    },
  ],
];

/** A question, an answer and another title, without touching the mouse. */
async function byKeysAlone(visit) {
  await visit.get('suggestions').waitFor();
  const { keyboard } = visit.page;
  const focused = () =>
    visit.page.evaluate(() => {
      const { activeElement: at, body } = document;
      return at === body ? '' : (at?.getAttribute('aria-label') ?? at?.textContent ?? '');
    });
  const tabTo = async (words, key = 'Tab') => {
    for (let presses = 0; presses < 60; presses += 1) {
      if ((await focused()).includes(words)) return;
      await keyboard.press(key);
    }
    assert.fail(`the keyboard does not reach ${words}`);
  };
  // The message field has the focus from the start.
  await visit.until(async () => (await focused()) === 'Message', 'the message field to have the focus');
  await keyboard.type('pay Hanako 50 dollars');
  await keyboard.press('Enter');
  await visit.get('approval').waitFor();
  await tabTo('Deny', 'Shift+Tab');
  await keyboard.press('Enter');
  await visit.sees('You declined');
  await visit.answered();
  await tabTo('Answer again', 'Shift+Tab');
  await tabTo('Options for', 'Shift+Tab');
  await keyboard.press('Enter');
  await visit.page.getByRole('menuitem', { name: 'Rename' }).waitFor();
  await tabTo('Rename', 'ArrowDown');
  await keyboard.press('Enter');
  await visit.get('rename-field').waitFor();
  await keyboard.type('By keys alone');
  await keyboard.press('Enter');
  await visit.get('chat-item').getByText('By keys alone').waitFor();
}

/** Fails on violations that shut people out. */
export async function accessible(visit, where) {
  await visit.page.evaluate(AXE);
  const { violations } = await visit.page.evaluate(() => window.axe.run());
  const grave = violations
    .filter(({ impact }) => impact === 'serious' || impact === 'critical')
    .map(({ id, nodes }) => `${id}: ${nodes.map(({ html, any }) => `${html} ${any[0]?.message ?? ''}`).join('\n  ')}`);
  assert.deepEqual(grave, [], where);
}
