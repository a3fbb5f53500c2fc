// Approvals: the same for yes and no and in both dialects; several at once, in a row, over reloads, restarts and tabs.

import assert from 'node:assert/strict';

import { startServer } from './server.mjs';

const DIALECTS = { native: '', adk: '?dialect=adk' };

/** The two answers take one path; only what comes of them differs. */
const ANSWERS = [
  {
    button: 'approve',
    state: 'done',
    words: 'Paid 50 USD to Hanako',
    decision: 'Approved at',
    kind: 'approval.approved',
    ran: 1,
  },
  {
    button: 'deny',
    state: 'denied',
    words: 'You declined process_payment',
    decision: 'Denied at',
    kind: 'approval.denied',
    ran: 0,
  },
];

const both = Object.entries(DIALECTS).flatMap(([dialect, query]) =>
  ANSWERS.map((answer) => [
    `approvals: ${answer.button} in ${dialect}`,
    async (open) => {
      const visit = await open({ query });
      await visit.say('pay Hanako 50 dollars');
      await visit.cardIs('process_payment', 'waiting');
      const card = visit.card('process_payment');
      await card.getByTestId('tool-input').getByText('Hanako').waitFor();
      await card.getByTestId('approval-countdown').getByText('left to decide').waitFor();
      await visit.until(async () => (await visit.page.title()).startsWith('('), 'the title to tell');
      await visit.get('announcer').getByText('Your approval is needed: Process payment').waitFor({ state: 'attached' });
      if (answer.button === 'approve') await visit.picture(`approval-${dialect}`);
      await card.getByTestId(answer.button).click();
      await visit.sees(answer.words);
      await visit.answered();
      await visit.cardIs('process_payment', answer.state);
      await visit.card('process_payment').getByRole('button').first().click();
      await card.getByTestId('decision').getByText(answer.decision).waitFor();
      assert.equal(await card.getByTestId('tool-duration').count(), answer.ran);
      assert.deepEqual(await visit.audit('approval.approved', 'approval.denied'), [answer.kind]);
      assert.equal((await visit.audit('tool.started')).length, answer.ran);
      assert.equal(await visit.get('message-assistant').count(), 1);
    },
  ]),
);

const everywhere = Object.entries(DIALECTS).flatMap(([dialect, query]) => [
  [
    `approvals: several at once, one by one and all with one press, in ${dialect}`,
    async (open) => {
      const visit = await open({ query });
      await visit.say('pay Hanako 50 dollars and Bob 20 dollars and Alice 5 dollars');
      await visit.get('approval-bar').getByText('3 approvals').waitFor();
      const places = await visit.get('approval-place').allInnerTexts();
      assert.deepEqual(places, ['1 of 3', '2 of 3', '3 of 3']);
      await visit.picture(`several-${dialect}`);
      await visit.get('deny').nth(1).click();
      await visit.get('approval-bar').getByText('2 approvals').waitFor();
      await visit.get('approve-all').click();
      await visit.sees('Paid 50 USD to Hanako');
      await visit.answered();
      const kinds = await visit.audit('approval.approved', 'approval.denied');
      assert.deepEqual(kinds.sort(), ['approval.approved', 'approval.approved', 'approval.denied']);
    },
  ],
  [
    `approvals: one of two is approved and the user writes on, in ${dialect}`,
    async (open) => {
      const visit = await open({ query });
      await visit.say('pay Hanako 50 dollars and Bob 20 dollars');
      await visit.get('approval').nth(1).waitFor();
      await visit.get('approve').first().click();
      await visit.until(async () => (await visit.audit('tool.finished')).length === 1, 'the payment to be made');
      await visit.get('approval').nth(1).waitFor({ state: 'detached' });
      assert.equal(await visit.get('approval').count(), 1, 'the other question stays');
      // What is held back until the last answer in `adk` is shown at once in `native`.
      if (dialect === 'native') await visit.get('tool-card').first().and(visit.page.locator('[data-state="done"]')).waitFor();
      await visit.picture(`one-of-two-${dialect}`);
      await visit.say('say never mind');
      await visit.sees('never mind');
      await visit.answered();
      await visit.get('approval').waitFor({ state: 'detached' });
      await visit.get('tool-card').first().and(visit.page.locator('[data-state="done"]')).waitFor();
      const kinds = ['approval.approved', 'tool.started', 'tool.finished', 'approval.superseded', 'answer.refused'];
      assert.deepEqual(await visit.audit(...kinds), kinds.slice(0, 4));
    },
  ],
  [
    `approvals: two in a row, with a reload before each answer, in ${dialect}`,
    async (open) => {
      const visit = await open({ query });
      await visit.say('search the database and update it');
      for (const tool of ['search_database', 'update_database']) {
        await visit.cardIs(tool, 'waiting');
        await visit.page.reload();
        await visit.cardIs(tool, 'waiting');
        await visit.card(tool).getByTestId('approve').click();
      }
      await visit.sees('Database updated');
      await visit.answered();
      await visit.page.reload();
      await visit.cardIs('update_database', 'done');
      assert.equal(await visit.get('tool-card').count(), 2);
    },
  ],
]);

