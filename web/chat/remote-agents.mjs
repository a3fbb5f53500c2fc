// Kinds of agents that an ADK server may run: several at once, workflows, agents that are no model, tools that want more than a yes.

import assert from 'node:assert/strict';

import { Session, show, toolsOf } from './session.mjs';

const PAY = 'call pay {"amount":50}';
const PICK = 'call pick_color {}';
const DAYS = 'call take_days {"days":5}';

export const agentTests = [
  [
    'agents that speak at once have a text each',
    async (kit, { crew }) => {
      const session = new Session(crew, kit);
      await session.say('call get_weather {"city":"Rome"}');
      assert.deepEqual(textsOf(session).sort(), [
        'Results: get_weather={"city": "Rome", "weather": "sunny"} ',
        'eins zwei drei vier ',
        'one two three four five six ',
      ]);
      assert.equal(session.tool('get_weather').state, 'output-available');
      await session.check({ posts: 1 });
    },
  ],
  [
    'what an agent says twice in a row are two texts',
    async (kit, { crew }) => {
      const session = new Session(crew, kit);
      await session.say('announce Looking. | Found it.');
      assert.deepEqual(textsOf(session), ['Looking.', 'Found it.']);
      await session.check({ posts: 1 });
    },
  ],
  ...['team', 'team_resumable'].flatMap((app) =>
    ['native', 'adk'].map((dialect) => [
      `${app}: two agents ask at once while a third one speaks, and both run what was approved, in dialect ${dialect}`,
      async (kit, context) => {
        const session = new Session(context[app], kit, { dialect: dialect === 'native' ? undefined : dialect });
        const paid = await approveBoth(session);
        assert.deepEqual(
          paid.map((part) => part.output?.paid),
          [50, 50],
          show(session.message),
        );
        const results = textsOf(session).filter((text) => /"paid": 50/.test(text));
        assert.equal(results.length, 2, show(session.message));
        await session.check({ posts: 2 });
      },
    ]),
  ),
  [
    'a workflow that is resumed runs what was approved next to a client tool, and goes on',
    async (kit, { line }) => {
      const session = new Session(line, kit);
      await session.say(`${PICK} && ${PAY}`);
      await session.answer('pay', true);
      await session.output('pick_color', { color: 'red' });
      await session.rest();
      assert.equal(session.tool('pay').output?.paid, 50, show(session.message));
      assert.match(session.text, /That was all\./);
      await session.check();
    },
  ],
  ...['native', 'adk'].flatMap((dialect) =>
    [
      ['approved', PAY, (session) => session.answer('pay', true), { pay: 'output-available' }, /"paid": 50/],
      ['denied', PAY, (session) => session.answer('pay', false), { pay: 'output-denied' }, /rejected/],
      ['supplied', PICK, (session) => session.output('pick_color', { color: 'red' }), { pick_color: 'output-available' }, /red/],
    ].map(([what, ask, answer, states, said]) => [
      `what an agent of another server asks over A2A is ${what}, in dialect ${dialect}`,
      async (kit, { near }) => {
        const session = new Session(near, kit, { dialect: dialect === 'native' ? undefined : dialect });
        await session.say(ask);
        await answer(session);
        await session.rest();
        // In dialect adk an output alone is sent by the page.
        if (dialect === 'adk' && ask === PICK) {
          void session.chat.sendMessage();
          await session.rest();
        }
        for (const [tool, state] of Object.entries(states)) assert.equal(session.tool(tool).state, state, show(session.message));
        assert.match(session.text, said, show(session.message));
        await session.check({ posts: 2 });
      },
    ]),
  ),
  [
    'a workflow asks its user, and its result is the answer',
    async (kit, { flow }) => {
      const session = new Session(flow, kit);
      await session.say('count');
      await session.output('adk_request_input', 3);
      await session.rest();
      assert.match(session.text, /^\{"counted":.*3.*\}$/, show(session.message));
      assert.equal(session.message.metadata.author, 'flow');
      await session.check();
    },
  ],
  [
    'a long-running tool that tells how things stand is not answered for',
    async (kit, { scripted, resumable }) => {
      for (const server of [scripted, resumable]) {
        const session = new Session(server, kit);
        await session.say('call order {"what":"tea"}');
        assert.deepEqual(session.tool('order').output, { status: 'pending', what: 'tea' });
        assert.equal(textsOf(session).length, 1, show(session.message));
        await session.say('history');
        assert.equal(session.text.match(/user:order=/g).length, 1, session.text);
        await session.check({ posts: 2 });
      }
    },
  ],
  ...[
    ['approved', PAY, (session) => session.answer('pay', true), { pay: 'output-available' }, /"paid": 50/],
    ['denied', PAY, (session) => session.answer('pay', false), { pay: 'output-denied' }, /rejected/],
    ['supplied', PICK, (session) => session.output('pick_color', { color: 'red' }), { pick_color: 'output-available' }, /red/],
  ].flatMap(([name, request, act, states, text]) =>
    ['scripted', 'resumable'].map((app) => [
      `${app}: an agent that was called like a tool asks, ${name}`,
      async (kit, context) => {
        const session = new Session(context[app], kit);
        await session.say(`call clerk ${JSON.stringify({ request })}`);
        await act(session);
        await session.rest();
        for (const [tool, state] of Object.entries({ ...states, clerk: 'output-available' })) {
          assert.equal(session.tool(tool).state, state, show(session.message));
        }
        assert.match(session.text, text);
        await session.check({ posts: 2 });
      },
    ]),
  ),
  ...[
    ['goes back as it was', true, undefined, /"granted": 1\b/],
    ['is filled in', true, { granted: 4 }, /"granted": 4\b/],
    ['goes back with a denial too', false, undefined, /rejected/],
  ].map(([name, approved, payload, text]) => [
    `what a tool wants filled in ${name}`,
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say(DAYS);
      const { toolCallId } = session.tool('take_days');
      assert.deepEqual(session.message.metadata.questions[toolCallId], { hint: 'How many days?', payload: { granted: 1 } });
      if (payload === undefined) await session.answer('take_days', approved);
      else await fillIn(session, payload);
      await session.rest();
      assert.match(session.text, text);
      await session.check({ posts: 2 });
    },
  ]),
  [
    'what a tool wants filled in, in dialect adk',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit, { dialect: 'adk' });
      await session.say(DAYS);
      const { toolConfirmation } = session.tool('adk_request_confirmation').input;
      assert.deepEqual(toolConfirmation, { hint: 'How many days?', confirmed: false, payload: { granted: 1 } });
      await fillIn(session, { granted: 2 });
      await session.rest();
      assert.match(session.text, /"granted": 2\b/);
      await session.check({ posts: 2 });
    },
  ],
];

/** Two agents ask at once while a third one speaks; returns the calls that were approved, when the chat is at rest. */
export async function approveBoth(session) {
  await session.say(PAY);
  const words = Array.from({ length: 12 }, (_, number) => `word${number} `).join('');
  if (!session.isAdk) assert.deepEqual(textsOf(session), [words]);
  for (let asked = 0; asked < 2; asked++) await session.answer('pay', true);
  await session.rest();
  assert.ok(textsOf(session).includes(words), show(session.message));
  return toolsOf(session.message).filter((part) => part.type === 'tool-pay');
}

/** What a form on the page does: it writes what the user entered next to the approval, and sends. */
async function fillIn(session, payload) {
  const messages = structuredClone(session.chat.messages);
  const part = toolsOf(messages.at(-1)).find((tool) => tool.state === 'approval-requested');
  Object.assign(part, { state: 'approval-responded', approval: { ...part.approval, approved: true, payload } });
  session.chat.messages = messages;
  void session.chat.sendMessage();
}

function textsOf(session) {
  return session.message.parts.filter((part) => part.type === 'text').map((part) => part.text);
}
