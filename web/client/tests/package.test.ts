/** The package as others get it: its size, its exports with their words, its examples, and that it works elsewhere. */

import { execFileSync } from 'node:child_process';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { basename, join } from 'node:path';
import { gzipSync } from 'node:zlib';

import { build } from 'esbuild';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';

import { blocksOf, documents } from '../../documents/blocks.mjs';
import { startServer, type Server } from './server.js';

const root = join(import.meta.dirname, '..');
/** Without React, models and worklets. */
const MAX_CORE_BYTES = 18_000;

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
  const { outputFiles, metafile } = await build({
    entryPoints: [join(root, 'src/index.ts')],
    bundle: true,
    splitting: true,
    metafile: true,
    minify: true,
    format: 'esm',
    external: ['ai'],
    outdir: directory,
    write: false,
  });
  // What is fetched only when it is needed does not count.
  const isStatic = new Set([
    'index.js',
    ...Object.entries(metafile.outputs)
      .filter(([path]) => path.endsWith('index.js'))
      .flatMap(([, { imports }]) => imports.filter(({ kind }) => kind === 'import-statement').map(({ path }) => basename(path))),
  ]);
  const parts = outputFiles.filter(({ path }) => isStatic.has(basename(path)));
  const bytes = parts.reduce((sum, { contents }) => sum + gzipSync(contents, { level: 9 }).length, 0);
  expect(bytes).toBeLessThanOrEqual(MAX_CORE_BYTES);
  expect(bytes).toBeGreaterThan(1000);
});

it('what is not used stays out', async () => {
  writeFileSync(join(directory, 'one.ts'), `export { sendAutomaticallyWhen } from '${join(root, 'src/index.ts')}';`);
  const { outputFiles } = await build({
    entryPoints: [join(directory, 'one.ts')],
    bundle: true,
    minify: true,
    format: 'esm',
    external: ['ai'],
    write: false,
  });
  expect(outputFiles[0]?.contents.length).toBeLessThan(3000);
});

describe('sources', () => {
  it.each(sources().map((path) => [path.slice(root.length + 1), path]))(
    '%s opens with one sentence, is short, and is silent',
    (_name, path) => {
      const text = readFileSync(path, 'utf8');
      expect(text).toMatch(/^\/\*\*\s/);
      expect(text.split('\n').length).toBeLessThanOrEqual(600);
      expect(text).not.toMatch(/\bconsole\.|\bdebugger\b|TODO|FIXME/);
    },
  );

  it('every export has words', () => {
    const exported = ['index.ts', 'react/index.ts', 'audio/dsp.ts']
      .map((name) => join(root, 'src', name))
      .flatMap((entry) =>
        [...readFileSync(entry, 'utf8').matchAll(/export (?:type )?\{([^}]+)\} from '([^']+)'/g)].flatMap(([, names, file]) =>
          (names ?? '')
            .split(',')
            .map((name) => name.replace('type ', '').trim())
            .filter(Boolean)
            .map((name) => [name, join(entry, '..', (file ?? '').replace('.js', '.ts'))] as const),
        ),
      );
    expect(exported.length).toBeGreaterThan(40);
    const entry = join(root, 'src/audio/silero-detector.ts');
    const named = [...readFileSync(entry, 'utf8').matchAll(/^export (?:class|interface) (\w+)/gm)].map(
      ([, name = '']) => [name, entry] as const,
    );
    expect(named.length).toBeGreaterThan(1);
    const bare = [...exported, ...named].filter(([name, file]) => {
      const text = readFileSync(file, 'utf8');
      const at = text.search(new RegExp(`export (?:abstract )?(?:async )?(?:class|function|interface|type|const) ${name}\\b`));
      return at === -1 || !/\*\/\s*$/.test(text.slice(0, at));
    });
    expect(bare.map(([name]) => name)).toEqual([]);
  });
});

describe('examples', () => {
  it.each(['tsconfig.json', 'tsconfig.v6.json'])(
    'of all documents compile (%s)',
    (config) => {
      const place = join(root, 'node_modules', '.examples', config);
      rmSync(place, { recursive: true, force: true });
      mkdirSync(place, { recursive: true });
      const found = documents()
        .flatMap(blocksOf)
        .filter(({ language }) => ['ts', 'tsx'].includes(language));
      expect(found.length).toBeGreaterThan(8);
      // Named after their place, so that an error says where it is.
      found.forEach(({ path, line, language, text }) =>
        writeFileSync(join(place, `${path.replaceAll('/', '-')}-${line}.${language}`), text),
      );
      const v6 = config.includes('v6')
        ? { ai: [join(root, 'node_modules/ai-6')], '@ai-sdk/react': [join(root, 'node_modules/ai-sdk-react-3')] }
        : {};
      const paths = {
        '@adk-bridge/client': [join(root, 'src/index.ts')],
        '@adk-bridge/client/react': [join(root, 'src/react/index.ts')],
        ...v6,
      };
      writeFileSync(
        join(place, 'tsconfig.json'),
        JSON.stringify({
          extends: join(root, 'tsconfig.json'),
          compilerOptions: { paths, types: ['react'] },
          include: ['*.ts', '*.tsx'],
        }),
      );
      execFileSync(process.execPath, [join(root, 'node_modules/typescript/bin/tsc'), '-p', place], {
        encoding: 'utf8',
        stdio: 'pipe',
      });
    },
    60_000,
  );
});

