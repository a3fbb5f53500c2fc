// The packages that `cargo xtask release` has made: checked, installed into empty places, and used.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { copyFileSync, existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { TARGET } from '../web/target.mjs';
import { isInChangelog, version } from './build.mjs';
import { NOTICES, notices } from './notices.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..');
// A program stops within its drain; a busy machine takes its time.
const WAIT_LIMIT_MS = 60_000;
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

  /** Starts the program in an empty place, has a conversation with it, and asks it to stop. */
  async function serves(program, args, cwd) {
    assert.equal(run(program, [...args, '--version'], { cwd }).trim(), `adk-bridge ${version()}`);
    const options = { cwd, stdio: ['ignore', 'pipe', 'inherit'], detached: true };
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
      const shown = await Promise.all(['/', '/docs/getting-started'].map((path) => fetch(url + path)));
      for (const { status, headers } of shown) assert.deepEqual([status, headers.has('etag')], [200, true]);
      server.kill('SIGTERM');
      await within(closed, 'it to stop');
    } finally {
      kill(server);
    }
  }

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
    assert.equal(run('npx', ['--no-install', 'adk-bridge', '--version'], { cwd: path }).trim(), `adk-bridge ${version()}`);
    // What npx becomes; it does not pass on signals itself.
    await serves(join(path, 'node_modules/.bin/adk-bridge'), [], path);
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
    const env = { ...process.env, CARGO_TARGET_DIR: join(TARGET, 'packages') };
    run('cargo', ['run', '--quiet', '--offline'], { cwd: path, env });
  });

  test('the sources are whole: cargo takes them with their lock file', () => {
    const path = empty('sources');
    run('tar', ['-xzf', sources()], { cwd: path });
    const inside = join(path, `adk-bridge-${version()}`);
    run('cargo', ['metadata', '--locked', '--offline', '--format-version=1'], { cwd: inside, maxBuffer: Infinity });
    for (const needed of ['web/ui/package-lock.json', 'web/docs/package-lock.json', 'deploy/Dockerfile', 'LICENSE'])
      assert.ok(existsSync(join(inside, needed)), needed);
  });

  test('publint and attw find nothing in the npm packages', () => {
    for (const packed of [client(), main(), platform()]) tool('publint', ['run', packed, '--strict', '--pack', 'false']);
    tool('attw', [client(), ...ATTW]);
  });

  test('all packages have one version, which the changelog and the manifests name', () => {
    const read = (path) => readFileSync(join(root, path), 'utf8');
    assert.equal(JSON.parse(read('web/client/package.json')).version, version());
    for (const path of ['packages/README.md', 'web/client/README.md', 'deploy/kubernetes/deployment.yaml']) {
      const named = [...read(path).matchAll(/adk[-_]bridge[-_:a-z0-9]*[-:](\d+\.\d+\.\d+)/g)].map(([, found]) => found);
      assert.ok(named.length > 0, path);
      for (const found of named) assert.equal(found, version(), path);
    }
    assert.ok(isInChangelog(version()));
  });

  test('a version that the changelog does not describe is not released', () => {
    assert.equal(isInChangelog('9.9.9'), false);
    assert.equal(isInChangelog(version().slice(0, -1)), false);
  });
});

/** The example in the documentation of a module, as a program. */
function exampleOf(path) {
  const text = readFileSync(path, 'utf8').replaceAll(/^\/\/! ?/gm, '');
  const [, code] = /```\n([\s\S]*?)```/.exec(text);
  return `fn main() {\n${code.replaceAll(/^# /gm, '')}}\n`;
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
