// What holds with any ADK server behind the bridge; the server is Google's, only its model is scripted.

import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { agentOf, startAdkServer } from './adk-server.mjs';
import { agentTests } from './remote-agents.mjs';
import { laterTests, lostStateTests, stateTests } from './remote-state.mjs';
import { startServer } from './server.mjs';
import { Session, nameOf, show, textOf, toolsOf } from './session.mjs';

const PAY = 'call pay {"amount":50,"recipient":"Hanako"}';
const SEARCH = 'call search {"query":"all users"}';
const PICK = 'call pick_color {"question":"which?"}';
const CREDENTIAL = 'adk_request_credential';
const WEATHER = 'call get_weather {"city":"Tokyo"}';

/**
 * Each round answers all questions of one pause and supplies outputs; `states` and `text` are what the reply comes to.
 * They are played with an app that pauses properly for long-running tools, and with one that does not.
 */
const CONVERSATIONS = [
  { name: 'a plain tool', say: WEATHER, rounds: [], states: { get_weather: 'output-available' }, text: /get_weather=.*sunny/ },
  {
    name: 'two plain tools',
    say: `${WEATHER} then call set_mood {"mood":"good"}`,
    rounds: [],
    states: { get_weather: 'output-available', set_mood: 'output-available' },
    text: /set_mood=/,
  },
  {
    name: 'approved',
    say: PAY,
    rounds: [{ answers: { pay: true } }],
    states: { pay: 'output-available' },
    text: /pay=.*"paid": 50/,
  },
  { name: 'denied', say: PAY, rounds: [{ answers: { pay: false } }], states: { pay: 'output-denied' }, text: /pay=.*rejected/ },
  {
    name: 'two at once, answered differently',
    say: `${PAY} && ${SEARCH}`,
    rounds: [{ answers: { search: false, pay: true } }],
    states: { pay: 'output-available', search: 'output-denied' },
    text: /"paid": 50.*search=.*rejected/,
  },
  {
    name: 'one after the other',
    say: `${PAY} then ${SEARCH}`,
    rounds: [{ answers: { pay: true } }, { answers: { search: true } }],
    states: { pay: 'output-available', search: 'output-available' },
    text: /search=.*all users/,
  },
  {
    name: 'a client tool',
    say: PICK,
    rounds: [{ outputs: { pick_color: { color: 'red' } } }],
    states: { pick_color: 'output-available' },
    text: /pick_color=.*red/,
  },
  {
    name: 'a client tool whose output is no object',
    say: PICK,
    rounds: [{ outputs: { pick_color: 'red' } }],
    states: { pick_color: 'output-available' },
    text: /pick_color=.*"result": "red"/,
  },
  {
    name: 'a confirmation and a client tool',
    say: `${PAY} && ${PICK}`,
    rounds: [{ answers: { pay: true }, outputs: { pick_color: { color: 'red' } } }],
    states: { pay: 'output-available', pick_color: 'output-available' },
    text: /"paid": 50/,
  },
  {
    name: 'a denial and a client tool',
    say: `${PAY} && ${PICK}`,
    rounds: [{ answers: { pay: false }, outputs: { pick_color: { color: 'red' } } }],
    states: { pay: 'output-denied', pick_color: 'output-available' },
    text: /rejected/,
  },
  {
    name: 'a plain tool and a confirmation',
    say: `${WEATHER} && ${PAY}`,
    rounds: [{ answers: { pay: true } }],
    states: { get_weather: 'output-available', pay: 'output-available' },
    text: /"paid": 50/,
  },
  {
    name: 'a question for input',
    say: 'call adk_request_input {"message":"how many?","response_schema":{"type":"integer"}}',
    rounds: [{ outputs: { adk_request_input: 3 } }],
    states: { adk_request_input: 'output-available' },
    text: /adk_request_input=.*3/,
  },
];

const conversationTests = ['scripted', 'resumable'].flatMap((app) =>
  CONVERSATIONS.flatMap((conversation) =>
    dialectsOf(conversation).map((dialect) => [
      `${app}, ${dialect}: ${conversation.name}`,
      (kit, context) => play(kit, context[app], conversation, dialect),
    ]),
  ),
);

