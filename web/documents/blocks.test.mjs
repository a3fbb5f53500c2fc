// Every code block of the documents is claimed by one runner, and does there what its document says.

import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { existsSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { isSnippet, SNIPPETS } from '../proxies/proxies.mjs';
import { BINARY } from '../target.mjs';
import { blocksIn, blocksOf, documents, ROOT } from './blocks.mjs';
import { COMMANDS, commandsOf, rowsOf } from './commands.mjs';
import { World } from './world.mjs';

// Documents whose blocks are run by a test of their own, which has to name them.
const FIRST_HOUR = 'docs/getting-started.md';
const EXAMPLES = 'examples/tests/examples.test.mjs';
const PROTOCOL = 'PROTOCOL.md';
/** Blocks of text that nothing can run, each by its document and its first line. */
const PICTURES = [
  { path: 'ARCHITECTURE.md', begins: ' AI SDK front end', why: 'a drawing of the parts' },
  { path: PROTOCOL, begins: 'turn     =', why: 'a grammar; the tests of the stream hold it' },
];

const isShell = ({ language }) => language === 'sh' || language === 'bash';
const isTranslation = ({ path, language, text }) =>
  path === 'docs/adk.md' && (['jsonl', 'sse'].includes(language) || text.startsWith('adk-bridge translate events'));
const isExample = ({ path, language }) => path.startsWith('examples/') && language !== 'toml';
const isFirstHour = ({ path, language }) => path === FIRST_HOUR && language !== 'tsx';

/** Who runs which blocks; each block has one of them. Those without `run` are run by another test, which is named. */
const RUNNERS = {
  configuration: { claims: ({ language }) => language === 'toml', run: configuration },
  shell: { claims: (block) => isShell(block) && !isExample(block) && !isFirstHour(block) && !isTranslation(block), run: shell },
  'web/client/tests/package.test.ts': { claims: ({ language }) => language === 'tsx' || language === 'ts' },
  'web/proxies/proxies.test.mjs': { claims: (block) => SNIPPETS.some((comment) => isSnippet(block, comment)) },
  'crates/protocol/tests/protocol_doc.rs': {
    claims: ({ path, language }) => path === PROTOCOL && ['sse', 'jsonl'].includes(language),
  },
  'documentation tests of the crate': { claims: ({ path, language }) => language === 'rust' && isIncluded(path) },
  [EXAMPLES]: { claims: isExample, run: example },
  'packages/first-hour.test.mjs': {
    claims: (block) => isFirstHour(block) || (block.path === 'docs/adk.md' && block.language === 'python'),
    run: parsed,
  },
  translate: { claims: isTranslation, run: translation },
  usage: { claims: ({ language, text }) => language === 'text' && text.startsWith('adk-bridge '), run: usage },
  answer: { claims: ({ path, language }) => path === 'docs/approvals.md' && language === 'json', run: answer },
  tour: { claims: ({ path, language }) => path === PROTOCOL && language === 'json', run: tour },
  picture: {
    claims: ({ path, language, text }) =>
      language === 'text' && PICTURES.some((it) => it.path === path && text.startsWith(it.begins)),
  },
};

const runnersOf = (block) => Object.keys(RUNNERS).filter((name) => RUNNERS[name].claims(block));
const nameOf = ({ path, line, language }) => `${path}:${line} (${language || 'no language'})`;

describe('documents', () => {
  let world;
  before(async () => {
    world = await World.open();
  });
  after(() => world.end());

  const all = documents().flatMap(blocksOf);

  test('every block has one runner', () => {
    assert.ok(all.length > 60, `only ${all.length} blocks`);
    const wrong = all
      .filter((block) => runnersOf(block).length !== 1)
      .map((block) => `${nameOf(block)}: ${runnersOf(block).join(', ') || 'nothing runs it'}`);
    assert.deepEqual(wrong, []);
  });

  test('a block that nothing runs is found', () => {
    const blocks = blocksIn(
      'docs/adk.md',
      'a\n```ruby\nputs 1\n```\n```\nno language\n```\n- item\n\n  ```toml\n  a = 1\n  ```\n',
    );
    assert.deepEqual(
      blocks.map(({ line, text }) => [line, text]),
      [
        [2, 'puts 1\n'],
        [5, 'no language\n'],
        [10, 'a = 1\n'],
      ],
    );
    assert.deepEqual(blocks.map(runnersOf), [[], [], ['configuration']]);
    assert.throws(() => blocksIn('a.md', '```sh\nls\n'), /the block has no end/);
    assert.deepEqual(rowsOf('rm -rf /'), []);
  });

  test('every runner has something to run', () => {
    for (const [name, { claims }] of Object.entries(RUNNERS)) {
      if (name !== 'documentation tests of the crate') assert.ok(all.some(claims), name);
    }
    for (const { path, begins } of PICTURES)
      assert.ok(
        all.some((it) => it.path === path && it.text.startsWith(begins)),
        begins,
      );
  });

  for (const [name, { claims, run }] of Object.entries(RUNNERS)) {
    const mine = all.filter(claims);
    if (run === undefined) {
      for (const path of [name].filter((it) => it.includes('/'))) {
        test(`${name} is there`, () => assert.ok(existsSync(join(ROOT, path))));
      }
      continue;
    }
    for (const block of mine) test(nameOf(block), () => run(block, world));
  }

  test('every row of the commands is used', () => {
    const commands = all.filter(RUNNERS.shell.claims).flatMap(({ text }) => commandsOf(text));
    const unused = COMMANDS.filter(({ is }) => !commands.some((command) => is.test(command)));
    assert.deepEqual(
      unused.map(({ is }) => String(is)),
      [],
    );
  });
});

/** The bridge takes it as a configuration. */
async function configuration({ text, line }, world) {
  const file = world.write(`configuration-${line}.toml`, text);
  const { code, said } = await world.run(`adk-bridge check-config --config ${file}`);
  assert.equal(code, 0, said);
}

/** Each command is run, or only parsed where the table says why. */
async function shell(block, world) {
  parsed(block);
  const exports = [];
  for (const command of commandsOf(block.text)) {
    const [row] = rowsOf(command);
    assert.ok(row !== undefined, `nothing is known of the command \`${command}\`: add it to web/documents/commands.mjs`);
    if (row.xtask !== undefined) xtask(command);
    if (row.why !== undefined) await filesExist(command);
    if (row.why !== undefined || row.xtask !== undefined) continue;
    if (command.startsWith('export ')) exports.push(command);
    if (row.with !== undefined) await world[row.with]();
    const changed = typeof row.as === 'function' ? row.as(command) : (row.as ?? command);
    if (row.serves) {
      await world.serves(changed);
      continue;
    }
    const { code, said } = await world.run(changed, exports, row.apart ? world.apart : world.place);
    assert.ok((row.codes ?? [0]).includes(code), `\`${command}\` ended with ${code}:\n${said}`);
    if (row.seen !== undefined) assert.match(said, row.seen, command);
  }
}

/** bash, or Python, can read it. Other languages are read where they run. */
function parsed({ language, text }) {
  const input = { input: text, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'] };
  if (language === 'sh') execFileSync('bash', ['-n'], input);
  if (language === 'python') execFileSync('python3', ['-c', 'import ast, sys; ast.parse(sys.stdin.read())'], input);
}

/** The command, and the steps that it names, are there. */
function xtask(command) {
  const cargo = (...args) => execFileSync('cargo', ['xtask', ...args], { cwd: ROOT, encoding: 'utf8' });
  const [, , name, ...words] = command.split(' ');
  assert.match(cargo('help'), new RegExp(`^  ${name}\\b`, 'm'));
  if (name !== 'test') return;
  const steps = cargo('test', '--list')
    .split('\n')
    .map((line) => line.split(' ')[0]);
  for (const word of words.filter((it) => !it.startsWith('--'))) assert.ok(steps.includes(word), `there is no step ${word}`);
}

/** A command that is not run names tests that are there. */
function filesExist(command) {
  for (const [path] of command.matchAll(/\S+\.(test\.mjs|py)\b/g)) assert.ok(existsSync(join(ROOT, path)), path);
}

/** The examples' own test starts the folder. */
function example(block) {
  parsed(block);
  const name = dirname(block.path).split('/').at(-1);
  assert.ok(readFileSync(join(ROOT, EXAMPLES), 'utf8').includes(`'${name}`), `${EXAMPLES} does not name ${name}`);
}

/** The recording, the command and its result belong together. */
async function translation({ path }, world) {
  const [recording, command, stream] = blocksOf(path).filter(isTranslation);
  world.write('events.jsonl', recording.text);
  const { code, said } = await world.run(command.text.trim());
  assert.equal(code, 0, said);
  assert.equal(said.replaceAll('\n\n', '\n'), stream.text);
}

/** The program has the options that the line shows. */
function usage({ text }) {
  const [, name, ...words] = text.trim().split(/[\s[\]]+/);
  const help = execFileSync(BINARY, [name, '--help'], { encoding: 'utf8' });
  for (const option of words.filter((it) => it.startsWith('--'))) assert.ok(help.includes(option), `${name} has no ${option}`);
}

/** The smallest answer to an approval, with the ids of a real one, approves. */
async function answer({ text }, world) {
  const id = 'smallest-answer';
  const asked = await world.post({ id, message: { role: 'user', parts: [{ type: 'text', text: 'pay Hanako 50 dollars' }] } });
  const field = (name) => new RegExp(`"${name}":"([^"]+)"`).exec(asked)[1];
  const filled = text
    .replace('chat-1', id)
    .replace('THE-MESSAGE-THAT-ASKED', field('messageId'))
    .replace('ITS-CALL', field('toolCallId'))
    .replace('ITS-APPROVAL', field('approvalId'));
  assert.match(await world.post(filled), /tool-output-available/);
}

/** A step of the tour is what a bridge says; all of it is asked for once. */
async function tour({ line }, world) {
  world.tour ??= takeTour(world);
  const [documented, said] = (await world.tour).get(line);
  assert.deepEqual(said, documented);
}

/** The tour with a bridge: for the line of each of its blocks of JSON what the document has, and what the bridge says. */
async function takeTour(world) {
  const blocks = blocksOf(PROTOCOL);
  const [question, list, decision, chat] = blocks.filter(RUNNERS.tour.claims);
  const [asked, paid] = blocks.filter(({ language }) => language === 'sse');
  const { id } = JSON.parse(question.text);
  const load = async (path) => (await fetch(`${world.url}${path}`)).json();

  const saidAsked = await world.post(question.text);
  const mine = (await load('/api/chats')).filter((it) => it.id === id);
  const resumed = await fetch(`${world.url}/api/chat/${id}/stream`);
  assert.equal(resumed.status, 204, 'nothing runs while a question waits');
  const [real] = /\bmsg_\w+/.exec(saidAsked);
  const [call] = /\bcall_\w+/.exec(saidAsked);
  const [approval] = /\bapproval_\w+/.exec(saidAsked);
  const filled = decision.text.replace('msg_1', real).replace('call_1', call).replace('approval_1', approval);
  const saidPaid = await world.post(filled);
  const loaded = await load(`/api/chats/${id}`);

  const text = (value) => JSON.parse(plain(typeof value === 'string' ? value : JSON.stringify(value)));
  const lines = (stream) => plain(stream).split('\n').filter(Boolean);
  return new Map([
    [question.line, [lines(asked.text), lines(saidAsked)]],
    [list.line, [text(list.text), text(mine)]],
    [decision.line, [lines(paid.text), lines(saidPaid)]],
    [chat.line, [text(chat.text), text(loaded)]],
  ]);
}

/** Without what differs each time: ids, signatures, and times, which are milliseconds. */
function plain(text) {
  return text
    .replaceAll(/\b(msg|call|approval)_\w+/g, '$1_1')
    .replaceAll(/("thoughtSignature": ?)"[^"]+"/g, '$1"c2ln"')
    .replaceAll(/("(createdAt|updatedAt)": ?)\d{13}\b/g, '$1"a time"');
}

/** Whether a crate shows this page as its documentation. */
function isIncluded(path) {
  const library = join(ROOT, dirname(path), 'src/lib.rs');
  return existsSync(library) && readFileSync(library, 'utf8').includes('include_str!("../README.md")');
}
