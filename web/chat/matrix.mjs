// What an agent can do, with every one of Google's servers behind the bridge. Where a server cannot do it, the test's name says so.

import assert from 'node:assert/strict';

import { approveBoth } from './remote-agents.mjs';
import { Session, nameOf, show, toolsOf } from './session.mjs';

const PAY = 'call pay {"amount":50,"recipient":"Hanako"}';
const SEARCH = 'call search {"query":"all users"}';
const PICK = 'call pick_color {"question":"which?"}';
const WEATHER = 'call get_weather {"city":"Tokyo"}';
const PIXEL =
  'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==';

const isTypeScript = (server) => server.name.startsWith('@google');

/**
 * Each row is a name, what is played, and what a server cannot do of it: a short sentence, or undefined. It is played with the
 * `server`, which is the row of the table of servers, and with that sentence.
 */
const ROWS = [
  [
    'text',
    async (session) => {
      await session.say('say one two three');
      assert.equal(session.text.trim(), 'one two three');
      await session.check({ posts: 1 });
    },
  ],
  [
    'thoughts',
    async (session) => {
      await session.say('think so it is | hello');
      assert.equal(session.text.trim(), 'hello');
      const thoughts = session.message.parts.filter((part) => part.type === 'reasoning').map((part) => part.text);
      assert.deepEqual(thoughts, ['so it is'], show(session.message));
      await session.check({ posts: 1 });
    },
  ],
  [
    'a tool',
    async (session) => {
      await session.say(WEATHER);
      assert.deepEqual(session.tool('get_weather').output, { city: 'Tokyo', weather: 'sunny' });
      assert.match(session.text, /get_weather=.*sunny/);
      await session.check({ posts: 1 });
    },
  ],
  [
    'a tool that fails',
    async (session, { cannot }) => {
      await session.say('call explode {"reason":"on purpose"}');
      if (cannot) {
        assert.match(session.chat.error.message, /the tool exploded: on purpose/);
        session.chat.clearError();
      } else {
        assert.match(show(session.tool('explode')), /the tool exploded: on purpose/);
        assert.match(session.text, /explode=.*on purpose/);
      }
      await session.say('say still here');
      assert.equal(session.text.trim(), 'still here');
    },
    (server) => (isTypeScript(server) ? undefined : 'the server ends the run, and its model does not learn why'),
  ],
  ...[
    ['approved', true, 'output-available', /pay=.*"paid": ?50/],
    ['denied', false, 'output-denied', /pay=.*rejected/],
  ].map(([name, approved, state, text]) => [
    `a confirmation, ${name}`,
    async (session) => {
      await session.say(PAY);
      await session.answer('pay', approved);
      await session.rest();
      assert.equal(session.tool('pay').state, state, show(session.message));
      assert.match(session.text, text);
      await session.check({ posts: 2 });
    },
  ]),
  [
    'two confirmations',
    async (session) => {
      await session.say(`${PAY} && ${SEARCH}`);
      await session.answer('search', false);
      await session.answer('pay', true);
      await session.rest();
      assert.equal(session.tool('pay').state, 'output-available', show(session.message));
      assert.equal(session.tool('search').state, 'output-denied', show(session.message));
      assert.match(session.text, /"paid": ?50/);
      await session.check();
    },
  ],
  [
    'a plain tool and a confirmation',
    async (session, { cannot }) => {
      await session.say(`${WEATHER} && ${PAY}`);
      await session.answer('pay', true);
      await session.rest();
      assert.equal(session.tool('pay').state, 'output-available', show(session.message));
      assert.match(session.text, /"paid": ?50/);
      const weather = session.tool('get_weather');
      if (cannot) assert.equal(weather.output?.weather, undefined, show(weather));
      else assert.equal(weather.output.weather, 'sunny', show(session.message));
      await session.check();
    },
    (server) => (isTypeScript(server) ? 'the server never sends the result of the plain tool' : undefined),
  ],
  [
    'a client tool',
    async (session) => {
      await session.say(PICK);
      await session.output('pick_color', { color: 'red' });
      await session.rest();
      // In dialect adk an output alone is sent by the page.
      if (session.isAdk) await sendAgain(session);
      assert.match(session.text, /pick_color=.*red/);
      await session.check({ posts: 2 });
    },
  ],
  [
    'artifacts',
    async (session, { cannot, bridge }) => {
      await session.say('call save_note {"note":"milk"}');
      const files = session.message.parts.filter((part) => part.type === 'file' || part.type === 'data-image');
      assert.equal(files.length, cannot ? 1 : 2, show(session.message));
      const note = files.find((file) => file.mediaType === 'text/plain');
      assert.equal(await (await fetch(new URL(note.url, bridge.url))).text(), 'milk');
      await session.check({ posts: 1 });
    },
    (server) => (server.name.startsWith('google-adk 1') ? 'the server loses the one whose name has a slash' : undefined),
  ],
  [
    'an image reaches the agent',
    async (session) => {
      await session.say('say nice', { files: [{ type: 'file', mediaType: 'image/png', url: PIXEL }] });
      await session.say('history');
      assert.match(session.text, /user:image\/png/);
    },
  ],
  [
    'sub-agents',
    async (session, { server }) => {
      const argument = isTypeScript(server) ? 'agentName' : 'agent_name';
      await session.say(`call transfer_to_agent {"${argument}":"helper"}`);
      assert.equal(session.message.metadata.author, 'helper', show(session.message));
      await session.check();
    },
  ],
  [
    'regenerate and edit',
    async (session) => {
      await session.say('say my color is red');
      await session.say('history');
      await session.chat.regenerate();
      await session.rest();
      assert.match(session.text, /my color is red/);
      await session.say('say second');
      const [first] = session.chat.messages;
      void session.chat.sendMessage({ text: 'say my color is blue', messageId: first.id });
      await session.rest();
      await session.say('history');
      assert.match(session.text, /my color is blue/);
      assert.doesNotMatch(session.text, /my color is red|second/);
      await session.check();
    },
  ],
];