/** In dialect `adk` an output alone is never sent. */
function dialectsOf({ rounds }) {
  return rounds.every(({ answers }) => answers !== undefined) ? ['native', 'adk'] : ['native'];
}

async function play(kit, server, { say, rounds, states, text }, dialect) {
  const session = new Session(server, kit, { dialect });
  await session.say(say);
  for (const { answers = {}, outputs = {} } of rounds) {
    for (const [tool, output] of Object.entries(outputs)) await session.output(tool, output);
    for (const [tool, verdict] of Object.entries(answers)) await session.answer(tool, verdict);
    await session.rest();
  }
  for (const [tool, state] of Object.entries(states)) assert.equal(session.tool(tool).state, state, show(session.message));
  assert.match(session.text, text);
  await session.check();
  await session.say('say still here');
  assert.equal(session.text.trim(), 'still here');
}

const contentTests = [
  [
    'text arrives word by word, and once',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('say one two three four five');
      assert.equal(session.text, 'one two three four five ');
      const deltas = session.streams[0].filter((chunk) => chunk.type === 'text-delta').map((chunk) => chunk.delta);
      assert.deepEqual(deltas, ['one ', 'two ', 'three ', 'four ', 'five ']);
      assert.equal(session.message.metadata.author, 'scripted');
      assert.equal(session.message.metadata.usage.totalTokens, 10);
      await session.check({ posts: 1 });
    },
  ],
  [
    'the session remembers',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('say hello');
      await session.say('history');
      assert.equal(session.text.trim(), 'user:say hello | model:hello');
    },
  ],
  [
    'two chats at once keep apart',
    async (kit, { scripted }) => {
      const sessions = [1, 2, 3].map(() => new Session(scripted, kit));
      await Promise.all(sessions.map((session, index) => session.say(`say number ${index}`)));
      await Promise.all(sessions.map((session) => session.say('history')));
      sessions.forEach((session, index) => assert.equal(session.text.trim(), `user:say number ${index} | model:number ${index}`));
    },
  ],
  [
    'artifacts are files, and state is metadata',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('call save_note {"note":"milk"} then call set_mood {"mood":"good"}');
      const files = session.message.parts.filter((part) => part.type === 'file');
      assert.deepEqual(files.map((file) => file.mediaType).sort(), ['image/png', 'text/plain']);
      const note = files.find((file) => file.mediaType === 'text/plain');
      assert.equal(await (await fetch(new URL(note.url, scripted.url))).text(), 'milk');
      assert.deepEqual(session.message.metadata.stateDelta, { mood: 'good' });
      await session.check({ posts: 1 });
    },
  ],
  [
    'another agent takes over',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('call transfer_to_agent {"agent_name":"helper"}');
      assert.equal(session.message.metadata.author, 'helper', show(session.message));
      await session.check();
    },
  ],
  [
    'a picture reaches the agent',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      const pixel =
        'data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==';
      await session.say('say nice', { files: [{ type: 'file', mediaType: 'image/png', url: pixel }] });
      await session.say('history');
      assert.match(session.text, /user:image\/png/);
    },
  ],
  ...['before', 'after'].map((when) => [
    `credentials: a stock client that is done ${when} the login shows what became of it`,
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('call log_in');
      const { kind, provider, authorizeUrl } = session.tool(CREDENTIAL).input;
      assert.deepEqual([kind, provider], ['oauth2', 'example.com']);
      const opened = await fetch(authorizeUrl, { redirect: 'manual' });
      assert.equal(opened.status, 303);
      const state = new URL(opened.headers.get('location')).searchParams.get('state');
      const refuse = async () => {
        const page = await fetch(`${scripted.url}/api/oauth/callback?error=access_denied&state=${state}`);
        assert.equal(page.status, 200);
      };
      if (when === 'after') await refuse();
      const done = session.output(CREDENTIAL, 'done');
      if (when === 'before') await refuse();
      await done;
      await session.rest();
      // This version of ADK keeps the refusal, and does not ask its model again.
      const stored = toolsOf((await scripted.messages(session.id)).at(-1));
      const errorOf = (name) => stored.find((part) => nameOf(part) === name).errorText;
      assert.equal(errorOf(CREDENTIAL), 'denied: the user did not grant access');
      assert.match(errorOf('log_in'), /did not grant the access/);
      assert.doesNotMatch(show(session.posts.map((post) => post.text)), /not-for-the-browser/);
      await session.say('say still here');
      assert.equal(session.text.trim(), 'still here');
    },
  ]),
  [
    'credentials: what is handed over makes the tool run, and is in no answer',
    async (kit, { vault }) => {
      const session = new Session(vault, kit);
      await session.say('call use_password && call get_weather {"city":"Paris"}');
      assert.equal(session.tool(CREDENTIAL).input.kind, 'basic');
      const given = { username: 'me', password: 'PLANTED-PASSWORD' };
      const init = { method: 'POST', headers: { 'content-type': 'application/json' }, body: JSON.stringify(given) };
      const response = await fetch(`${vault.url}/api/credentials/${session.tool(CREDENTIAL).toolCallId}`, init);
      assert.equal(response.status, 204, await response.text());
      await session.output(CREDENTIAL, 'done');
      await session.rest();
      assert.match(session.text, /use_password=\{"length": 18\}/);
      const stored = toolsOf((await vault.messages(session.id)).at(-1));
      assert.deepEqual(stored.find((part) => nameOf(part) === CREDENTIAL).output, { granted: true });
      assert.doesNotMatch(show(session.posts.map((post) => post.text)), /PLANTED/);
    },
  ],
  [
    'the agent describes itself',
    async (_kit, { scripted }) => {
      const agent = await scripted.agent();
      assert.equal(agent.name, 'scripted');
      const tools = Object.fromEntries(agent.tools.map((tool) => [tool.name, tool]));
      assert.equal(tools.pick_color.runsOn, 'client');
      assert.equal(tools.pay.runsOn, 'server');
      assert.deepEqual(tools.pay.inputSchema.required, ['amount']);
    },
  ],
];

