// A newcomer's first hour: a fresh clone, and what the documents say to do with it, by their own code blocks.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { blocksIn, ROOT } from '../web/documents/blocks.mjs';
import { launch, openContext } from '../web/e2e/browser.mjs';
import { Visit } from '../web/e2e/visit.mjs';
import { freePort } from '../web/proxies/processes.mjs';
import { PYTHON, TARGET } from '../web/target.mjs';
import { shareCompiled } from './compiled.mjs';
import { Followed, GETTING_STARTED } from './first-hour/blocks.mjs';
import { Terminal } from './first-hour/terminal.mjs';

// As for every page: nothing takes so long, on a machine with other work either.
const WAIT_MS = 90_000;
const LISTENING = /listening on (http:\/\/\S+)/;
/** With the newest packages that a newcomer would get on this day, instead of the versions that the examples are tested with. */
const NEWEST = process.env.FIRST_HOUR_NEWEST === '1';
/** An order that the document has for the model that is played; the arguments are in braces. */
const ORDER = /`(call book_table \{[^}]+\})`/;
/** Where the document has a new chat begin in the newcomer's page. */
const NEW_CHAT = /such\s+as `(\/\w+)`/;

describe('first hour', { concurrency: 1 }, () => {
  let clone;
  let place;
  let followed;
  let ports;
  let browser;
  let bridge;
  let bridgeUrl;
  let front;
  const ends = [];

  const read = (path) => readFileSync(join(clone, path), 'utf8');
  /** The ports of the documents, each as one that is free. */
  const here = (text) => text.replaceAll(/(?<=(localhost|127\.0\.0\.1):)\d+/g, (port) => ports[port] ?? port);
  const terminal = (cwd) => {
    const opened = new Terminal(cwd, environment(ports), (command) => onThisMachine(here(command), ports));
    ends.push(() => opened.close());
    return opened;
  };
  /** Saves a file where the document says. */
  const save = (name, directory) => {
    const { file, text } = followed.take(name);
    mkdirSync(dirname(join(directory, file)), { recursive: true });
    writeFileSync(join(directory, file), here(text));
    return file;
  };
  const empty = (name) => {
    const path = join(place, name);
    mkdirSync(path);
    return path;
  };
  const audited = async (chat) => {
    const rows = await (await fetch(`${bridgeUrl}/api/audit?chat=${chat}`)).json();
    return rows.map(({ kind }) => kind).filter((kind) => ['approval.approved', 'tool.started'].includes(kind));
  };

  before(async () => {
    place = mkdtempSync(join(tmpdir(), 'adk-bridge-first-hour-'));
    ends.push(() => rmSync(place, { recursive: true, force: true }));
    // On the disk of what is compiled already.
    clone = join(TARGET, 'first-hour');
    rmSync(clone, { recursive: true, force: true });
    ends.push(() => rmSync(clone, { recursive: true, force: true }));
    ports = Object.fromEntries(await Promise.all(['8000', '8080', '8081'].map(async (port) => [port, await freePort()])));
    browser = await launch();
    ends.push(() => browser.close());
  });
  after(async () => {
    for (const end of ends.toReversed()) await end();
  });

  test('a clone is built, and serves', async () => {
    execFileSync('git', ['clone', '--quiet', ROOT, clone], { stdio: ['ignore', 'ignore', 'inherit'] });
    followed = new Followed(read);
    // The first minutes of a newcomer, of which nothing can be learned.
    shareCompiled(join(TARGET, 'debug'), join(clone, 'target/debug'));
    bridge = terminal(clone);
    const { text } = followed.take('demo');
    assert.ok(read('README.md').includes(`\n\`\`\`sh\n${text.trim()} `), 'README.md and getting started begin differently');
    bridgeUrl = await bridge.serve(text, LISTENING);
  });

  test('the demo does what the document says of it', async () => {
    const [said] = read(GETTING_STARTED).split('## 2.');
    const [weather, payment, picture, ...others] = [...said.matchAll(/^- "([^"]+)"/gm)].map(([, words]) => words);
    assert.deepEqual(others, [], 'getting started names more to write');
    const visit = await Visit.open({ browser, servers: { usual: server(bridgeUrl) } });
    await visit.say(weather);
    await visit.cardIs('get_weather', 'done');
    await visit.answered();
    await visit.say(payment);
    await visit.cardIs('process_payment', 'waiting');
    await bridge.stop();
    bridgeUrl = await bridge.serve('cargo xtask run', LISTENING);
    await visit.page.reload();
    await visit.card('process_payment').getByTestId('approve').click();
    await visit.cardIs('process_payment', 'done');
    await visit.answered();
    assert.deepEqual(await visit.audit('approval.approved', 'tool.started'), [
      'tool.started',
      'approval.approved',
      'tool.started',
    ]);
    await visit.say(picture);
    const drawn = () => [...document.querySelectorAll('[data-testid=message-assistant] img')].some((it) => it.naturalWidth > 0);
    await visit.page.waitForFunction(drawn);
    await visit.close();
  });

  test('every document of the table is there, and the bridge describes its endpoints', async () => {
    const [, table] = read('README.md').split('## Where to go next');
    const linked = [...table.matchAll(/\]\(([^)#:]+)/g)].map(([, path]) => path);
    assert.ok(linked.length > 15, `only ${linked.length} links`);
    for (const path of linked) assert.ok(statSync(join(clone, path)).size > 0, path);
    const { context, problems } = await openContext(browser, bridgeUrl);
    const page = await context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    await page.goto(`${bridgeUrl}/api/docs`);
    await page.getByText('/api/chats/{id}').first().waitFor();
    await page.goto(`${bridgeUrl}/docs/`);
    await page.getByRole('heading', { name: 'adk-bridge', level: 1 }).waitFor();
    await page.getByRole('main').getByRole('link', { name: 'getting started', exact: true }).first().click();
    await page.getByRole('heading', { name: 'Getting started', level: 1 }).waitFor();
    assert.equal(page.url(), `${bridgeUrl}/docs/getting-started`);
    await context.close();
    assert.deepEqual(problems, []);
  });

  test('a page of your own asks, also after a reload', async () => {
    const directory = empty('page');
    const own = terminal(directory);
    await own.run(pinned(followed.take('packages').text, read));
    assert.deepEqual(
      ['proxy', 'page', 'chat'].map((name) => save(name, directory)),
      ['vite.config.js', 'index.html', 'main.tsx'],
    );
    const url = await own.serve(followed.take('served page').text, /Local:\s+(http:\/\/\S+)/);
    front = { url: url.replace(/\/$/, ''), ...(await openContext(browser, url.replace(/\/$/, ''))) };
    front.page = await front.context.newPage();
    front.page.setDefaultTimeout(WAIT_MS);
    await front.page.goto(url);
    await write('what is the weather in Tokyo');
    await front.page.getByText(/°C and .* in Tokyo/).waitFor();
    await write('pay Hanako 50 dollars');
    await front.page.getByRole('button', { name: 'Allow' }).waitFor();
    await front.page.reload();
    await front.page.getByText(/°C and .* in Tokyo/).waitFor();
    await front.page.getByRole('button', { name: 'Allow' }).click();
    await front.page.getByText('Paid 50 USD to Hanako.').waitFor();
    assert.deepEqual(await audited('my-chat'), ['tool.started', 'approval.approved', 'tool.started']);
  });

  test('the front end of the README is a chat as well', async () => {
    const [{ text }] = blocksIn('README.md', read('README.md')).filter(({ language }) => language === 'tsx');
    const page = join(place, 'page/main.tsx');
    const own = readFileSync(page, 'utf8');
    const withReadme = own.replace(
      /^const transport = .*\nexport const useMyChat = [\s\S]*?;\n/m,
      "import { useMyChat } from './readme';\n",
    );
    assert.notEqual(withReadme, own);
    // A page that is open would be changed while it is shown.
    await front.page.goto('about:blank');
    writeFileSync(join(place, 'page/readme.tsx'), text);
    writeFileSync(page, withReadme);
    await front.page.goto(front.url);
    await write('pay Hanako 50 dollars');
    await front.page.getByRole('button', { name: 'Allow' }).waitFor();
    await front.page.reload();
    await front.page.getByRole('button', { name: 'Allow' }).click();
    await front.page.getByText('Paid 50 USD to Hanako.').waitFor();
    assert.deepEqual(await audited('chat-1'), ['approval.approved', 'tool.started']);
    await front.page.goto('about:blank');
    writeFileSync(page, own);
  });

  test('an agent of your own asks in both pages', async () => {
    const directory = empty('agent');
    save('agent', directory);
    assert.ok(existsSync(join(directory, 'agents/my_agent/agent.py')));
    const adk = terminal(directory);
    await adk.run(followed.take('environment').text);
    const model = terminal(clone);
    await model.run(followed.take('program').text);
    await model.serve(followed.take('model').text, LISTENING);
    await adk.serve(followed.take('served agent').text, /Uvicorn running on (http:\/\/\S+)/);
    await bridge.stop();
    bridgeUrl = await bridge.serve(followed.take('bridge').text, LISTENING);
    const [, order] = ORDER.exec(read(GETTING_STARTED));

    const visit = await Visit.open({ browser, servers: { usual: server(bridgeUrl) } });
    await visit.say(order);
    await visit.card('book_table').getByTestId('approve').click();
    await visit.cardIs('book_table', 'done');
    await visit.answered();
    await visit.close();

    const [, path] = NEW_CHAT.exec(read(GETTING_STARTED));
    await front.page.goto(front.url + path);
    await write(order);
    await front.page.getByRole('button', { name: 'Allow' }).click();
    await front.page.getByText(/tool-book_table .* output-available/).waitFor();
    await front.context.close();
    assert.deepEqual(front.problems, []);
  });

  test('no block was left out', () => {
    assert.deepEqual(followed.left(), []);
  });

  async function write(text) {
    await front.page.locator('output', { hasText: /^ready$/ }).waitFor();
    await front.page.getByPlaceholder('Message').fill(text);
    await front.page.getByPlaceholder('Message').press('Enter');
  }
});

/** What the documents leave to the machine: addresses, and where packages come from. */
function environment(ports) {
  const mine = Object.entries(process.env).filter(([name]) => !/^(ADK_BRIDGE_|CARGO_TARGET_DIR$|FORCE_COLOR$|NODE_)/.test(name));
  return {
    ...Object.fromEntries(mine),
    ADK_BRIDGE__SERVER__LISTEN: `127.0.0.1:${ports['8080']}`,
    // What was fetched once is not asked for again.
    npm_config_prefer_offline: String(!NEWEST),
    // It is compiled once only.
    CARGO_INCREMENTAL: '0',
    NO_COLOR: '1',
  };
}

/** A command with the port that a document takes for granted, and with Google's packages, which take minutes to install, from where they are. */
function onThisMachine(command, ports) {
  if (command.startsWith('adk api_server ')) return `${command} --port ${ports['8000']}`;
  if (NEWEST) return command;
  if (command === 'python3 -m venv .venv') return `ln -s '${dirname(dirname(PYTHON))}' .venv`;
  if (command === 'pip install google-adk') return 'pip show --quiet google-adk';
  return command;
}

/** Packages in the versions of the example that is the same page, so that a day of others' releases breaks no test. */
function pinned(text, read) {
  if (NEWEST) return text;
  const { packages } = JSON.parse(read('examples/package-lock.json'));
  return text.replaceAll(/^npm install .*/gm, (line) => {
    const words = line.split(' ').slice(2);
    const versions = words.map((word) => (word.startsWith('--') ? word : `${word}@${packages[`node_modules/${word}`].version}`));
    return `npm install ${versions.join(' ')}`;
  });
}

const server = (url) => ({
  url,
  json: async (path) => (await fetch(url + path)).json(),
});
