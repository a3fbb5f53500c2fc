// The official MCP servers, TypeScript's and Python's, behind the real binary: over standard input and output, and over HTTP.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, readFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { after, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { startProcess, startServer } from '../chat/server.mjs';
import { KITS, Session } from '../chat/session.mjs';
import { BINARY, MCP_PYTHON } from '../target.mjs';

const here = dirname(fileURLToPath(import.meta.url));
const EVERYTHING = join(here, 'node_modules/@modelcontextprotocol/server-everything/dist/index.js');
const PYTHON_SERVER = join(here, '../../python/mcp_server.py');
const SECRET = 'a-secret-of-the-bridge';
const DEMO = '[demo]\npace = "0ms"\n';
const LOOK_AGAIN_MS = 50;
// A server may take a minute to start.
const WAIT_LIMIT_MS = 120_000;

const running = [];
after(() => Promise.all(running.map((program) => (program.stop ?? program.kill)())));

const command = (name, program, args) =>
  `[[tools.mcp]]\nname = "${name}"\ncommand = ${JSON.stringify(program)}\nargs = ${JSON.stringify(args)}\n`;
const address = (name, url) => `[[tools.mcp]]\nname = "${name}"\nurl = "${url}"\nheaders = { x-key = "${SECRET}" }\n`;

async function bridge(toml) {
  const server = await startServer(BINARY, toml, DEMO, { SOME_SECRET: SECRET });
  running.push(server);
  // On a busy machine, a server may come later than the bridge waits for it.
  await available(server);
  return server;
}

async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

async function everythingOverHttp(port) {
  const env = { ...process.env, PORT: String(port) };
  const server = await startProcess(process.execPath, [EVERYTHING, 'streamableHttp'], /listening on port (\d+)/, { env });
  running.push(server);
  return server;
}

async function pythonOverHttp(port, how = 'http') {
  const server = await startProcess(MCP_PYTHON, [PYTHON_SERVER, how, String(port)], /Uvicorn running on (http:\/\/\S+)/);
  running.push(server);
  return server;
}

const post = (server, id, messages) =>
  fetch(`${server.url}/api/chat`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ id, trigger: 'submit-message', messages }),
  }).then((response) => response.text());
const json = (server, path) => fetch(server.url + path).then((response) => response.json());
const messages = async (server, chat) => (await json(server, `/api/chats/${chat}`)).messages;

let chats = 0;

/** Has the model call a tool in a new chat. */
async function call(server, tool, args = {}) {
  chats += 1;
  const chat = `chat-${chats}`;
  const question = { id: `q${chats}`, role: 'user', parts: [{ type: 'text', text: `call ${tool} ${JSON.stringify(args)}` }] };
  await post(server, chat, [question]);
  return seen(server, chat);
}

async function seen(server, chat) {
  const { parts } = (await messages(server, chat)).at(-1);
  return { chat, part: parts.find((part) => part.toolCallId !== undefined), files: parts.filter((part) => part.type === 'file') };
}

/** Answers the question of a chat. */
async function decide(server, chat, approved) {
  const all = await messages(server, chat);
  for (const part of all.at(-1).parts) {
    if (part.state !== 'approval-requested') continue;
    part.state = 'approval-responded';
    part.approval.approved = approved;
  }
  await post(server, chat, all);
  return seen(server, chat);
}

async function isPicture(server, file) {
  const response = await fetch(new URL(file.url, server.url));
  assert.equal(response.headers.get('content-type'), 'image/png');
  const bytes = new Uint8Array(await response.arrayBuffer());
  assert.deepEqual([...bytes.slice(1, 4)], [...Buffer.from('PNG')]);
}

/** Waits until no MCP server is missing. */
function available(server) {
  return until(async () => (await json(server, '/ready')).unavailableTools === undefined, 'all MCP servers');
}