const failureTests = [
  ...[
    ['a tool that raises', 'call explode {"reason":"fuse"}', /the tool exploded: fuse/],
    ['a model that fails', 'fail now', /the scripted model fails/],
    ['a model that fails in the middle', 'fail late', /the scripted model fails/],
    ['a model that refuses', 'error RESOURCE_EXHAUSTED', /RESOURCE_EXHAUSTED: the scripted model refuses/],
  ].map(([name, say, error]) => [
    `${name} is one error in the server's words`,
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say(say);
      assert.equal(session.chat.status, 'error');
      assert.match(session.chat.error.message, error);
      assert.equal(session.streams[0].filter((chunk) => chunk.type === 'error').length, 1);
      session.chat.clearError();
      await session.say('say still here');
      assert.equal(session.text.trim(), 'still here');
    },
  ]),
  [
    'an answer stopped for its length is no failure',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('stop MAX_TOKENS');
      assert.equal(session.text, 'cut');
      assert.equal(session.streams[0].at(-1).finishReason, 'length');
    },
  ],
  [
    'an unknown app of a server that came up later',
    async (kit, { unknown }) => {
      const session = new Session(unknown, kit);
      await session.say('say hello');
      assert.match(session.chat.error.message, /ADK server .*no_such_app/);
      assert.equal((await unknown.agent()).tools.length, 0);
    },
  ],
  [
    'a server that is not there',
    async (kit, { nowhere }) => {
      const session = new Session(nowhere, kit);
      await session.say('say hello');
      assert.match(session.chat.error.message, /ADK server cannot be reached/);
    },
  ],
  [
    'stopped in the middle, and the same session goes on',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      void session.chat.sendMessage({ text: 'pause 60' });
      await session.until(() => session.text.includes('before'), 'the first words');
      await scripted.stopTurn(session.id);
      await session.rest();
      await session.say('say again');
      assert.equal(session.text.trim(), 'again');
      await session.say('history');
      assert.match(session.text, /user:say again \| model:again/);
    },
  ],
];

