// What an agent asks the user for: input by ADK's own tool, and tools that the page has no program for.

import assert from 'node:assert/strict';

import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { accessible } from './look.mjs';
import { PHONE } from './browser.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const EVERYTHING = join(here, '../mcp/node_modules/@modelcontextprotocol/server-everything/dist/index.js');
const ELICIT = 'ts__trigger-elicitation-request';

const DIALECTS = { native: '', adk: '?dialect=adk' };

/** A server whose agent has tools that the page knows nothing about, and those of an MCP server. */
export const FORMS = `[demo]
pace = "0ms"
[[tools.mcp]]
name = "ts"
command = ${JSON.stringify(process.execPath)}
args = [${JSON.stringify(EVERYTHING)}]
[[agent.client_tools]]
name = "ask_colleague"
description = "Asks somebody who knows."
[[agent.client_tools]]
name = "book_seat"
description = "Books a seat in a train."
approval = true
[agent.client_tools.output_schema]
type = "object"
required = ["seat", "class"]
[agent.client_tools.output_schema.properties]
seat = { type = "integer", description = "Between 1 and 80.", minimum = 1, maximum = 80 }
class = { enum = ["first", "second"] }
window = { type = "boolean" }
remark = { type = "string" }
`;

const INPUT = {
  message: 'How many people come to the party?',
  response_schema: {
    type: 'object',
    properties: { guests: { type: 'integer' }, vegetarian: { type: 'boolean' } },
    required: ['guests'],
  },
};

const everywhere = Object.entries(DIALECTS).flatMap(([dialect, query]) => [
  [
    `forms: a tool that the page does not know is answered in words, in ${dialect}`,
    async (open, { servers }) => {
      const visit = await open({ server: servers.forms, query });
      await visit.say('call ask_colleague {"question":"Where is the key?"}');
      await visit.cardIs('ask_colleague', 'asked');
      await visit.card('ask_colleague').getByTestId('tool-input').getByText('Where is the key?').waitFor();
      // What was written is there again after a reload.
      await visit.get('answer-field').fill('under the mat');
      await visit.page.reload();
      await visit.until(async () => (await visit.get('answer-field').inputValue()) === 'under the mat', 'the words');
      await visit.get('answer-field').press('Enter');
      await visit.sees('under the mat');
      await visit.answered();
      await visit.cardIs('ask_colleague', 'done');
      const [, answer] = await visit.messages();
      assert.equal(outputOf(answer, 'ask_colleague'), 'under the mat');
    },
  ],
  [
    `forms: title and list tell of a form that waits, in ${dialect}`,
    async (open, { servers }) => {
      const visit = await open({ server: servers.forms, query });
      await visit.say('call ask_colleague {"question":"Where?"} && call book_seat {}');
      await visit.cardIs('ask_colleague', 'asked');
      const badge = visit
        .get('chat-item')
        .filter({ has: visit.page.locator('[aria-current=page]') })
        .getByTestId('chat-badge');
      await badge.getByText('2', { exact: true }).waitFor();
      await visit.until(async () => /^\(\d+\) /.test(await visit.page.title()), 'the title to tell');
      await visit.get('deny').click();
      await visit.get('answer-field').fill('at home');
      await visit.get('answer-send').click();
      await visit.sees('at home');
      await badge.waitFor({ state: 'detached' });
    },
  ],
  [
    `forms: an approved tool is answered by fields, in ${dialect}`,
    async (open, { servers }) => {
      const visit = await open({ server: servers.forms, query });
      await visit.say('call book_seat {"train":"Hikari 501"}');
      await visit.get('approve').click();
      await visit.cardIs('book_seat', 'asked');
      await visit.looksAgain();
      await visit.get('answer-send').click();
      await visit.until(async () => (await visit.get('field-problem').count()) === 2, 'both that are needed');
      assert.equal(await visit.page.evaluate(() => document.activeElement?.dataset.testid), 'answer-field-seat');
      await visit.get('answer-field-seat').fill('81');
      await visit.get('answer-field-class').selectOption('second');
      await visit.get('answer-send').click();
      await visit.get('field-problem').getByText('out of range').waitFor();
      if (dialect === 'native') await visit.picture('form');
      await visit.get('answer-field-seat').fill('12');
      await visit.get('answer-field-window').check();
      await visit.get('answer-send').click();
      await visit.cardIs('book_seat', 'done');
      await visit.answered();
      const [, answer] = await visit.messages();
      assert.deepEqual(outputOf(answer, 'book_seat'), { seat: 12, class: 'second', window: true });
      assert.deepEqual(await visit.audit('approval.approved', 'answer.refused'), ['approval.approved']);
    },
  ],
  [
    `forms: who declines says why, in ${dialect}`,
    async (open, { servers }) => {
      const visit = await open({ server: servers.forms, query });
      await visit.say('call ask_colleague');
      await visit.get('answer-decline').click();
      await visit.get('decline-reason').fill('nobody is here');
      await visit.get('decline-reason').press('Enter');
      await visit.sees('the user declined to answer: nobody is here');
      await visit.cardIs('ask_colleague', 'failed');
    },
  ],
  [
    `forms: a tool server asks while its tool runs, in ${dialect}`,
    async (open, { servers }) => {
      const visit = await open({ server: servers.forms, query });
      await visit.say(`call ${ELICIT} {}`);
      await visit.get('approve').click();
      await visit.cardIs('adk_request_input', 'asked');
      await visit.get('answer-server').getByText('“ts”').waitFor();
      await visit.page.reload();
      await visit.get('answer-field-name').fill('Ada');
      await visit.get('answer-field-integer').fill('7');
      await visit.get('answer-field-titledMultipleSelectEnum-2').check();
      if (dialect === 'native') {
        await visit.picture('tool-server');
        await accessible(visit, 'a question of a tool server');
      }
      await visit.get('answer-send').click();
      await visit.cardIs(ELICIT, 'done');
      await visit.answered();
      const [, answer] = await visit.messages();
      assert.match(JSON.stringify(outputOf(answer, ELICIT)), /Ada.*fish-3/s);
    },
  ],
  [
    `forms: an ADK agent asks for input and gets it, in ${dialect}`,
    async (open, { servers }) => {
      const visit = await open({ server: servers.adk, query });
      await visit.say(`call adk_request_input ${JSON.stringify(INPUT)}`);
      await visit.cardIs('adk_request_input', 'asked');
      await visit.get('announcer').getByText(INPUT.message).waitFor({ state: 'attached' });
      await visit.get('answer-field-guests').fill('7');
      await visit.get('answer-field-vegetarian').check();
      if (dialect === 'native') {
        await visit.picture('input');
        await accessible(visit, 'a form');
      }
      await visit.get('answer-field-guests').press('Enter');
      await visit.cardIs('adk_request_input', 'done');
      await visit.answered();
      const [, answer] = await visit.messages();
      assert.deepEqual(outputOf(answer, 'adk_request_input'), { guests: 7, vegetarian: true });
      await visit.sees(/adk_request_input=.*7/);
    },
  ],
]);

