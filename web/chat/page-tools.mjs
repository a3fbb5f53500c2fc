// Tools that a page declares in its requests: stock chats send them in the `body` of their transport.

import assert from 'node:assert/strict';

import { Session, show } from './session.mjs';

const TOOLS = [
  {
    name: 'open_tab',
    description: 'Opens a tab of the page.',
    inputSchema: { type: 'object', properties: { tab: { type: 'string' } }, required: ['tab'] },
  },
  { name: 'close_tab', approval: true },
];
const OPEN = 'call open_tab {"tab":"mail"}';
const CLOSE = 'call close_tab {"tab":"mail"}';

/** Runs what the model calls without a question. */
const runs = ({ toolCall }, session) => {
  const { toolCallId, toolName, input } = toolCall;
  if (toolName === 'open_tab') void session.chat.addToolOutput({ tool: toolName, toolCallId, output: { opened: input.tab } });
};

export const pageToolTests = [
  [
    'page tools, run by onToolCall',
    async (kit, { usual }) => {
      const session = new Session(usual, kit, { body: { tools: TOOLS }, onToolCall: runs });
      await session.say(`${OPEN} then call open_tab {"tab":"news"}`);
      assert.deepEqual(
        session.tools.map((part) => part.output),
        [{ opened: 'mail' }, { opened: 'news' }],
        show(session.message),
      );
      assert.match(session.text, /news/);
      await session.check({ posts: 3 });
    },
  ],
  [
    'page tools, approved and denied',
    async (kit, { usual }) => {
      const session = new Session(usual, kit, { body: { tools: TOOLS } });
      await session.say(CLOSE);
      await session.answer('close_tab', true);
      await session.output('close_tab', { closed: true });
      await session.rest();
      assert.deepEqual(session.tool('close_tab').output, { closed: true });
      await session.say(CLOSE);
      await session.answer('close_tab', false);
      await session.rest();
      assert.equal(session.tool('close_tab').state, 'output-denied');
      await session.check();
    },
  ],
  [
    'page tools, next to a tool of the agent',
    async (kit, { usual }) => {
      const session = new Session(usual, kit, { body: { tools: TOOLS }, onToolCall: runs });
      await session.say(`${OPEN} && call get_weather {"location":"Tokyo"}`);
      assert.deepEqual(session.tool('open_tab').output, { opened: 'mail' });
      assert.equal(session.tool('get_weather').state, 'output-available');
      await session.check();
    },
  ],
  [
    'page tools, a page that declares none keeps those of the chat',
    async (kit, { usual }) => {
      const session = new Session(usual, kit, { body: { tools: TOOLS } });
      await session.say('say hello');
      const page = await session.reload({ body: {}, onToolCall: runs });
      await page.rest();
      await page.say(OPEN);
      assert.deepEqual(page.tool('open_tab').output, { opened: 'mail' });
      await page.check();
    },
  ],
  [
    'page tools, a name that the agent has',
    async (kit, { usual }) => {
      const session = new Session(usual, kit, { body: { tools: [{ name: 'get_weather' }] } });
      await session.say('say hello');
      assert.match(session.chat.error.message, /get_weather/);
    },
  ],
];
