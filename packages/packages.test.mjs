// The packages that `cargo xtask release` has made: checked, installed into empty places, and used.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { PIPX, TARGET } from '../web/target.mjs';
import { isInChangelog, version } from './build.mjs';
import { shareCompiled } from './compiled.mjs';
import { NOTICES, notices } from './notices.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..');
// A program stops within its drain; a busy machine takes its time.
const WAIT_LIMIT_MS = 60_000;
/** Where what is unpacked is compiled. */
const BUILT_APART = join(TARGET, 'packages');
const PLATFORM = `${process.platform}-${process.arch}`;
// Types and modules for Node.js and bundlers; the package has nothing for `require`. Worklets are scripts without types.
const ATTW = ['--profile', 'esm-only', '--exclude-entrypoints', './worklets/*', './package.json'];

describe('packages', () => {
  let place;
  let made;
  before(() => {
    place = mkdtempSync(join(tmpdir(), 'adk-bridge-packages-'));
    made = join(TARGET, 'release-artifacts');
  });
  after(() => rmSync(place, { recursive: true, force: true }));

  const file = (pattern) => {
    const found = readdirSync(made).filter((name) => pattern.test(name));
    assert.equal(found.length, 1, `${pattern}: ${readdirSync(made)}`);
    return join(made, found[0]);
  };
  const client = () => file(/^adk-bridge-client-.*\.tgz$/);
  const main = () => file(new RegExp(`^adk-bridge-${version()}\\.tgz$`));
  const platform = () => file(new RegExp(`^adk-bridge-${PLATFORM}-${version()}\\.tgz$`));
  const wheel = () => file(/\.whl$/);
  const archive = () => file(new RegExp(`-${PLATFORM}\\.tar\\.gz$`));
  const sources = () => file(/-source\.tar\.gz$/);
  const crate = () => file(/\.crate$/);
  const empty = (name) => {
    const path = join(place, name);
    mkdirSync(path);
    return path;
  };
  const run = (program, args, options) => execFileSync(program, args, { encoding: 'utf8', stdio: 'pipe', ...options });
  const tool = (name, args) => run(join(here, 'node_modules/.bin', name), args);

  /** Starts the program in an empty place, has a conversation with it, and asks it to stop; `talk` is what happens in between. */
  async function serves(program, args, cwd, { env, ask = (server) => server.kill('SIGTERM'), talk = looksAtPages } = {}) {
    const all = { ...process.env, ...env };
    assert.equal(
      run(program, [...args, '--version'], { cwd, env: all })
        .trim()
        .split('\n')
        .at(-1),
      `adk-bridge ${version()}`,
    );
    const options = { cwd, env: all, stdio: ['ignore', 'pipe', 'inherit'], detached: true };
    const server = spawn(program, [...args, 'serve', '--listen', '127.0.0.1:0'], options);
    // Its output closes when everything that it started has ended.
    const closed = once(server, 'close');
    try {
      const url = await addressOf(server);
      const message = { role: 'user', parts: [{ type: 'text', text: 'what is the weather in Tokyo' }] };
      const answer = await fetch(`${url}/api/chat`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ id: 'first', messages: [message] }),
      });
      assert.match(await answer.text(), /"delta":"Tokyo\."[\s\S]*\[DONE\]/);
      await talk(url);
      ask(server);
      await within(closed, 'it to stop');
    } finally {
      kill(server);
    }
  }
  async function looksAtPages(url) {
    const shown = await Promise.all(['/', '/docs/getting-started'].map((path) => fetch(url + path)));
    for (const { status, headers } of shown) assert.deepEqual([status, headers.has('etag')], [200, true]);
    assert.match(await (await fetch(url, { headers: { accept: 'text/html' } })).text(), /<script type="module"/);
  }
  // What a terminal does: those who started the program get the signal as well.
  const ctrlC = (server) => process.kill(-server.pid, 'SIGINT');

  test('the notices are those of the packages in use', () => {
    const isNew = readFileSync(NOTICES, 'utf8') === notices();
    assert.ok(isNew, 'THIRD-PARTY-NOTICES.txt is old: run `node packages/notices.mjs`');
  });

  test('the checksums are those of the files', () => {
    const lines = run('sha256sum', ['--check', '--strict', 'SHA256SUMS'], { cwd: made }).trim().split('\n');
    assert.equal(lines.length, readdirSync(made).length - 1);
  });

  test('the archive holds the program with its licenses, and it serves', async () => {
    const path = empty('archive');
    run('tar', ['-xzf', archive()], { cwd: path });
    const [name] = readdirSync(path);
    const inside = readdirSync(join(path, name)).sort();
    assert.deepEqual(inside, ['LICENSE', 'README.md', 'THIRD-PARTY-NOTICES.txt', 'adk-bridge', 'adk-bridge.example.toml']);
    await serves(join(path, name, 'adk-bridge'), [], path);
  });

  test('npm installs the program, and npx starts it', async () => {
    const path = empty('npm');
    writeFileSync(join(path, 'package.json'), '{}');
    // Those of other platforms are not there.
    run('npm', ['install', '--omit=optional', '--no-audit', '--no-fund', main(), platform()], { cwd: path });
    await serves('npx', ['adk-bridge'], path, { ask: ctrlC });
    // What npx becomes stops when it alone is asked to.
    await serves(join(path, 'node_modules/.bin/adk-bridge'), [], path);
  });

  test("the front end library's own file talks to the installed program, and its user approves", async () => {
    const path = empty('library');
    writeFileSync(join(path, 'package.json'), '{"type":"module"}');
    const { packages } = JSON.parse(readFileSync(join(root, 'web/client/package-lock.json'), 'utf8'));
    // In the versions that it is tested with.
    const peers = ['ai', '@ai-sdk/react', 'react'].map((name) => `${name}@${packages[`node_modules/${name}`].version}`);
    const options = ['--prefer-offline', '--omit=optional', '--no-audit', '--no-fund'];
    run('npm', ['install', ...options, client(), main(), platform(), ...peers], { cwd: path });
    writeFileSync(join(path, 'pay.js'), PAY);
    await serves(join(path, 'node_modules/.bin/adk-bridge'), [], path, {
      talk: async (url) => {
        const said = JSON.parse(await output(process.execPath, ['pay.js', url], path));
        assert.deepEqual(said.asked, ['approval-requested']);
        assert.match(said.answer, /^Paid 50 USD to Hanako\./);
      },
    });
  });

  test('npm without the program of this platform says what is missing', () => {
    const path = empty('npm-alone');
    run('tar', ['-xzf', main()], { cwd: path });
    assert.throws(
      () => run(process.execPath, ['package/adk-bridge.js', 'serve'], { cwd: path }),
      ({ status, stderr }) => status === 1 && stderr.includes(`@adk-bridge/${PLATFORM} is not installed`),
    );
  });

  test('pip installs the wheel, and it serves', async () => {
    const path = empty('python');
    run('python3', ['-m', 'venv', 'venv'], { cwd: path });
    const bin = join(path, 'venv/bin');
    run(join(bin, 'pip'), ['install', '--no-index', '--disable-pip-version-check', wheel()], { cwd: path });
    const shown = run(join(bin, 'pip'), ['show', '--files', 'adk-bridge'], { cwd: path });
    assert.match(shown, /THIRD-PARTY-NOTICES\.txt/);
    await serves(join(bin, 'adk-bridge'), [], path);
  });

  test('pipx runs the wheel', async () => {
    const path = empty('pipx');
    const places = { PIPX_HOME: join(path, 'home'), PIPX_BIN_DIR: join(path, 'bin'), PIPX_MAN_DIR: join(path, 'man') };
    await serves(PIPX, ['run', '--spec', wheel(), 'adk-bridge'], path, { env: places, ask: ctrlC });
  });

  test('cargo installs the program with its page', async () => {
    const path = empty('cargo');
    // What the release has compiled already.
    const env = { ...process.env, CARGO_TARGET_DIR: TARGET };
    run('cargo', ['install', '--quiet', '--locked', '--offline', '--path', 'crates/server', '--root', path], { cwd: root, env });
    await serves(join(path, 'bin/adk-bridge'), [], path);
  });

  test('the crate can be used by a program of its own', () => {
    const path = empty('crate');
    run('tar', ['-xzf', crate()], { cwd: path });
    const [name] = readdirSync(path);
    const manifest = `[package]\nname = "user"\nversion = "1.0.0"\nedition = "2024"\n[dependencies]\nadk-bridge-protocol = { path = "${name}" }\n`;
    writeFileSync(join(path, 'Cargo.toml'), `${manifest}[workspace]\n`);
    // The versions that are tested; what this program does not use of them is left out.
    copyFileSync(join(root, 'Cargo.lock'), join(path, 'Cargo.lock'));
    mkdirSync(join(path, 'src'));
    writeFileSync(join(path, 'src/main.rs'), exampleOf(join(path, name, 'src/driver.rs')));
    const env = { ...process.env, CARGO_TARGET_DIR: BUILT_APART, CARGO_PROFILE_DEV_DEBUG: 'false' };
    run('cargo', ['run', '--quiet', '--offline'], { cwd: path, env });
  });

  test('the sources are whole: cargo builds the server of them with their lock file, and it serves', async () => {
    const path = empty('sources');
    run('tar', ['-xzf', sources()], { cwd: path });
    const inside = join(path, `adk-bridge-${version()}`);
    for (const needed of ['web/ui/package-lock.json', 'web/docs/package-lock.json', 'deploy/Dockerfile', 'LICENSE'])
      assert.ok(existsSync(join(inside, needed)), needed);
    rmSync(BUILT_APART, { recursive: true, force: true });
    shareCompiled(join(TARGET, 'debug'), join(BUILT_APART, 'debug'));
    const env = { ...process.env, CARGO_TARGET_DIR: BUILT_APART, CARGO_INCREMENTAL: '0' };
    run('cargo', ['build', '--quiet', '--locked', '--offline', '--package=adk-bridge'], { cwd: inside, env });
    // The page is built by another command; what builds it is tried by `cargo xtask release` itself.
    await serves(join(BUILT_APART, 'debug/adk-bridge'), [], path, { talk: async () => {} });
    rmSync(BUILT_APART, { recursive: true, force: true });
  });

  test('a release refuses what is not committed', () => {
    const clone = join(place, 'uncommitted');
    run('git', ['clone', '--quiet', '--depth=1', `file://${root}`, clone]);
    writeFileSync(join(clone, 'new.rs'), '');
    writeFileSync(join(clone, 'Cargo.toml'), '# changed');
    const env = { ...process.env, CARGO_MANIFEST_DIR: join(clone, 'xtask'), CARGO_TARGET_DIR: join(clone, 'target') };
    assert.throws(
      () => run(join(TARGET, 'debug/xtask'), ['release'], { cwd: clone, env }),
      ({ status, stderr }) => status === 1 && /committed files[\s\S]*M Cargo\.toml\n\?\? new\.rs\n/.test(stderr),
    );
    assert.ok(!existsSync(join(clone, 'target/release-artifacts')));
  });

  test('publint and attw find nothing in the npm packages', () => {
    for (const packed of [client(), main(), platform()]) tool('publint', ['run', packed, '--strict', '--pack', 'false']);
    tool('attw', [client(), ...ATTW]);
  });

  test('all packages say where their sources are', () => {
    const url = 'https://repository.example/adk-bridge';
    for (const packed of [client(), main(), platform()]) {
      const { repository } = JSON.parse(run('tar', ['-xzOf', packed, 'package/package.json']));
      assert.equal(repository.url, `git+${url}.git`, packed);
      assert.ok(existsSync(join(root, repository.directory)), repository.directory);
    }
    const manifest = run('tar', ['-xzOf', crate(), `adk-bridge-protocol-${version()}/Cargo.toml`]);
    assert.match(manifest, new RegExp(`^repository = "${url}"$`, 'm'));
    const metadata = run('python3', ['-c', METADATA, wheel()]);
    assert.match(metadata, new RegExp(`^Project-URL: Source, ${url}$`, 'm'));
  });

  test('all packages say what they are in the words of the README', () => {
    const plain = (text) => text.replaceAll(/\*\*|\[([^\]]+)\]\([^)]+\)/g, '$1').replaceAll(/\s+/g, ' ');
    const [, tagline, what] = readFileSync(join(root, 'README.md'), 'utf8').split('\n\n').map(plain);
    const { description } = JSON.parse(run('tar', ['-xzOf', main(), 'package/package.json']));
    assert.equal(`${description}.`, tagline);
    const metadata = run('python3', ['-c', METADATA, wheel()]);
    assert.match(metadata, new RegExp(`^Summary: ${description}$`, 'm'));
    const [directory] = run('tar', ['-tzf', archive()]).split('\n');
    const readmes = {
      npm: run('tar', ['-xzOf', main(), 'package/README.md']),
      wheel: metadata,
      archive: run('tar', ['-xzOf', archive(), `${directory}README.md`]),
    };
    for (const [name, text] of Object.entries(readmes)) {
      assert.ok(plain(text).includes(what), name);
      assert.match(text, /:8080\/docs\b/, name);
      // Nothing that is not in the package is linked.
      assert.doesNotMatch(text, /\]\(/, name);
      assert.equal(text.includes('npx'), name === 'npm', name);
    }
  });

  test('nothing starts a script of Windows without a shell, which Node.js refuses', () => {
    const sources = run('git', ['ls-files', '*.mjs', '*.js', '*.ts'], { cwd: root }).trim().split('\n');
    assert.ok(sources.length > 100, `only ${sources.length} files`);
    const named = sources.filter((path) => /["']\w+\.(cmd|bat)["']/.test(readFileSync(join(root, path), 'utf8')));
    assert.deepEqual(named, []);
  });

  test('all packages have one version, which the changelog and the manifests name', () => {
    const read = (path) => readFileSync(join(root, path), 'utf8');
    assert.equal(JSON.parse(read('web/client/package.json')).version, version());
    const named = {
      'deploy/kubernetes/deployment.yaml': /adk-bridge:(\d+\.\d+\.\d+)/g,
      'examples/rust/Cargo.toml': /tag = "v([^"]+)"/g,
    };
    for (const [path, form] of Object.entries(named)) {
      const found = [...read(path).matchAll(form)].map(([, number]) => number);
      assert.deepEqual([...new Set(found)], [version()], path);
    }
    // Where no number stands, none grows old.
    for (const path of ['packages/README.md', 'web/client/README.md']) {
      assert.match(read(path), /adk-bridge-(client-)?VERSION\.tgz/);
      assert.doesNotMatch(read(path), /adk[-_]bridge[-_a-z0-9]*-\d+\.\d+\.\d+/);
    }
    assert.ok(isInChangelog(version()));
  });

  test('a version that the changelog does not describe is not released', () => {
    assert.equal(isInChangelog('9.9.9'), false);
    assert.equal(isInChangelog(version().slice(0, -1)), false);
  });
});