const approvalTests = [
  [
    'a denial that a tool ignores is in the audit',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('call stubborn');
      await session.answer('stubborn', false);
      await session.rest();
      assert.equal(session.tool('stubborn').state, 'output-denied');
      const kinds = (await scripted.audit(session.id)).map((row) => row.kind);
      assert.ok(kinds.includes('tool.ran_despite_denial'), `${kinds}`);
      await session.check();
    },
  ],
  [
    'a tool that must not run unasked, and does',
    async (kit, { guarded }) => {
      const session = new Session(guarded, kit);
      await session.say(WEATHER);
      assert.match(session.chat.error.message, /ran get_weather without asking/);
      const kinds = (await guarded.audit(session.id)).map((row) => row.kind);
      assert.ok(kinds.includes('approval.unsupported'), `${kinds}`);
    },
  ],
  [
    'a client tool that needs approval on our side',
    async (kit, { guarded }) => {
      const session = new Session(guarded, kit);
      await session.say(PICK);
      await session.answer('pick_color', false);
      await session.rest();
      assert.equal(session.tool('pick_color').state, 'output-denied');
      assert.match(session.text, /pick_color=.*denied/);
      await session.check();
    },
  ],
  [
    'an approval that nobody gives',
    async (kit, { hasty }) => {
      const session = new Session(hasty, kit);
      await session.say(PAY);
      await session.until(async () => {
        const kinds = (await hasty.audit(session.id)).map((row) => row.kind);
        return kinds.includes('approval.expired');
      }, 'the approval to expire');
      const page = await session.reload();
      await page.rest();
      assert.equal(page.tool('pay').state, 'output-error');
      assert.match(page.text, /pay=.*rejected/);
      await page.check();
    },
  ],
  [
    'a duplicate approval changes nothing',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say(PAY);
      await session.answer('pay', true);
      await session.rest();
      const { body } = session.posts.at(-1);
      const again = await scripted.post(body);
      assert.equal(again.status, 200);
      const rows = await scripted.audit(session.id);
      assert.equal(rows.filter((row) => row.kind === 'tool.finished').length, 1, show(rows));
      const contrary = structuredClone(body);
      toolsOf(contrary.messages.at(-1)).forEach((part) => (part.approval.approved = false));
      await scripted.post(contrary);
      assert.ok((await scripted.audit(session.id)).some((row) => row.kind === 'answer.refused'));
      await session.check();
    },
  ],
  [
    'a late approval is refused',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say(PAY);
      const asked = structuredClone(session.message);
      await session.say('say something else');
      const [part] = toolsOf(asked);
      Object.assign(part, { state: 'approval-responded', approval: { ...part.approval, approved: true } });
      const late = await scripted.post({ id: session.id, messages: [asked], trigger: 'submit-message' });
      assert.equal(late.status, 200);
      const rows = await scripted.audit(session.id);
      assert.ok(
        rows.some((row) => row.kind === 'answer.refused'),
        show(rows),
      );
      assert.ok(!rows.some((row) => row.kind === 'tool.finished'), show(rows));
      await session.say('say still here');
      assert.equal(session.text.trim(), 'still here');
    },
  ],
];

const cutTests = [
  [
    'regenerate begins a session with what remains',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('call set_mood {"mood":"good"}');
      await session.say('history');
      const first = session.text;
      await session.chat.regenerate();
      await session.rest();
      assert.equal(session.text, first);
      await session.say('call get_mood');
      assert.match(session.text, /get_mood=.*good/);
      await session.check();
    },
  ],
  [
    'regenerate of the first answer begins with nothing',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('history');
      await session.chat.regenerate();
      await session.rest();
      assert.equal(session.text.trim(), 'nothing');
    },
  ],
  [
    'an edited message takes its answer along',
    async (kit, { scripted }) => {
      const session = new Session(scripted, kit);
      await session.say('say first');
      await session.say('say second');
      const edited = session.chat.messages[2];
      void session.chat.sendMessage({ text: 'history', messageId: edited.id });
      await session.rest();
      assert.equal(session.text.trim(), 'user:say first | model:first');
    },
  ],
];

