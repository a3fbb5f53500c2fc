// What users grant to agents of Google's ADK servers, with a real provider and the AI SDK's `Chat`. The newest server for Python is
// also tried with a browser (`web/e2e/credentials.mjs`); here it loses its sessions.

import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, readdirSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { CLIENT_SECRET, startProvider } from '../e2e/login-provider.mjs';
import { BINARY, NEWEST_1_PYTHON, OLDEST_PYTHON, PYTHON } from '../target.mjs';
import { agentOf, startAdkServer } from './adk-server.mjs';
import { typeScript } from './adk-servers.mjs';
import { Visitor } from './login.mjs';
import { named } from './matrix.mjs';
import { startServer } from './server.mjs';
import { KITS, Session, show, textOf } from './session.mjs';
import { assertNoFaults } from './suite.mjs';

const TOOL = 'adk_request_credential';
const SECRET = 'PLANTED-USER-SECRET-0815';
const DENIED = 'denied: the user did not grant access';
// The name of the bridge at the provider; no name is resolved for it.
const PUBLIC_URL = 'http://bridge.example';
const [KIT] = KITS.filter(({ sdk, overSocket }) => sdk === 7 && !overSocket);

const NO_PKCE = 'the server has no PKCE, so the provider refuses';

/** `cannot`: what a server cannot do, by test. Toolsets are for Python only. */
const SERVERS = [
  { name: 'google-adk 2.13.0', cannot: {}, start: (env) => startAdkServer(PYTHON, 'memory://', [], env) },
  {
    name: 'google-adk 1.39.1',
    cannot: {},
    keepsSessions: true,
    start: (env) => {
      const directory = mkdtempSync(join(tmpdir(), 'adk-bridge-chat-'));
      return startAdkServer(NEWEST_1_PYTHON, `sqlite:///${join(directory, 'sessions.db')}`, [], env);
    },
  },
  {
    name: 'google-adk 1.18.0',
    cannot: { pkce: NO_PKCE, toolset: 'the server never asks, so the tools have no login' },
    start: (env) => startAdkServer(OLDEST_PYTHON, null, [], env),
  },
  {
    name: '@google/adk 2.0.0',
    cannot: { pkce: NO_PKCE },
    hasNoToolsets: true,
    start: (env) => typeScript(env),
    client: { token_endpoint_auth_method: 'client_secret_post' },
  },
];

// Only servers with this in their name, for those who work on one.
const WANTED = process.env.ADK_BRIDGE_SERVER ?? '';

