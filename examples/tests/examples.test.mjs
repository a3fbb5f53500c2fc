// Every example as its README starts it, against the real binary: pages in a real browser, programs and agents as processes.

import assert from 'node:assert/strict';
import { existsSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { Visitor } from '../../web/chat/login.mjs';
import { launch } from '../../web/e2e/browser.mjs';
import { startProvider, CLIENT_SECRET } from '../../web/e2e/login-provider.mjs';
import { installMicrophone } from '../../web/e2e/microphone.mjs';
import { startServer } from '../../web/e2e/server.mjs';
import { clean } from '../../web/proxies/processes.mjs';
import { BINARY } from '../../web/target.mjs';
import { World } from './agents.mjs';
import { flows } from './flows.mjs';
import { ask, develop, EXAMPLES, folder, run, serveAlone } from './programs.mjs';
import { Visit } from './visit.mjs';

// Pages at once; each has a development server.
const AT_ONCE = 3;
const EVERYTHING = Object.keys(flows);
const FRONT_ENDS = [
  { name: 'nextjs', start: develop, shows: EVERYTHING },
  { name: 'assistant-ui', start: develop, shows: EVERYTHING },
  { name: 'react', start: develop, shows: EVERYTHING },
  { name: 'vue', start: develop, shows: EVERYTHING },
  { name: 'svelte', start: develop, shows: EVERYTHING },
  { name: 'html', start: serveAlone, shows: ['text', 'tool', 'approve', 'deny', 'reload while a question waits', 'picture'] },
];
// The name of the bridge at the provider; no name is resolved for it.
const PUBLIC_URL = 'http://bridge.example';

describe('examples', { concurrency: AT_ONCE }, () => {
  let bridge;
  let browser;
  before(async () => {
    bridge = await startServer(BINARY, '[demo]\npace = "5ms"\n');
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    await clean();
    await bridge?.stop();
  });

  for (const { name, start, shows } of FRONT_ENDS) {
    describe(name, { concurrency: 1 }, () => {
      let starting;
      // Whichever test comes first starts it, so that a single one can be run.
      const url = () => (starting ??= start(name, bridge));
      for (const flow of shows) {
        test(`${name}: ${flow}`, async () => {
          const visit = await Visit.open(browser, bridge, await url());
          await visit.start();
          await flows[flow](visit);
          await visit.close();
        });
      }
    });
  }

  test('voice: what is said is answered', async () => {
    const visit = await Visit.open(browser, bridge, await develop('voice', bridge));
    await visit.context.addInitScript(installMicrophone);
    await visit.page.goto(`${visit.url}/#${visit.chat}`);
    await visit.press('Speak');
    await visit.page.locator('output', { hasText: /^(ready|listening)$/ }).waitFor();
    await visit.page.evaluate(() => window.speak('what is the weather in Tokyo'));
    await visit.page.locator('article.user').getByText('what is the weather in Tokyo').waitFor();
    await visit.sees(/sunny in Tokyo/);
    await visit.close();
  });

  test('python-client: a question is asked, and a tool is allowed, or not', async () => {
    assert.match(await ask(bridge, 'what is the weather in Tokyo'), /°C and .* in Tokyo/);
    assert.match(await ask(bridge, 'pay Hanako 50 dollars', 'y\n'), /Paid 50 USD to Hanako/);
    assert.match(await ask(bridge, 'pay Hanako 50 dollars', '\n'), /declined process_payment/);
  });

  test('curl: a question is asked, and a tool is allowed, or not', async () => {
    assert.match(
      await run('curl', './chat.sh', [], bridge),
      /"delta":"Tokyo\."[\s\S]*"type":"tool-output-available"[\s\S]*"delta":"Paid "/,
    );
    assert.match(await run('curl', './chat.sh', ['false'], bridge), /"type":"tool-output-denied"/);
  });

  describe('agents and tools', { concurrency: 1 }, () => {
    let world;
    before(() => {
      world = new World();
    });
    after(() => world.end());

    const booking = 'call book_table {"restaurant":"Uoshin","guests":2}';
    const isBooked = /"booked": "Uoshin"/;

    test('adk-python: a table is booked when a human agrees', async () => {
      const adk = await world.pythonAgent(await world.gemini());
      const before = await world.before(adk);
      assert.match(await ask(before, booking, 'y\n'), isBooked);
      assert.doesNotMatch(await ask(before, booking, 'n\n'), isBooked);
    });

    test('adk-python: the user logs in at a provider', async () => {
      const provider = await startProvider();
      provider.allow([PUBLIC_URL]);
      const { issuer } = provider;
      const login = {
        OAUTH_AUTHORIZE_URL: `${issuer}/auth`,
        OAUTH_TOKEN_URL: `${issuer}/token`,
        OAUTH_PROFILE_URL: `${issuer}/me`,
      };
      const client = { OAUTH_CLIENT_ID: 'vault', OAUTH_CLIENT_SECRET: CLIENT_SECRET };
      const adk = await world.pythonAgent({ ...(await world.gemini()), ...login, ...client });
      const before = await world.before(adk, `[server]\npublic_url = "${PUBLIC_URL}"\n`);
      await before.say('login', 'call read_profile');
      const parts = async () => (await before.json('/api/chats/login')).messages.at(-1).parts;
      const asked = (await parts()).find(({ type }) => type === 'tool-adk_request_credential');
      const { status, page } = await new Visitor({ url: before.url, publicUrl: PUBLIC_URL }).follow(asked.input.authorizeUrl);
      assert.equal(status, 200, page);
      await new Visit().until(async () => {
        const profile = (await parts()).find(({ type }) => type === 'tool-read_profile');
        return profile?.output?.user === 'alice';
      }, 'the profile of who has logged in');
      await provider.stop();
    });

    test('adk-typescript: a table is booked when a human agrees', async () => {
      const adk = await world.typeScriptAgent(await world.gemini());
      const before = await world.before(adk);
      assert.match(await ask(before, booking, 'y\n'), isBooked);
      assert.doesNotMatch(await ask(before, booking, 'n\n'), isBooked);
    });

    test('adk-typescript: the page runs its tool, and the answer has its output', async () => {
      const adk = await world.typeScriptAgent(await world.gemini());
      const before = await world.before(adk);
      await before.say('color', 'call pick_color {"question":"Which one?"}');
      const last = async () => (await before.json('/api/chats/color')).messages.at(-1);
      const message = await last();
      const called = message.parts.find(({ type }) => type === 'tool-pick_color');
      assert.deepEqual([called.state, called.input], ['input-available', { question: 'Which one?' }]);
      Object.assign(called, { state: 'output-available', output: { color: 'teal' } });
      const body = JSON.stringify({ id: 'color', messages: [message] });
      const headers = { 'content-type': 'application/json' };
      const answer = await fetch(`${before.url}/api/chat`, { method: 'POST', headers, body });
      assert.match(await answer.text(), /pick_color[\s\S]*teal[\s\S]*\[DONE\]/);
      assert.equal((await last()).parts.at(-1).text, 'pick_color returned {"color":"teal"}.');
    });

    test('mcp: tools of an official server', async () => {
      const mcp = await world.configured('mcp');
      await new Visit().until(async () => (await mcp.json('/ready')).unavailableTools === undefined, 'the MCP server');
      assert.match(await ask(mcp, 'call files__list_directory {"path":"."}'), /shopping\.txt/);
      const file = join(folder('mcp'), 'files/new.txt');
      const write = 'call files__write_file {"path":"new.txt","content":"new"}';
      rmSync(file, { force: true });
      try {
        assert.match(await ask(mcp, write, 'n\n'), /Allow\?/);
        assert.ok(!existsSync(file), 'it was written without approval');
        assert.match(await ask(mcp, write, 'y\n'), /Allow\?[\s\S]*new\.txt/);
        assert.equal(readFileSync(file, 'utf8'), 'new');
      } finally {
        rmSync(file, { force: true });
      }
    });

    test('rust: a tool of its own', async () => {
      const own = await world.embedded('adk-bridge-example-rust');
      const refund = 'call refund_order {"order":"A-17","amount":25}';
      assert.match(await ask(own, refund, 'y\n'), /"refunded": 25/);
      assert.doesNotMatch(await ask(own, refund, 'n\n'), /refunded/);
    });
  });

  test('every folder is listed and says how it is started', () => {
    const list = readFileSync(join(EXAMPLES, 'README.md'), 'utf8');
    const names = readdirSync(EXAMPLES, { withFileTypes: true })
      .filter((it) => it.isDirectory())
      .map(({ name }) => name);
    for (const name of names.filter((it) => it !== 'tests' && it !== 'node_modules')) {
      assert.ok(list.includes(`(${name}/)`), `${name} is missing in README.md`);
      assert.match(readFileSync(join(folder(name), 'README.md'), 'utf8'), /```sh\n[^`]+```/, name);
    }
  });

  test('what is copied takes nothing from the project but its path', () => {
    const manifest = readFileSync(join(folder('rust'), 'Cargo.toml'), 'utf8');
    assert.doesNotMatch(manifest, /workspace/);
    assert.deepEqual(
      [...manifest.matchAll(/path = "([^"]+)"/g)].map(([, path]) => path),
      ['../../crates/server'],
    );
  });

  test('agents are tried with the versions that they ask for', () => {
    const root = join(EXAMPLES, '..');
    const [python] = readFileSync(join(folder('adk-python'), 'requirements.txt'), 'utf8')
      .trim()
      .split('\n');
    assert.ok(readFileSync(join(root, 'python/requirements.txt'), 'utf8').split('\n').includes(python), python);
  });
});