/** The same with other apps, which there are for Python only: the app comes first. */
const TEAMS = [
  [
    'team',
    'two agents ask at once',
    askAtOnce,
    (server) => (server.name.startsWith('google-adk 1') ? 'the server runs neither tool' : undefined),
  ],
  [
    'team_resumable',
    'two agents ask at once, in a resumable app',
    askAtOnce,
    (server) => (server.name === 'google-adk 1.18.0' ? 'the server runs neither tool' : undefined),
  ],
];

async function askAtOnce(session, { cannot }) {
  const calls = await approveBoth(session);
  const outcomes = calls.map((part) => (part.state === 'output-error' ? part.errorText : part.output.paid));
  const outcome = cannot ? 'the agent reported no result for this call' : 50;
  assert.deepEqual(outcomes, [outcome, outcome], show(session.message));
  await session.check({ posts: 2 });
}

/** Played in three steps with one restart of the server between them: what every chat has asked, and what becomes of it. */
const LOST = [
  [
    'a session is lost',
    'say bye',
    async (session) => {
      await session.say('history');
      assert.match(session.text, /my color is red/);
      assert.match(session.text, /bye/);
    },
  ],
  [
    'the server restarts before an approval',
    PAY,
    async (session) => {
      await session.answer('pay', true);
      await session.rest();
      assert.equal(session.tool('pay').state, 'output-error', show(session.message));
      assert.match(session.tool('pay').errorText, /lost the conversation/);
    },
  ],
  [
    'the server restarts before a denial',
    PAY,
    async (session) => {
      await session.answer('pay', false);
      await session.rest();
      assert.equal(session.tool('pay').state, 'output-denied', show(session.message));
    },
  ],
  [
    'the server restarts before an output',
    PICK,
    async (session) => {
      await session.output('pick_color', { color: 'red' });
      await session.rest();
      if (session.isAdk) await sendAgain(session);
      assert.match(session.text, /red/);
    },
  ],
];

/** In dialect adk the page sends. */
async function sendAgain(session) {
  void session.chat.sendMessage();
  await session.rest();
}

export const DIALECTS = ['native', 'adk'];

/** The apps of a server that rows are played with, in addition to the scripted one. */
export function appsOf(server) {
  return isTypeScript(server) ? [] : TEAMS.map(([app]) => app);
}

/** The tests of one server, for one client and both dialects; `context` is complete before the first of them runs. */
export function rowsOf(server, context) {
  const rows = [...ROWS.map((row) => ['bridge', ...row]), ...(isTypeScript(server) ? [] : TEAMS)];
  return DIALECTS.flatMap((dialect) =>
    rows.map(([bridge, name, play, cannotOn = () => undefined]) => {
      const cannot = cannotOn(server);
      const open = (kit) => new Session(context[bridge], kit, { dialect: dialect === 'native' ? undefined : dialect });
      return [named(`${dialect}: ${name}`, cannot), (kit) => play(open(kit), { server, cannot, ...context })];
    }),
  );
}

/** The name of a test, with what cannot be done of it. */
export function named(name, cannot) {
  return cannot ? `${name} (${cannot})` : name;
}

/** Restarts a server while chats of all clients wait for something. */
export async function loseSessions(kits, { adk, bridge }) {
  const chats = kits.flatMap((kit) =>
    DIALECTS.flatMap((dialect) =>
      LOST.map(([name, ask, goOn]) => ({
        name: `${kit.name}, ${dialect}: ${name}`,
        session: new Session(bridge, kit, { dialect: dialect === 'native' ? undefined : dialect }),
        ask,
        goOn,
      })),
    ),
  );
  const inGroups = async (play) => {
    for (let at = 0; at < chats.length; at += 4) await Promise.all(chats.slice(at, at + 4).map(play));
  };
  await inGroups(async ({ session, ask }) => {
    await session.say('say my color is red');
    await session.say(ask);
  });
  await adk.restart();
  await inGroups(async ({ name, session, goOn }) => {
    try {
      await goOn(session);
      await session.check();
      await session.say('history');
      assert.match(session.text, /my color is red/);
      await session.say('say still here');
      assert.equal(session.text.trim(), 'still here');
      const ran = toolsOf(session.chat.messages[3]).filter((part) => nameOf(part) === 'pay' && part.output?.paid);
      assert.deepEqual(ran, [], 'something ran that was approved for a lost conversation');
    } catch (error) {
      throw new Error(`${name}: ${error.message}`, { cause: error });
    }
  });
}