async function until(condition, what) {
  for (const end = Date.now() + WAIT_LIMIT_MS; !(await condition()); ) {
    assert.ok(Date.now() < end, `waited too long for ${what}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
  }
}

async function outputs(server, cases) {
  for (const [tool, args, expected] of cases) {
    const { part } = await call(server, tool, args);
    assert.equal(part.state, 'output-available', `${tool}: ${JSON.stringify(part)}`);
    if (expected instanceof RegExp) assert.match(JSON.stringify(part.output), expected, tool);
    else assert.deepEqual(part.output, expected, tool);
  }
}

async function everything(server) {
  await outputs(server, [
    ['ts__echo', { message: 'hello' }, 'Echo: hello'],
    ['ts__get-sum', { a: 2, b: 3 }, /sum of 2 and 3 is 5/],
    ['ts__get-structured-content', { location: 'Chicago' }, /"temperature":/],
    ['ts__get-resource-links', { count: 2 }, /"type":"resource_link"/],
    ['ts__get-resource-reference', { resourceType: 'Text', resourceId: 1 }, /"type":"resource"/],
    // It reports progress at every step.
    ['ts__trigger-long-running-operation', { duration: 0.2, steps: 4 }, /completed/],
  ]);
  const picture = await call(server, 'ts__get-tiny-image');
  assert.equal(picture.files.length, 1);
  await isPicture(server, picture.files[0]);
  const refused = await call(server, 'ts__get-sum', { a: 'two', b: 3 });
  assert.equal(refused.part.state, 'output-error');
  // What the bridge cannot do for a server is not offered to it, so the tools for that are not there.
  const { tools } = await json(server, '/api/agent');
  const names = tools.map((tool) => tool.name);
  assert.ok(names.includes('ts__echo') && !names.includes('ts__trigger-sampling-request'), names.join());
  assert.equal(tools.find((tool) => tool.name === 'ts__echo').needsApproval, false);
}

async function asks(server) {
  for (const [approved, state] of [
    [false, 'output-denied'],
    [true, 'output-available'],
  ]) {
    const { chat, part } = await call(server, 'ts__toggle-simulated-logging');
    assert.equal(part.state, 'approval-requested', JSON.stringify(part));
    assert.equal((await decide(server, chat, approved)).part.state, state);
  }
}

async function pythons(server) {
  await outputs(server, [
    ['py__add', { a: 2, b: 3 }, { result: 5 }],
    ['py__weather', { city: 'Oslo' }, { city: 'Oslo', degrees: 21.5 }],
    ['py__count', {}, { result: 'counted' }],
  ]);
  const failed = await call(server, 'py__fail');
  assert.match(failed.part.errorText, /fail/);
  const picture = await call(server, 'py__draw');
  await isPicture(server, picture.files[0]);
  const { chat, part } = await call(server, 'py__write', { text: 'a line' });
  assert.equal(part.state, 'approval-requested');
  assert.deepEqual(part.input, { text: 'a line' });
  assert.deepEqual((await decide(server, chat, true)).part.output, { result: 1 });
  // The same decision once more does not run it again.
  await decide(server, chat, true);
  const again = await call(server, 'py__write', { text: 'another' });
  assert.deepEqual((await decide(server, again.chat, true)).part.output, { result: 2 });
}

const INPUT = 'adk_request_input';
const ELICIT = 'ts__trigger-elicitation-request';

/** A stock chat is asked what the server wants to know, after it was asked for its approval. */
async function elicits(server, kit) {
  const session = new Session(server, kit);
  await session.say(`call ${ELICIT} {}`);
  await session.answer(ELICIT, true);
  await session.rest();
  const asked = session.tool(INPUT);
  assert.equal(asked.state, 'input-available');
  assert.equal(asked.input.server, 'ts');
  assert.deepEqual(session.tool(ELICIT).output, { pending: true });
  // What does not fit the form is refused in words, and can be corrected.
  await session.output(INPUT, { name: 'Ada', integer: 1000 });
  await session.until(() => session.chat.status === 'error', 'the refusal');
  assert.match(session.chat.error.message, /"integer" must be at most 100/);
  await session.output(INPUT, { name: 'Ada', check: true, integer: 7, titledMultipleSelectEnum: ['fish-2'] });
  await session.until(() => /fish-2/.test(JSON.stringify(session.tool(ELICIT).output)), 'the result');
  await session.rest();
  assert.match(JSON.stringify(session.tool(ELICIT).output), /Ada/);
  await session.check();
  // Who declines says no.
  await session.say(`call ${ELICIT} {}`);
  await session.answer(ELICIT, true);
  await session.rest();
  const { toolCallId } = session.tool(INPUT);
  await session.chat.addToolOutput({ tool: INPUT, toolCallId, state: 'output-error', errorText: 'no' });
  await session.rest();
  assert.match(JSON.stringify(session.tool(ELICIT).output), /declined/i);
  await session.check();
}

/** Two users of one server are asked at once: over HTTP it is clear whom it means. */
async function elicitsTwice(server, kit) {
  const days = ['Monday', 'Friday'];
  const sessions = days.map(() => new Session(server, kit));
  await Promise.all(sessions.map((session, index) => session.say(`call py__book {"day":"${days[index]}"}`)));
  for (const [index, session] of sessions.entries()) {
    assert.equal(session.tool(INPUT).input.message, `How many come on ${days[index]}?`);
    await session.output(INPUT, { guests: index + 2 });
    await session.rest();
    assert.deepEqual(session.tool('py__book').output, { result: `${days[index]}: accept ${index + 2}` });
    await session.check({ posts: 2 });
  }
}

/** A tool that asks before it begins, in whichever way the protocol has for it. */
async function reserves(server, kit) {
  const session = new Session(server, kit);
  await session.say('call py__reserve {"day":"Sunday"}');
  assert.equal(session.tool(INPUT).input.message, 'How many come on Sunday?');
  await session.output(INPUT, { guests: 4 });
  await session.rest();
  assert.deepEqual(session.tool('py__reserve').output, { result: 'Sunday: 4' });
  await session.check({ posts: 2 });
}

async function tellsProgress(server, kit) {
  const session = new Session(server, kit);
  await session.say('call ts__trigger-long-running-operation {"duration":0.5,"steps":2}');
  const told = session.streams.flat().filter(({ type }) => type === 'data-tool-progress');
  assert.ok(told.length > 0 && told.every(({ data }) => data.total === 2), JSON.stringify(told));
  await session.check({ posts: 1 });
}

describe('MCP servers', { concurrency: 2 }, () => {
  test('TypeScript, as a program', async () => {
    const server = await bridge(command('ts', process.execPath, [EVERYTHING]));
    await everything(server);
    await asks(server);
    const { part } = await call(server, 'ts__get-env');
    assert.ok(!JSON.stringify(part).includes(SECRET));
    for (const kit of KITS) {
      await elicits(server, kit);
      await tellsProgress(server, kit);
    }
  });

  test('TypeScript, over HTTP, restarted in between', async () => {
    const port = await freePort();
    const first = await everythingOverHttp(port);
    const server = await bridge(address('ts', `http://127.0.0.1:${port}/mcp`));
    await everything(server);
    await asks(server);
    await first.kill();
    const lost = await call(server, 'ts__echo', { message: 'nobody' });
    assert.match(lost.part.errorText, /"ts"/);
    await everythingOverHttp(port);
    await available(server);
    await outputs(server, [['ts__echo', { message: 'back' }, 'Echo: back']]);
    assert.ok(!server.log().includes(SECRET));
  });

  test('Python, as a program', async () => {
    const server = await bridge(command('py', MCP_PYTHON, [PYTHON_SERVER]));
    await pythons(server);
    await reserves(server, KITS[0]);
  });

  test('Python, as a program that ends or never answers', async () => {
    const calls = join(mkdtempSync(join(tmpdir(), 'adk-bridge-mcp-')), 'calls');
    const noted = () => readFileSync(calls, 'utf8').trim().split('\n');
    const env = `env = { MCP_CALLS = ${JSON.stringify(calls)} }\n`;
    const server = await bridge(`${command('py', MCP_PYTHON, [PYTHON_SERVER])}${env}[tools]\ntimeout = "2s"\n`);

    const crashed = await call(server, 'py__crash');
    assert.match(crashed.part.errorText, /the MCP server "py" failed while the tool ran; what came of it is unknown/);
    await until(() => /py is not available: it ended with exit status: 7/.test(server.log()), 'the end of the server');
    await available(server);
    await outputs(server, [['py__add', { a: 2, b: 3 }, { result: 5 }]]);
    assert.deepEqual(noted(), ['crash']);

    const hung = await call(server, 'py__hang');
    assert.match(hung.part.errorText, /no result within 2 seconds/);
    await until(() => noted().length > 2, 'the server to be informed');
    assert.deepEqual(noted(), ['crash', 'hang', 'hang is cancelled']);
    // Others are not kept from it.
    assert.equal((await json(server, '/ready')).unavailableTools, undefined);
    await outputs(server, [['py__add', { a: 2, b: 3 }, { result: 5 }]]);
  });

  test('Python, over HTTP', async () => {
    const port = await freePort();
    await pythonOverHttp(port);
    const server = await bridge(address('py', `http://127.0.0.1:${port}/mcp`));
    await pythons(server);
    for (const kit of KITS) await elicitsTwice(server, kit);
  });

  test('Python, over HTTP, with the protocol that has no introductions', async () => {
    const port = await freePort();
    await pythonOverHttp(port, 'alone');
    const server = await bridge(address('py', `http://127.0.0.1:${port}/mcp`));
    await pythons(server);
    for (const kit of KITS) await reserves(server, kit);
  });

  test('a call that takes too long is given up', async () => {
    const server = await bridge(`${command('ts', process.execPath, [EVERYTHING])}[tools]\ntimeout = "1s"\n`);
    const { part } = await call(server, 'ts__trigger-long-running-operation', { duration: 3600, steps: 2 });
    assert.match(part.errorText, /no result within 1 seconds/);
    await outputs(server, [['ts__echo', { message: 'hello' }, 'Echo: hello']]);
  });
});
