// A budget: a quiet line while there is something left, and a clear message with the time when it is used up.

import assert from 'node:assert/strict';

import { PHONE } from './browser.mjs';
import { accessible } from './look.mjs';
import { startServer } from './server.mjs';

const FAST = '[demo]\npace = "0ms"\n';
const SMALL = '[budget]\ntokens_per_day = 600\ncost_per_day = 5\ncurrency = "USD"\nprice = { input = 1, output = 2 }\n';

export const budgetTests = [
  ...['light', 'dark'].flatMap((colorScheme) =>
    [undefined, PHONE].map((viewport) => [
      `budget: what is left is a quiet line, and when nothing is left the page says until when, ${colorScheme}, ${viewport ? 'phone' : 'desktop'}`,
      async (open, { binary }) => {
        const server = await startServer(binary, `${FAST}${SMALL}`);
        try {
          const visit = await open({ server, colorScheme, ...(viewport && { viewport }) });
          const name = `${colorScheme}-${viewport ? 'phone' : 'desktop'}`;
          await visit.get('budget').waitFor();
          await visit.say('say hi');
          await visit.answered();
          await visit
            .get('budget')
            .getByText(/Today: [1-9]\d* of 600 tokens · 0\.0\d* of 5\.00 USD\. Begins again /)
            .waitFor();
          await accessible(visit, 'budget');
          await visit.picture(`budget-${name}`);
          await visit.say(`say ${'word '.repeat(700)}`);
          await visit.answered();
          const notice = visit.get('budget-used-up');
          await notice
            .getByText(/Today’s budget is used up \(.* of 600 tokens\)\. New messages can be sent from .*\d:\d\d/)
            .waitFor();
          assert.equal(await visit.get('budget').count(), 0);
          // It is refused, and nothing of it is lost: the message stays until it can be sent.
          await visit.say('say more');
          await visit.get('error').getByText('budget.tokens_per_day').waitFor();
          await accessible(visit, 'budget that is used up');
          await visit.picture(`budget-used-up-${name}`);
        } finally {
          await server.stop();
        }
      },
    ]),
  ),
  [
    'budget: without one nothing is shown, and nothing is asked for again',
    async (open) => {
      const visit = await open();
      let asked = 0;
      visit.page.on('request', (request) => (asked += request.url().endsWith('/api/budget') ? 1 : 0));
      await visit.page.reload();
      await visit.get('composer').waitFor();
      await visit.say('say hi');
      await visit.answered();
      await visit.say('say bye');
      await visit.answered();
      for (const id of ['budget', 'budget-used-up']) assert.equal(await visit.get(id).count(), 0, id);
      assert.equal(asked, 1);
    },
  ],
];
