// Makes the packages of a release from a program that was built: an archive, npm packages, a Python wheel, checksums.
//
// usage: node packages/build.mjs BINARY DIRECTORY [CRATES]
//
// CRATES is where `cargo package` has put crates: with it, the protocol crate and the sources are added. ADK_BRIDGE_REPOSITORY is the
// address of the sources, for the packages to name; `cargo xtask release` sets it.

import { execFileSync, execSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import {
  chmodSync,
  copyFileSync,
  cpSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const here = dirname(fileURLToPath(import.meta.url));
const root = join(here, '..');

/** The platforms that there are packages for, in the words of Node.js; .github/workflows/ci.yml has a runner for each. */
export const PLATFORMS = ['darwin-arm64', 'darwin-x64', 'linux-arm64', 'linux-x64', 'win32-x64'];

const LICENSES = ['LICENSE', 'THIRD-PARTY-NOTICES.txt'].map((name) => join(root, name));

export function version() {
  const [, found] = /^version = "([^"]+)"/m.exec(readFileSync(join(root, 'Cargo.toml'), 'utf8'));
  return found;
}

/** Whether the changelog says what a version brings. */
export function isInChangelog(version) {
  const headings = readFileSync(join(root, 'CHANGELOG.md'), 'utf8').matchAll(/^## \[?(\d+\.\d+\.\d+)[\] (]/gm);
  return [...headings].some(([, found]) => found === version);
}

/** Makes everything that has the program for this machine's platform, and the library. */
export function build(binary, directory) {
  const platform = `${process.platform}-${process.arch}`;
  if (!PLATFORMS.includes(platform)) throw new Error(`there is no package for ${platform}`);
  mkdirSync(directory, { recursive: true });
  const work = mkdtempSync(join(tmpdir(), 'adk-bridge-packages-'));
  try {
    archive(binary, platform, directory, work);
    pack(platformPackage(binary, platform, work), directory);
    pack(mainPackage(work), directory);
    pack(clientPackage(work), directory);
    wheel(binary, platform, directory, work);
  } finally {
    rmSync(work, { recursive: true, force: true });
  }
  sums(directory);
}

/** Adds what is the same on every platform: the protocol crate, and the sources, which container images are built from. */
function addSources(crates, directory) {
  copyInto(join(crates, `adk-bridge-protocol-${version()}.crate`), directory);
  const name = `adk-bridge-${version()}`;
  const file = join(resolve(directory), `${name}-source.tar.gz`);
  execFileSync('git', ['archive', '--format=tar.gz', `--prefix=${name}/`, `--output=${file}`, 'HEAD'], { cwd: root });
  sums(directory);
}

const fileName = (platform) => (platform.startsWith('win32') ? 'adk-bridge.exe' : 'adk-bridge');

function archive(binary, platform, directory, work) {
  const name = `adk-bridge-${version()}-${platform}`;
  const place = join(work, name);
  mkdirSync(place);
  program(binary, join(place, fileName(platform)));
  for (const path of [...LICENSES, join(root, 'adk-bridge.example.toml')]) copyInto(path, place);
  writeFileSync(join(place, 'README.md'), programReadme());
  execFileSync('tar', ['-czf', join(resolve(directory), `${name}.tar.gz`), '-C', work, name]);
}

/** What the program is, for those who have it without npm. */
const programReadme = () => readFileSync(join(here, 'npm/README.md'), 'utf8').replaceAll('npx adk-bridge', 'adk-bridge');

/** The program alone; npm installs it where it fits. */
function platformPackage(binary, platform, work) {
  const [os, cpu] = platform.split('-');
  const place = join(work, platform);
  mkdirSync(place);
  program(binary, join(place, fileName(platform)));
  const { license, publishConfig } = manifest(join(here, 'npm'));
  const libc = os === 'linux' ? { libc: ['glibc'] } : {};
  write(place, {
    name: `@adk-bridge/${platform}`,
    version: version(),
    description: `The program of adk-bridge for ${platform}`,
    license,
    ...repository('packages'),
    os: [os],
    cpu: [cpu],
    ...libc,
    files: [fileName(platform), 'THIRD-PARTY-NOTICES.txt'],
    publishConfig,
  });
  writeFileSync(join(place, 'README.md'), `# adk-bridge for ${platform}\n\nInstalled by the package \`adk-bridge\`.\n`);
  for (const path of LICENSES) copyInto(path, place);
  return place;
}

function mainPackage(work) {
  const place = join(work, 'main');
  mkdirSync(place);
  const optionalDependencies = Object.fromEntries(PLATFORMS.map((platform) => [`@adk-bridge/${platform}`, version()]));
  const { name, ...rest } = manifest(join(here, 'npm'));
  write(place, { name, version: version(), ...repository('packages/npm'), ...rest, optionalDependencies });
  for (const path of [join(here, 'npm/adk-bridge.js'), join(here, 'npm/README.md'), join(root, 'LICENSE')]) copyInto(path, place);
  chmodSync(join(place, 'adk-bridge.js'), 0o755);
  return place;
}

/** The library, built, with what its own manifest cannot say. */
function clientPackage(work) {
  const from = join(root, 'web/client');
  const place = join(work, 'client');
  mkdirSync(place);
  execFileSync(process.execPath, ['scripts/build.mjs'], { cwd: from, stdio: ['ignore', 'ignore', 'inherit'] });
  const { name, version, description, license, scripts: _scripts, ...rest } = manifest(from);
  write(place, { name, version, description, license, ...repository('web/client'), ...rest });
  for (const path of [...rest.files, 'README.md', 'LICENSE']) cpSync(join(from, path), join(place, path), { recursive: true });
  return place;
}

/** Where the sources are, in the form of npm, if that is known. */
function repository(directory) {
  const url = process.env.ADK_BRIDGE_REPOSITORY;
  return url ? { repository: { type: 'git', url: `git+${url}.git`, directory } } : {};
}

/** By a shell, without which Node.js starts no script of Windows such as `npm.cmd`; nothing has to be quoted for it. */
function pack(place, directory) {
  const env = { ...process.env, npm_config_pack_destination: resolve(directory) };
  execSync('npm pack --silent', { cwd: place, env, stdio: ['ignore', 'ignore', 'inherit'] });
}

function wheel(binary, platform, directory, work) {
  const readme = join(work, 'README.md');
  writeFileSync(readme, programReadme());
  const args = [join(here, 'wheel.py'), binary, version(), platform, directory, readme, ...LICENSES];
  execFileSync(process.platform === 'win32' ? 'python' : 'python3', args, { stdio: ['ignore', 'ignore', 'inherit'] });
}

/** What everything in the directory hashes to, as `sha256sum --check` reads it. */
function sums(directory) {
  const names = readdirSync(directory)
    .filter((name) => name !== 'SHA256SUMS')
    .sort();
  const lines = names.map(
    (name) =>
      `${createHash('sha256')
        .update(readFileSync(join(directory, name)))
        .digest('hex')}  ${name}\n`,
  );
  writeFileSync(join(directory, 'SHA256SUMS'), lines.join(''));
}

/** Copies a program without its debug information, which is most of it. Names of functions stay for backtraces. */
function program(from, to) {
  copyFileSync(from, to);
  chmodSync(to, 0o755);
  // Programs for Windows have theirs in a file of its own.
  if (process.platform !== 'win32') execFileSync('strip', ['-S', to]);
}

function copyInto(path, directory) {
  copyFileSync(path, join(directory, path.slice(dirname(path).length + 1)));
}

function manifest(directory) {
  return JSON.parse(readFileSync(join(directory, 'package.json'), 'utf8'));
}

function write(directory, content) {
  writeFileSync(join(directory, 'package.json'), `${JSON.stringify(content, undefined, 2)}\n`);
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [binary, directory, crates] = process.argv.slice(2);
  if (directory === undefined) {
    console.error('usage: node packages/build.mjs BINARY DIRECTORY [CRATES]');
    process.exit(2);
  }
  if (!isInChangelog(version())) {
    console.error(`CHANGELOG.md has no heading "## [${version()}] - DATE": say there what this version brings`);
    process.exit(1);
  }
  build(binary, directory);
  if (crates !== undefined) addSources(crates, directory);
  for (const name of readdirSync(directory).sort()) console.log(join(directory, name));
}