export const sharedTests = [
  ...conversationTests,
  ...contentTests,
  ...failureTests,
  ...approvalTests,
  ...cutTests,
  ...agentTests,
  ...stateTests,
  ...laterTests,
];

/** These stop servers, so each has its own. */
export const restartTests = [
  ...lostStateTests,
  [
    'the bridge restarts between question and answer',
    async (kit, { startBridge }) => {
      const bridge = await startBridge();
      const session = new Session(bridge, kit);
      await session.say(`${PAY} && ${SEARCH}`);
      const nested = new Session(bridge, kit);
      await nested.say(`call clerk ${JSON.stringify({ request: PAY })}`);
      await bridge.restart();
      await nested.answer('pay', true);
      await nested.rest();
      assert.equal(nested.tool('clerk').state, 'output-available', show(nested.message));
      await nested.check();
      const page = await session.reload();
      await page.rest();
      await page.answer('pay', true);
      await page.answer('search', false);
      await page.rest();
      assert.equal(page.tool('pay').state, 'output-available');
      assert.equal(page.tool('search').state, 'output-denied');
      assert.match(page.text, /"paid": 50/);
      await page.check();
    },
  ],
  [
    'the ADK server forgets between question and answer',
    async (kit, { startAdk, startBridge }) => {
      const adk = await startAdk();
      const bridges = [await startBridge('scripted', adk), await startBridge('resumable', adk)];
      const asked = await Promise.all(bridges.map((bridge) => askAll(kit, bridge)));
      await adk.restart();
      await Promise.all(asked.map(answerAll));
    },
  ],
  [
    'the bridge dies in the middle of a run',
    async (kit, { startBridge }) => {
      const bridge = await startBridge();
      const session = new Session(bridge, kit);
      await session.say('say hello');
      void session.chat.sendMessage({ text: 'pause 60' });
      await session.until(() => session.text.includes('before'), 'the first words');
      await bridge.restart();
      const page = await session.reload();
      await page.rest();
      await page.say('history');
      assert.match(page.text, /^user:say hello \| model:hello \| user:pause 60 /);
      await page.check();
    },
  ],
  [
    'the ADK server restarts and remembers',
    async (kit, { startAdk, startBridge }) => {
      const directory = mkdtempSync(join(tmpdir(), 'adk-sessions-'));
      const adk = await startAdk(`sqlite:///${join(directory, 'sessions.db')}`);
      const bridge = await startBridge('scripted', adk);
      const session = new Session(bridge, kit);
      await session.say(PAY);
      await adk.restart();
      await session.answer('pay', true);
      await session.rest();
      assert.equal(session.tool('pay').state, 'output-available');
      await session.check();
      await adk.kill();
      rmSync(directory, { recursive: true, force: true });
    },
  ],
  [
    'the ADK server dies in the middle of a run, and comes back',
    async (kit, { startAdk, startBridge }) => {
      const adk = await startAdk();
      const bridge = await startBridge('scripted', adk);
      const session = new Session(bridge, kit);
      void session.chat.sendMessage({ text: 'pause 60' });
      await session.until(() => session.text.includes('before'), 'the first words');
      await adk.kill();
      await session.rest();
      assert.match(session.chat.error.message, /connection to the ADK server broke/);
      session.chat.clearError();
      await session.say('say hello');
      assert.match(session.chat.error.message, /cannot be reached/);
      session.chat.clearError();
      await adk.start();
      await session.say('say hello');
      assert.equal(session.text.trim(), 'hello');
      assert.match(textOf(session.chat.messages[1]), /before/);
    },
  ],
  [
    'a name that the server does not have is refused at the start',
    async (_kit, { startBridge }) => {
      const toml = '[approval]\ntools = ["get_wether"]\n';
      await assert.rejects(
        startBridge('scripted', undefined, toml),
        /approval\.tools: the app "scripted" has no tool named "get_wether"/,
      );
    },
  ],
];

