// Checks the types with both versions of the AI SDK, builds the package, and runs its tests.
//
// usage: node scripts/test.mjs PATH_OF_ADK_BRIDGE [ARGUMENTS OF VITEST]

import { spawnSync } from 'node:child_process';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const TOOLS = { tsc: 'typescript/bin/tsc', vitest: 'vitest/vitest.mjs' };
const CHROMIUM_NAMES = ['chromium', 'chromium-browser', 'google-chrome', 'google-chrome-stable'];

const [binary, ...rest] = process.argv.slice(2);
if (binary === undefined) {
  console.error('usage: node scripts/test.mjs PATH_OF_ADK_BRIDGE [ARGUMENTS OF VITEST]');
  process.exit(2);
}

const directories = (process.env.PATH ?? '').split(delimiter);
const chromium = CHROMIUM_NAMES.flatMap((name) => directories.map((path) => join(path, name))).find(existsSync);
const report = mkdtempSync(join(tmpdir(), 'adk-bridge-report-'));
const env = { ...process.env, ADK_BRIDGE_BINARY: resolve(binary), ...(chromium && { CHROMIUM: chromium }) };

run('tsc', ['-p', 'tsconfig.json']);
run('tsc', ['-p', 'tsconfig.v6.json']);
finish(spawnSync(process.execPath, ['scripts/build.mjs'], { cwd: root, stdio: 'inherit' }).status);
const outcome = join(report, 'report.json');
const { status } = tool('vitest', ['run', '--reporter=default', '--reporter=json', `--outputFile.json=${outcome}`, ...rest]);
const { numPassedTests, numFailedTests, success } = JSON.parse(readFileSync(outcome, 'utf8'));
rmSync(report, { recursive: true });
// A file that cannot be loaded fails without a test of its own.
console.log(`client: ${numPassedTests} passed, ${success ? 0 : Math.max(1, numFailedTests)} failed`);
process.exit(status ?? 1);

function run(name, args) {
  finish(tool(name, args).status);
}

function finish(status) {
  if (status !== 0) process.exit(status ?? 1);
}

function tool(name, args) {
  return spawnSync(process.execPath, [join(root, 'node_modules', TOOLS[name]), ...args], { cwd: root, stdio: 'inherit', env });
}