describe('what is packed', () => {
  let server: Server;
  let archive: string;
  beforeAll(async () => {
    server = await startServer();
    // The steps before have built it; packing would build it once more.
    const args = ['pack', '--json', '--ignore-scripts', '--pack-destination', directory];
    const output = execFileSync('npm', args, { cwd: root, encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] });
    const [packed] = JSON.parse(output) as { filename: string; files: { path: string }[] }[];
    archive = join(directory, packed?.filename ?? '');
    const paths = packed?.files.map(({ path }) => path) ?? [];
    expect(paths).toEqual(expect.arrayContaining(PACKED));
  });
  afterAll(() => server.stop());

  it.each([
    ['v6', 'ai-6', 'ai-sdk-react-3'],
    ['v7', 'ai', '@ai-sdk/react'],
  ])('works elsewhere, with AI SDK %s', (version, ai, react) => {
    const place = join(directory, version);
    const modules = join(place, 'node_modules');
    const home = join(modules, '@adk-bridge/client');
    mkdirSync(home, { recursive: true });
    mkdirSync(join(modules, '@ai-sdk'));
    execFileSync('tar', ['xzf', archive, '-C', home, '--strip-components=1']);
    const links = [
      [ai, 'ai'],
      [react, '@ai-sdk/react'],
      ['react', 'react'],
      ['@types', '@types'],
    ];
    for (const [from = '', to = ''] of links) symlinkSync(join(root, 'node_modules', from), join(modules, to));
    writeFileSync(join(place, 'package.json'), '{"type":"module"}');
    writeFileSync(join(place, 'use.ts'), USE);
    writeFileSync(join(place, 'tsconfig.json'), JSON.stringify({ compilerOptions: USE_OPTIONS, include: ['use.ts'] }));
    const run = (...args: string[]) => execFileSync(process.execPath, args, { cwd: place, encoding: 'utf8', stdio: 'pipe' });
    run(join(root, 'node_modules/typescript/bin/tsc'), '-p', place);
    expect(JSON.parse(run('use.js', server.url))).toEqual({
      predicate: true,
      answer: 'hello',
      functions: Array(5).fill('function'),
      worklets: [true, true, true],
    });
  });
});

const PACKED = [
  ...['index', 'react/index', 'audio/dsp', 'audio/silero-detector'].flatMap((name) => [
    `dist/${name}.js`,
    `dist/${name}.js.map`,
    `dist/${name}.d.ts`,
  ]),
  ...['player.worklet', 'recorder.worklet', 'silero.worker'].flatMap((name) => [
    `dist/worklets/${name}.js`,
    `dist/worklets/${name}.js.map`,
  ]),
  'README.md',
  'LICENSE',
];

const USE_OPTIONS = { target: 'es2022', module: 'nodenext', strict: true, skipLibCheck: true, types: ['node', 'react'] };

/** A program that uses every entry of the package, and says `hello` to a server. */
const USE = `
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { Chat } from '@ai-sdk/react';
import { buildUseChatOptions, defineClientTools, LiveChatTransport, sendAutomaticallyWhen } from '@adk-bridge/client';
import { wavOf } from '@adk-bridge/client/dsp';
import { useBridgeChat, useVoice, type BridgeChat } from '@adk-bridge/client/react';
import { SileroDetector } from '@adk-bridge/client/silero';

const clientTools = defineClientTools({ pick_color: () => 'teal' });
const chat = new Chat(buildUseChatOptions({ mode: 'sse', baseUrl: process.argv[2], clientTools }));
await chat.sendMessage({ text: 'say hello' });
export const useIt = (id: string): BridgeChat => useBridgeChat({ mode: 'live', id, clientTools });
console.log(
  JSON.stringify({
    predicate: sendAutomaticallyWhen({ messages: [{ role: 'assistant', parts: [{ type: 'tool-pay', state: 'approval-responded' } as { type: string }] }] }),
    answer: chat.lastMessage?.parts.map((part) => (part.type === 'text' ? part.text : '')).join(''),
    functions: [LiveChatTransport, SileroDetector, useBridgeChat, useVoice, wavOf].map((value) => typeof value),
    worklets: ['player.worklet', 'recorder.worklet', 'silero.worker'].map((name) =>
      existsSync(fileURLToPath(import.meta.resolve('@adk-bridge/client/worklets/' + name + '.js'))),
    ),
  }),
);
`;