/** Conversations that are about to be answered when their server forgets them. */
async function askAll(kit, bridge) {
  const ask = async (text) => {
    const session = new Session(bridge, kit);
    await session.say('say hello');
    await session.say(text);
    return session;
  };
  return Promise.all([PAY, PAY, PICK, `${PAY} && ${PICK}`, 'call adk_request_input {"message":"how many?"}', 'say bye'].map(ask));
}

async function answerAll([yes, no, pick, both, input, plain]) {
  // Nothing ran, and the model is informed: it may ask again.
  await yes.answer('pay', true);
  await yes.rest();
  assert.equal(yes.tool('pay').state, 'output-error');
  assert.match(yes.tool('pay').errorText, /lost the conversation/);
  assert.match(yes.text, /pay=.*lost the conversation/);
  await no.answer('pay', false);
  await no.rest();
  assert.equal(no.tool('pay').state, 'output-denied');
  assert.match(no.text, /pay=.*rejected/);
  await pick.output('pick_color', { color: 'red' });
  await pick.rest();
  assert.match(pick.text, /pick_color=.*red/);
  await both.output('pick_color', { color: 'red' });
  await both.answer('pay', true);
  await both.rest();
  assert.equal(both.tool('pay').state, 'output-error');
  assert.equal(both.tool('pick_color').state, 'output-available');
  await input.output('adk_request_input', 3);
  await input.rest();
  assert.match(input.text, /request_input=.*3/);
  await plain.say('history');
  assert.equal(plain.text.trim(), 'user:say hello | model:hello | user:say bye | model:bye');
  for (const session of [yes, no, pick, both, input, plain]) {
    await session.check();
    await session.say('say still here');
    assert.equal(session.text.trim(), 'still here');
  }
  // And the question can be asked again.
  await yes.say(PAY);
  await yes.answer('pay', true);
  await yes.rest();
  assert.match(yes.text, /"paid": 50/);
}

/** Fills `servers` with what the tests share; `ends` stop what was started. */
export async function startShared(binary, python, servers, ends) {
  const adk = await startAdkServer(python, 'memory://', ['--a2a']);
  ends.push(() => adk.kill());
  servers.adk = adk;
  const other = await startAdkServer(python, 'memory://', [], { FAR_URL: adk.url });
  ends.push(() => other.kill());
  const start = async (name, agent, toml = '') => {
    servers[name] = await startServer(binary, toml, agent);
    ends.push(servers[name].stop);
  };
  const of = (app) => agentOf(adk.url, app);
  await assert.rejects(startServer(binary, '', of('no_such_app')), /has no app "no_such_app", only .*scripted/);
  await adk.kill();
  await start('unknown', of('no_such_app'));
  await adk.start();
  await start('scripted', of('scripted'));
  await start('resumable', of('resumable'));
  await start('crew', of('crew'));
  await start('team', of('team'));
  await start('team_resumable', of('team_resumable'));
  await start('line', of('line'));
  await start('flow', of('flow'));
  await start('near', agentOf(other.url, 'near'));
  await start('greeter', `${of('greeter')}state = { user_name = "{user}" }\n`);
  await start('vault', of('vault'));
  await start('guarded', of('scripted'), '[approval]\ntools = ["get_weather", "pick_color"]\n');
  await start('hasty', of('scripted'), '[approval]\ntimeout = "1s"\n');
  await start('nowhere', agentOf(`http://127.0.0.1:${await freePort()}`, 'scripted'));
}

/** Servers of one test's own, ended after it; bridges stand before the ADK server that all share, unless configured otherwise. */
export function alone(binary, python, shared, test) {
  return async (kit) => {
    const ends = [];
    const startAdk = async (sessions) => {
      const adk = await startAdkServer(python, sessions);
      ends.push(() => adk.kill());
      return adk;
    };
    const startBridge = async (app = 'scripted', adk = shared, toml = '', settings = '') => {
      const bridge = await startServer(binary, toml, agentOf(adk.url, app) + settings);
      ends.push(() => bridge.stop());
      return bridge;
    };
    try {
      await test(kit, { startAdk, startBridge });
    } finally {
      for (const end of ends) await end();
    }
  };
}

/** A port on which nobody listens. */
function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, '127.0.0.1', () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}