/** A user who is asked by the library, agrees, and reads what comes of it. */
const PAY = `
import { Chat } from '@ai-sdk/react';
import { buildUseChatOptions, defineClientTools } from '@adk-bridge/client';

const options = buildUseChatOptions({ mode: 'sse', baseUrl: process.argv[2], clientTools: defineClientTools({}) });
let finish;
const chat = new Chat({ ...options, onFinish: () => finish?.() });
await chat.sendMessage({ text: 'pay Hanako 50 dollars' });
const asked = chat.lastMessage.parts.filter(({ approval }) => approval !== undefined);
const states = asked.map(({ state }) => state);
// The library sends the answer without more.
const finished = new Promise((resolve) => (finish = resolve));
await chat.addToolApprovalResponse({ id: asked[0].approval.id, approved: true });
await finished;
const [answer] = chat.lastMessage.parts.flatMap((part) => (part.type === 'text' ? [part.text] : []));
console.log(JSON.stringify({ asked: states, answer }));
`;

/** What a wheel says of itself. */
const METADATA = `
import sys, zipfile
wheel = zipfile.ZipFile(sys.argv[1])
print(*[wheel.read(name).decode() for name in wheel.namelist() if name.endswith('METADATA')])
`;

/** The example in the documentation of a module, as a program. */
function exampleOf(path) {
  const text = readFileSync(path, 'utf8').replaceAll(/^\/\/! ?/gm, '');
  const [, code] = /```\n([\s\S]*?)```/.exec(text);
  return `fn main() {\n${code.replaceAll(/^# /gm, '')}}\n`;
}

/** Runs a program to its end while this one goes on reading what its server says. */
async function output(program, args, cwd) {
  const child = spawn(program, args, { cwd, stdio: ['ignore', 'pipe', 'inherit'], timeout: WAIT_LIMIT_MS });
  let said = '';
  child.stdout.on('data', (piece) => (said += piece));
  const [code] = await once(child, 'close');
  assert.equal(code, 0, said);
  return said;
}

async function within(promise, what) {
  let timer;
  const late = new Promise((_resolve, reject) => {
    timer = setTimeout(() => reject(new Error(`waited too long for ${what}`)), WAIT_LIMIT_MS);
  });
  await Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

function addressOf(server) {
  return new Promise((resolve, reject) => {
    let log = '';
    server.on('error', reject);
    server.on('close', (code) => reject(new Error(`it ended with ${code}:\n${log}`)));
    server.stdout.on('data', (piece) => {
      log += piece;
      const found = /listening on (http:\/\/\S+)/.exec(log);
      if (found !== null) resolve(found[1]);
    });
  });
}

/** Ends a program and all that it started. */
function kill(server) {
  try {
    process.kill(-server.pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}