// They take long to start.
describe('credentials', { concurrency: SERVERS.length }, () => {
  for (const server of SERVERS.filter(({ name }) => name.includes(WANTED))) {
    describe(server.name, { concurrency: 1 }, () => {
      let provider, adk, bridge, hasty, mailbox;
      const sessions = [];

      before(async () => {
        provider = await startProvider(server.client);
        provider.allow([PUBLIC_URL]);
        adk = await server.start({ ...provider.env, LOGIN_REDIRECT: `${PUBLIC_URL}/api/oauth/callback` });
        const toml = `[server]\npublic_url = "${PUBLIC_URL}"\n`;
        bridge = await startServer(BINARY, toml, agentOf(adk.url, 'vault'), { RUST_LOG: 'debug' });
        hasty = await startServer(BINARY, `${toml}[approval]\ntimeout = "1s"\n`, agentOf(adk.url, 'vault'));
        if (!server.hasNoToolsets) mailbox = await startServer(BINARY, toml, agentOf(adk.url, 'mailbox'), { RUST_LOG: 'debug' });
      });
      const bridges = () => Object.fromEntries(Object.entries({ bridge, hasty, mailbox }).filter(([, it]) => it !== undefined));
      after(async () => {
        await Promise.all(Object.values(bridges()).map((it) => it.stop()));
        await adk?.kill();
        await provider?.stop();
      });

      const open = (at = bridge) => {
        const session = new Session(at, KIT);
        sessions.push(session);
        return session;
      };
      const questions = (session) => session.tools.filter((part) => part.type === `tool-${TOOL}` || part.toolName === TOOL);
      /** Goes to the provider with the link of a question. */
      const visit = (session, part, how) =>
        new Visitor({ url: session.server.url, publicUrl: PUBLIC_URL }).follow(part.input.authorizeUrl, how);
      /** What a stock front end does when its user is back. */
      const done = async (session) => {
        for (const { toolCallId, state } of questions(session)) {
          if (state === 'input-available') await session.chat.addToolOutput({ tool: TOOL, toolCallId, output: 'done' });
        }
        await session.rest();
        assert.equal(session.chat.error, undefined);
      };

      test('what is granted goes to the agent, and the answer goes on', async () => {
        const session = open();
        await session.say('call read_mail');
        const [question] = questions(session);
        assert.deepEqual(question.input.scopes?.sort(), ['mail', 'openid'], show(session.message));
        assert.equal(question.input.provider, new URL(provider.issuer).host);
        const { status, page } = await visit(session, question);
        assert.equal(status, 200, page);
        await done(session);
        assert.match(session.text, /read_mail=\{"of": ?"alice", ?"status": ?200\}/, show(session.message));
        // It counts once.
        await session.say('say and more');
        assert.equal(session.text.trim(), 'and more');
      });

      test('a user who comes back late sees what the agent did meanwhile', async () => {
        const session = open();
        await session.say('call read_mail');
        assert.equal((await visit(session, questions(session)[0])).status, 200);
        const isAnswered = async () => /read_mail=/.test(textOf((await bridge.messages(session.id)).at(-1)));
        await session.until(isAnswered, 'the answer, without a reader');
        await done(session);
        assert.equal(session.tool('read_mail').output.of, 'alice', show(session.message));
        assert.match(session.text, /read_mail=\{"of": ?"alice"/, show(session.message));
      });

      test(named('a login with PKCE', server.cannot.pkce), async () => {
        const session = open();
        await session.say('call read_diary');
        await visit(session, questions(session)[0]);
        await done(session);
        if (server.cannot.pkce) {
          assert.equal(
            questions(session)[0].errorText,
            'denied: the provider did not grant access (invalid_request)',
            show(session.message),
          );
          assert.match(session.text, /read_diary=.*did not grant the access/, show(session.message));
        } else {
          assert.match(session.text, /read_diary=\{"of": ?"alice", ?"status": ?200\}/, show(session.message));
        }
        assert.equal(provider.verifiers.length, server.cannot.pkce ? 0 : 1);
      });

      // What is granted counts for the user's other chats, too: this comes first.
      if (!server.hasNoToolsets && !server.cannot.toolset) {
        test('a login for all tools of a toolset, refused: the question says why, and the next message asks again', async () => {
          const session = open(mailbox);
          for (const posts of [2, 4]) {
            await session.say('say hello');
            await visit(session, questions(session)[0], { consents: false });
            await done(session);
            assert.equal(questions(session)[0].errorText, DENIED, show(session.message));
            // Without the login the server does not ask its model.
            assert.equal(session.text, '');
            await session.check({ posts });
          }
        });
      }

      if (!server.hasNoToolsets) {
        test(named('a login for all tools of a toolset, granted', server.cannot.toolset), async () => {
          const session = open(mailbox);
          await session.say('call read_inbox');
          if (server.cannot.toolset) {
            assert.match(session.text, /read_inbox=.*there is no login/, show(session.message));
            return;
          }
          const [question] = questions(session);
          assert.deepEqual(question.input.scopes?.sort(), ['mail', 'openid'], show(session.message));
          // No call waits for it: the model has not been asked yet.
          assert.equal(question.input.functionCallId, undefined);
          assert.equal((await visit(session, question)).status, 200);
          await done(session);
          assert.match(session.text, /read_inbox=\{"of": ?"alice", ?"status": ?200\}/, show(session.message));
          // The server remembers it.
          await session.say('call read_inbox');
          assert.match(session.text, /read_inbox=\{"of": ?"alice"/, show(session.message));
          assert.deepEqual(questions(session), []);
        });
      }

      test('what is refused at the provider ends there', async () => {
        const session = open();
        await session.say('call read_mail');
        await visit(session, questions(session)[0], { consents: false });
        await done(session);
        assert.equal(questions(session)[0].errorText, DENIED, show(session.message));
        // The model learns it, and answers.
        assert.match(session.text, /read_mail=.*the user did not grant the access/, show(session.message));
        await session.check({ posts: 2 });
        await session.say('say still here');
        assert.equal(session.text.trim(), 'still here', show(session.chat.messages));
      });

      test('a question that expires says so', async () => {
        const session = open(hasty);
        await session.say('call read_mail');
        let stored, question;
        const isSettled = async () => {
          stored = (await hasty.messages(session.id)).at(-1);
          question = stored.parts.find(({ type }) => type === `tool-${TOOL}`);
          return question?.state === 'output-error' && textOf(stored) !== '';
        };
        await session.until(isSettled, 'what the model says of it');
        assert.equal(question.errorText, 'expired: access was not granted in time');
        assert.match(textOf(stored), /read_mail=.*did not grant the access/, show(stored));
        await session.say('say still here');
        assert.equal(session.text.trim(), 'still here', show(session.chat.messages));
      });

      test('two at once', async () => {
        const session = open();
        await session.say('call read_mail && call read_news');
        const asked = questions(session);
        assert.equal(asked.length, 2, show(session.message));
        for (const question of asked) assert.equal((await visit(session, question)).status, 200);
        await done(session);
        for (const tool of ['read_mail', 'read_news']) {
          assert.match(session.text, new RegExp(`${tool}=\\{"of": ?"alice", ?"status": ?200\\}`), show(session.message));
        }
      });

      test('two at once, of which one is refused', async () => {
        const session = open();
        await session.say('call read_mail && call read_news');
        const [mail, news] = questions(session);
        await visit(session, mail, { consents: false });
        assert.equal((await visit(session, news)).status, 200);
        await done(session);
        assert.match(session.text, /read_mail=.*the user did not grant the access/, show(session.message));
        assert.match(session.text, /read_news=\{"of": ?"alice", ?"status": ?200\}/, show(session.message));
      });

      test('a key that is typed in', async () => {
        const session = open();
        await session.say('call use_key');
        const [{ toolCallId, input }] = questions(session);
        assert.equal(input.kind, 'apiKey');
        const given = await fetch(`${bridge.url}/api/credentials/${toolCallId}`, {
          method: 'POST',
          headers: { 'content-type': 'application/json' },
          body: JSON.stringify({ apiKey: SECRET }),
        });
        assert.ok(given.ok, await given.text());
        await done(session);
        assert.match(session.text, new RegExp(`use_key=\\{"length": ?${SECRET.length}\\}`), show(session.message));
      });

      test('the server is restarted while the user is at the provider', async () => {
        const session = open();
        await session.say('call read_mail');
        const [question] = questions(session);
        await adk.restart();
        assert.equal((await visit(session, question)).status, 200);
        await done(session);
        if (!server.keepsSessions) {
          // It has forgotten that it asked: what was granted is not used, and the user can ask again.
          assert.match(
            session.tool('read_mail').errorText,
            /lost the conversation before the granted access reached it/,
            show(session.message),
          );
          assert.match(session.text, /lost the conversation/, show(session.message));
          await session.say('call read_mail');
          assert.equal((await visit(session, questions(session).at(-1))).status, 200);
          await done(session);
        }
        assert.match(session.text, /read_mail=\{"of": ?"alice"/, show(session.chat.messages));
      });

      test('no secret is found anywhere', () => {
        const found = Object.fromEntries(Object.entries(bridges()).map(([name, { log }]) => [`log of ${name}`, log()]));
        for (const [number, { requests }] of sessions.entries())
          found[`streams ${number}`] = requests.map(({ text }) => text).join('\n');
        for (const { data } of Object.values(bridges())) {
          for (const file of readdirSync(data, { recursive: true, withFileTypes: true })) {
            if (file.isFile()) found[join(data, file.name)] = readFileSync(join(file.parentPath, file.name)).toString('latin1');
          }
        }
        const secrets = [CLIENT_SECRET, SECRET, ...provider.tokens, ...provider.verifiers];
        assert.ok(provider.tokens.length > 4);
        for (const [place, text] of Object.entries(found)) {
          for (const secret of secrets) assert.ok(!text.includes(secret), `${place} has ${secret}`);
        }
      });

      test('no bridge has panicked or logged an error', () => assertNoFaults(bridges()));
    });
  }
});