export const formTests = [
  ...everywhere,
  [
    'forms: a tool says how far it is',
    async (open, { servers }) => {
      const visit = await open({ server: servers.forms });
      await visit.say('call ts__trigger-long-running-operation {"duration":8,"steps":8}');
      await visit.get('tool-progress').getByRole('progressbar').waitFor();
      await visit.picture('tool-progress');
    },
  ],
  [
    'forms: a long-running tool of an ADK agent is answered as JSON, which is checked',
    async (open, { servers }) => {
      const visit = await open({ server: servers.adk });
      await visit.say('call pick_color {"question":"Which one?"}');
      await visit.cardIs('pick_color', 'asked');
      await visit.get('answer-json-toggle').click();
      await visit.get('answer-field').fill('{"color": "red"');
      await visit.get('answer-send').click();
      await visit.get('field-problem').getByText('not valid JSON').waitFor();
      await visit.get('answer-field').fill('{"color": "red"}');
      await visit.get('answer-send').click();
      await visit.sees(/pick_color=.*red/);
      const [, answer] = await visit.messages();
      assert.deepEqual(outputOf(answer, 'pick_color'), { color: 'red' });
    },
  ],
  [
    'forms: over the live connection, by the keyboard alone, in Japanese, on a phone',
    async (open, { servers }) => {
      const visit = await open({ server: servers.forms, locale: 'ja-JP', viewport: PHONE });
      await visit.get('mode').click();
      await visit.page.getByRole('menuitemradio', { name: 'ライブ' }).click();
      await visit.say('call book_seat {"train":"Hikari 501"}');
      await visit.get('approval').focus();
      await visit.page.keyboard.press('Enter');
      await visit.get('answer-field-seat').focus();
      await visit.page.keyboard.type('3');
      await visit.page.keyboard.press('Tab');
      await visit.page.keyboard.press('ArrowDown');
      await accessible(visit, 'a form on a phone');
      await visit.picture('form-phone-japanese');
      await visit.get('answer-field-seat').press('Enter');
      await visit.cardIs('book_seat', 'done');
      await visit.answered();
      const [, answer] = await visit.messages();
      assert.deepEqual(outputOf(answer, 'book_seat'), { seat: 3, class: 'first', window: false });
    },
  ],
  [
    'forms: an answer that the network lost is sent when it is back, and writing on withdraws a question',
    async (open, { servers }) => {
      const visit = await open({ server: servers.forms });
      await visit.say('call ask_colleague');
      await visit.get('answer-field').fill('in the drawer');
      await visit.context.setOffline(true);
      await visit.get('answer-send').click();
      await visit.get('error').waitFor();
      await visit.context.setOffline(false);
      await visit.sees('in the drawer');
      await visit.answered();
      await visit.say('call ask_colleague {"question":"And now?"}');
      await visit.get('answer-form').waitFor();
      await visit.say('say never mind');
      await visit.sees('never mind');
      await visit.answered();
      await visit.get('answer-form').waitFor({ state: 'detached' });
    },
  ],
];

function outputOf(message, tool) {
  return message.parts.find(({ type }) => type === `tool-${tool}`)?.output;
}
