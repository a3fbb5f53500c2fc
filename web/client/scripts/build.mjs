// Builds `dist`: modules and types by the compiler, worklets as one file each.

import { spawnSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';

const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const worklets = join(root, 'src/worklets');

rmSync(join(root, 'dist'), { recursive: true, force: true });
const tsc = join(root, 'node_modules/typescript/bin/tsc');
const { status } = spawnSync(process.execPath, [tsc, '-p', 'tsconfig.build.json'], { cwd: root, stdio: 'inherit' });
if (status !== 0) process.exit(status ?? 1);

// A worklet is loaded by its address, so that it cannot share modules with the rest under every bundler.
if (existsSync(worklets)) {
  const entries = readdirSync(worklets).filter((name) => /\.(worklet|worker)\.ts$/.test(name));
  await build({
    entryPoints: entries.map((name) => join(worklets, name)),
    outdir: join(root, 'dist/worklets'),
    bundle: true,
    format: 'esm',
    target: 'es2022',
    sourcemap: true,
  });
}
