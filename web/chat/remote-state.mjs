// What front ends and the configuration hand in to an ADK agent: the state of its session, and results that come later.

import assert from 'node:assert/strict';

import { Session, show } from './session.mjs';

export const stateTests = [
  [
    'an instruction gets what the configuration and the page hand in',
    async (kit, { greeter }) => {
      const session = new Session(greeter, kit, { body: { state: { page: 'the cart' } } });
      await session.say('hello');
      assert.equal(session.text.trim(), 'Help local with the cart as .', `${session.chat.error}`);
      await session.say('hello again');
      assert.equal(session.text.trim(), 'Help local with the cart as .');
      void session.chat.sendMessage(
        { text: 'and now' },
        { body: { stateDelta: { role: 'admin' }, customMetadata: { trace: 't1' } } },
      );
      await session.rest();
      assert.equal(session.text.trim(), 'Help local with the cart as admin.', `${session.chat.error}`);
      assert.equal(session.message.metadata.customMetadata?.trace, 't1', show(session.message.metadata));
      await session.chat.regenerate();
      await session.rest();
      assert.match(session.text, /^Help local with the cart as /);
      await session.check();
    },
  ],
  [
    'a page may not set the state of all users',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit, { body: { state: { 'app:motto': 'x' } } });
      await session.say('hello');
      assert.match(session.chat.error.message, /app:motto/);
    },
  ],
];

const ORDER = 'call order {"what":"tea"}';
const DELIVERED = { output: { status: 'delivered' } };

/** Orders something; resolves to the call, whose result is to come. */
async function order(session) {
  await session.say(ORDER);
  assert.deepEqual(session.tool('order').output, { status: 'pending', what: 'tea' });
  return session.tool('order').toolCallId;
}

/** What a page finds when it is loaded until the last message is a reply that has ended. */
async function loaded(session, number) {
  await session.until(async () => (await session.server.messages(session.id)).length >= number, `${number} messages`);
  const page = await session.reload();
  await page.rest();
  return page;
}

export const laterTests = ['scripted', 'resumable'].flatMap((app) => [
  [
    `${app}: a result that comes later continues the chat`,
    async (kit, servers) => {
      const session = new Session(servers[app], kit);
      const toolCallId = await order(session);
      const taken = await servers[app].toolOutput(session.id, { toolCallId, ...DELIVERED });
      assert.equal(taken.status, 204, await taken.text());
      const page = await loaded(session, 3);
      assert.deepEqual(page.tool('order').output, DELIVERED.output, show(page.message));
      assert.equal(page.tool('order').callProviderMetadata.adk.resultOf, toolCallId);
      assert.match(page.text, /order=.*delivered/);
      await page.check();
      const again = await servers[app].toolOutput(session.id, { toolCallId, output: { status: 'lost' } });
      assert.equal(again.status, 409);
      await page.say('history');
      assert.equal(page.text.match(/delivered/g)?.length, 2, page.text);
      await page.check({ posts: 1 });
    },
  ],
  [
    `${app}: a result comes while a question waits, and while the agent answers`,
    async (kit, servers) => {
      const session = new Session(servers[app], kit);
      const first = await order(session);
      const second = await order(session);
      await session.say('call pay {"amount":50}');
      const taken = await servers[app].toolOutput(session.id, { toolCallId: first, ...DELIVERED });
      assert.equal(taken.status, 204, await taken.text());
      const page = await loaded(session, 7);
      await page.until(async () => (await servers[app].messages(session.id)).length === 7, 'the reply to the result');
      const asked = page.chat.messages[5];
      assert.equal(asked.parts.at(-1).state, 'approval-requested', show(page.chat.messages));
      assert.match(page.text, /order=.*delivered/);
      void page.chat.sendMessage({ text: 'pause 1' });
      await page.until(() => page.text.includes('before'), 'the first words');
      const late = await servers[app].toolOutput(session.id, { toolCallId: second, errorText: 'sold out' });
      assert.equal(late.status, 204, await late.text());
      await page.rest();
      const last = await loaded(page, 10);
      assert.equal(last.tool('order').state, 'output-error', show(last.message));
      assert.match(last.text, /order=.*sold out/);
      await last.say('say still here');
      assert.equal(last.text.trim(), 'still here');
    },
  ],
]);

export const lostStateTests = [
  [
    'both restart before a result comes',
    async (kit, { startAdk, startBridge }) => {
      const adk = await startAdk();
      const bridge = await startBridge('scripted', adk);
      const session = new Session(bridge, kit);
      const toolCallId = await order(session);
      await session.say('say something else');
      await adk.restart();
      await bridge.restart();
      const taken = await bridge.toolOutput(session.id, { toolCallId, ...DELIVERED });
      assert.equal(taken.status, 204, await taken.text());
      const page = await loaded(session, 5);
      assert.deepEqual(page.tool('order').output, DELIVERED.output, show(page.message));
      assert.match(page.text, /delivered/);
      await page.check();
    },
  ],
  [
    'the ADK server forgets a session that had a state',
    async (kit, { startAdk, startBridge }) => {
      const adk = await startAdk();
      const bridge = await startBridge('greeter', adk, '', 'state = { user_name = "{user}" }\n');
      const session = new Session(bridge, kit, { body: { state: { page: 'the cart' } } });
      void session.chat.sendMessage({ text: 'hello' }, { body: { stateDelta: { role: 'admin' } } });
      await session.rest();
      assert.equal(session.text.trim(), 'Help local with the cart as admin.', `${session.chat.error}`);
      await adk.restart();
      const page = await session.reload({ body: {} });
      await page.rest();
      await page.say('still there?');
      assert.equal(page.text.trim(), 'Help local with the cart as admin.', `${page.chat.error}`);
      await page.check();
    },
  ],
];
