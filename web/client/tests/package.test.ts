/** The package as others get it: its size, its exports with their words, its examples, and that it works elsewhere. */

import { execFileSync } from 'node:child_process';
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { gzipSync } from 'node:zlib';

import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

const root = join(import.meta.dirname, '..');
/** Without React, models and worklets. */
const MAX_CORE_BYTES = 15_000;

let directory: string;
beforeAll(() => {
  directory = mkdtempSync(join(tmpdir(), 'adk-bridge-package-'));
});
afterAll(() => rmSync(directory, { recursive: true, force: true }));

const sources = (path = join(root, 'src')): string[] =>
  readdirSync(path).flatMap((name) => {
    const full = join(path, name);
    return statSync(full).isDirectory() ? sources(full) : [full];
  });

it('the core is small', async () => {
  const { outputFiles, metafile } = await build({ entryPoints: [join(root, 'src/index.ts')], bundle: true, splitting: true, metafile: true, minify: true, format: 'esm', external: ['ai'], outdir: directory, write: false });
  // What is fetched only when it is needed does not count.
  const isStatic = new Set(['index.js', ...Object.entries(metafile.outputs).filter(([path]) => path.endsWith('index.js')).flatMap(([, { imports }]) => imports.filter(({ kind }) => kind === 'import-statement').map(({ path }) => basename(path)))]);
  const parts = outputFiles.filter(({ path }) => isStatic.has(basename(path)));
  const bytes = parts.reduce((sum, { contents }) => sum + gzipSync(contents, { level: 9 }).length, 0);
  expect(bytes).toBeLessThanOrEqual(MAX_CORE_BYTES);
  expect(bytes).toBeGreaterThan(1000);
});

it('what is not used stays out', async () => {
  writeFileSync(join(directory, 'one.ts'), `export { sendAutomaticallyWhen } from '${join(root, 'src/index.ts')}';`);
  const { outputFiles } = await build({ entryPoints: [join(directory, 'one.ts')], bundle: true, minify: true, format: 'esm', external: ['ai'], write: false });
  expect(outputFiles[0]?.contents.length).toBeLessThan(3000);
});

describe('sources', () => {
  it.each(sources().map((path) => [path.slice(root.length + 1), path]))('%s opens with one sentence, is short, and is silent', (_name, path) => {
    const text = readFileSync(path, 'utf8');
    expect(text).toMatch(/^\/\*\*\s/);
    expect(text.split('\n').length).toBeLessThanOrEqual(600);
    expect(text).not.toMatch(/\bconsole\.|\bdebugger\b|TODO|FIXME/);
  });

  it('every export has words', () => {
    const exported = [join(root, 'src/index.ts'), join(root, 'src/react/index.ts')].flatMap((entry) =>
      [...readFileSync(entry, 'utf8').matchAll(/export (?:type )?\{([^}]+)\} from '([^']+)'/g)].flatMap(([, names, file]) =>
        (names ?? '').split(',').map((name) => name.replace('type ', '').trim()).filter(Boolean).map((name) => [name, join(entry, '..', (file ?? '').replace('.js', '.ts'))] as const),
      ),
    );
    expect(exported.length).toBeGreaterThan(40);
    const bare = exported.filter(([name, file]) => {
      const text = readFileSync(file, 'utf8');
      const at = text.search(new RegExp(`export (?:abstract )?(?:async )?(?:class|function|interface|type|const) ${name}\\b`));
      return at === -1 || !/\*\/\s*$/.test(text.slice(0, at));
    });
    expect(bare.map(([name]) => name)).toEqual([]);
  });
});

describe('examples', () => {
  /** The blocks of a page that are TypeScript. */
  const blocks = (path: string) => [...readFileSync(path, 'utf8').matchAll(/^```(tsx?)\n([\s\S]*?)^```$/gm)].map(([, kind, code]) => ({ kind, code }));

  it.each(['tsconfig.json', 'tsconfig.v6.json'])('of README.md and PROTOCOL.md compile (%s)', (config) => {
    const place = join(root, 'node_modules', '.examples', config);
    rmSync(place, { recursive: true, force: true });
    mkdirSync(place, { recursive: true });
    const found = [join(root, 'README.md'), join(root, '../../PROTOCOL.md')].map(blocks);
    expect(found.map(({ length }) => length)).toEqual([4, 3]);
    found.flat().forEach(({ kind, code }, index) => writeFileSync(join(place, `example${index}.${kind}`), code ?? ''));
    const v6 = config.includes('v6') ? { ai: [join(root, 'node_modules/ai-6')], '@ai-sdk/react': [join(root, 'node_modules/ai-sdk-react-3')] } : {};
    const paths = { '@adk-bridge/client': [join(root, 'src/index.ts')], '@adk-bridge/client/react': [join(root, 'src/react/index.ts')], ...v6 };
    writeFileSync(join(place, 'tsconfig.json'), JSON.stringify({ extends: join(root, 'tsconfig.json'), compilerOptions: { paths, types: ['react'] }, include: ['*.ts', '*.tsx'] }));
    execFileSync(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', place], { encoding: 'utf8', stdio: 'pipe' });
  }, 60_000);
});

it('what is packed works elsewhere, and everything that it names is in it', () => {
  // The steps before have built it; packing builds it once more.
  const [packed] = JSON.parse(execFileSync('npm', ['pack', '--json', '--ignore-scripts', '--pack-destination', directory], { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] })) as { filename: string; files: { path: string }[] }[];
  const paths = packed?.files.map(({ path }) => path) ?? [];
  for (const path of ['dist/index.js', 'dist/index.d.ts', 'dist/index.js.map', 'dist/react/index.js', 'dist/worklets/player.worklet.js', 'dist/worklets/recorder.worklet.js', 'README.md', 'LICENSE']) {
    expect(paths).toContain(path);
  }
  const home = join(directory, 'node_modules/@adk-bridge/client');
  mkdirSync(home, { recursive: true });
  execFileSync('tar', ['xzf', join(directory, packed?.filename ?? ''), '-C', home, '--strip-components=1']);
  for (const name of ['ai', 'react', '@ai-sdk']) symlinkSync(join(root, 'node_modules', name), join(directory, 'node_modules', name));
  cpSync(join(home, 'package.json'), join(directory, 'copy.json'));
  writeFileSync(
    join(directory, 'use.mjs'),
    `import { sendAutomaticallyWhen, LiveChatTransport } from '@adk-bridge/client';
     import { useBridgeChat, useVoice } from '@adk-bridge/client/react';
     import { existsSync } from 'node:fs';
     import { fileURLToPath } from 'node:url';
     const worklet = fileURLToPath(import.meta.resolve('@adk-bridge/client/worklets/player.worklet.js'));
     const messages = [{ role: 'assistant', parts: [{ type: 'tool-pay', state: 'approval-responded' }] }];
     console.log([sendAutomaticallyWhen({ messages }), typeof LiveChatTransport, typeof useBridgeChat, typeof useVoice, existsSync(worklet)].join());`,
  );
  expect(execFileSync(process.execPath, [join(directory, 'use.mjs')], { encoding: 'utf8' }).trim()).toBe('true,function,function,function,true');
}, 60_000);