export const approvalTests = [
  ...both,
  ...everywhere,
  [
    'approvals: Enter approves and Escape denies where the question has the focus, with a reason if one was written',
    async (open) => {
      const visit = await open();
      await visit.say('pay Hanako 50 dollars');
      await visit.get('approval').focus();
      await visit.page.keyboard.press('Enter');
      await visit.sees('Paid 50 USD');
      await visit.answered();
      await visit.say('pay Bob 20 dollars');
      await visit.get('give-reason').click();
      await visit.get('approval-reason').fill('Bob has been paid');
      await visit.page.keyboard.press('Escape');
      await visit.sees('You declined process_payment (Bob has been paid)');
      await visit.answered();
      const card = visit.card('process_payment').last();
      await card.getByRole('button').first().click();
      await card.getByText('Reason: Bob has been paid').waitFor();
    },
  ],
  [
    'approvals: a word that is being composed keeps its keys',
    async (open) => {
      const visit = await open();
      const input = await visit.context.newCDPSession(visit.page);
      const composes = (text) =>
        input.send('Input.imeSetComposition', { text, selectionStart: text.length, selectionEnd: text.length });
      await composes('say ');
      await visit.page.keyboard.press('Enter');
      assert.equal(await visit.get('message-user').count(), 0, 'sent');
      await visit.get('composer').fill('');
      await visit.say('pay Hanako 50 dollars');
      await visit.get('give-reason').click();
      await composes('たか');
      await visit.page.keyboard.press('Escape');
      await visit.looksAgain();
      await visit.cardIs('process_payment', 'waiting');
      assert.deepEqual(await visit.audit(), ['approval.requested']);
      // Safari has ended the composition when it tells the key that did.
      await visit.get('composer').fill('say sent too early');
      await visit.get('composer').dispatchEvent('keydown', { key: 'Enter', keyCode: 229, bubbles: true });
      assert.equal(await visit.get('composer').inputValue(), 'say sent too early');
      await visit.get('give-reason').waitFor({ state: 'detached' });
      await visit.get('approval-reason').fill('too much');
      await visit.get('approval-reason').press('Escape');
      await visit.cardIs('process_payment', 'denied');
    },
  ],
  [
    'approvals: a question that disappears on its own leaves the keyboard on the page, and on no other question',
    async (open, { servers }) => {
      const visit = await open({ server: servers.hasty });
      await visit.say('call process_payment {"amount":1,"recipient":"A"} && call process_payment {"amount":2,"recipient":"B"}');
      await visit.get('approval').first().waitFor();
      await visit.page.keyboard.press('Shift+Tab');
      await visit.get('deny').last().focus();
      await visit.cardIs('process_payment', 'failed');
      await visit.get('approval').first().waitFor({ state: 'detached' });
      await visit.until(
        () => visit.page.evaluate(() => document.activeElement?.id === 'message'),
        'the message field to have the focus',
      );
    },
  ],
  [
    'approvals: the keyboard goes from question to question, and back to the message field',
    async (open) => {
      const visit = await open();
      await visit.say('pay Hanako 50 dollars and Bob 20 dollars');
      await visit.get('approval').nth(1).waitFor();
      await visit.get('approval').first().focus();
      await visit.page.keyboard.press('Enter');
      await visit.get('approval').nth(1).waitFor({ state: 'detached' });
      await visit.page.keyboard.press('Escape');
      await visit.sees('Paid 50 USD to Hanako');
      await visit.answered();
      await visit.until(
        () => visit.page.evaluate(() => document.activeElement?.id === 'message'),
        'the message field to have the focus',
      );
      const kinds = await visit.audit('approval.approved', 'approval.denied');
      assert.deepEqual(kinds.sort(), ['approval.approved', 'approval.denied']);
    },
  ],
  [
    'approvals: a badge in the list tells of a question in another chat',
    async (open) => {
      const visit = await open();
      await visit.say('pay Hanako 50 dollars');
      await visit.get('approval').waitFor();
      await visit.get('new-chat').click();
      await visit.get('suggestions').waitFor();
      const item = visit.page.locator(`a[href="#${visit.chat}"]`);
      await item.getByTestId('chat-badge').waitFor();
      await item.click();
      await visit.get('approve').click();
      await visit.sees('Paid 50 USD');
      await item.getByTestId('chat-badge').waitFor({ state: 'detached' });
    },
  ],
  [
    'approvals: a question that nobody answers expires on its own, and the page shows it',
    async (open, world) => {
      const visit = await open({ server: world.servers.hasty });
      await visit.say('pay Hanako 50 dollars');
      await visit.cardIs('process_payment', 'failed');
      await visit.sees('the approval was not given in time');
      const kinds = await visit.audit('approval.requested', 'approval.expired', 'tool.started');
      assert.deepEqual(kinds, ['approval.requested', 'approval.expired']);
    },
  ],
  [
    'approvals: writing on withdraws a question',
    async (open) => {
      const visit = await open();
      await visit.say('pay Hanako 50 dollars');
      await visit.get('approval').waitFor();
      await visit.say('say never mind');
      await visit.sees('never mind');
      await visit.answered();
      await visit.get('approval').waitFor({ state: 'detached' });
      assert.deepEqual(await visit.audit('approval.superseded', 'tool.started'), ['approval.superseded']);
    },
  ],
  [
    'approvals: a question outlives the server, and an answer given while it is away arrives',
    async (open, world) => {
      const server = await startServer(world.binary);
      try {
        const visit = await open({ server });
        await visit.say('pay Hanako 50 dollars');
        await visit.get('approval').waitFor();
        await server.kill();
        await visit.get('connection').waitFor();
        await visit.picture('reconnecting');
        await visit.get('approve').click();
        await server.start();
        await visit.sees('Paid 50 USD to Hanako');
        await visit.get('connection').waitFor({ state: 'detached' });
        assert.deepEqual(await visit.audit('tool.started'), ['tool.started']);
        assert.equal(await visit.get('message-user').count(), 1);
      } finally {
        await server.stop();
      }
    },
  ],
  [
    'approvals: one of two tabs answers, and the other follows',
    async (open) => {
      const visit = await open();
      await visit.say('pay Hanako 50 dollars');
      await visit.get('approval').waitFor();
      const other = await visit.newTab();
      await visit.get('approve', other).click();
      await visit.sees('Paid 50 USD to Hanako', other);
      await visit.sees('Paid 50 USD to Hanako');
      await visit.cardIs('process_payment', 'done');
      assert.deepEqual(await visit.audit('tool.started', 'answer.refused'), ['tool.started']);
    },
  ],
];
