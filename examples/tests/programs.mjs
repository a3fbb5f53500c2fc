// Starts the examples as their README says, on ports of their own and with the bridge that is tested.

import { spawn } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { freePort, startServer } from '../../web/proxies/processes.mjs';

export const EXAMPLES = fileURLToPath(new URL('..', import.meta.url));

/** What the commands of the examples' documents are in the tests: `by` is what stands for them there; others have a reason to be left out. */
export const STARTED = [
  { is: /^npm install && npm run dev$/, by: 'start: develop' },
  { is: /^\(cd \S+ && npm ci && npm run build\) && npm install && npm run dev$/, by: "develop('voice'" },
  { is: /^node serve\.mjs$/, by: 'start: serveAlone' },
  { is: /^python3 chat\.py "/, by: 'ask(bridge' },
  { is: /^\.\/chat\.sh$/, by: "run('curl', './chat.sh'" },
  { is: /^python3 -m venv \.venv && \. \.venv\/bin\/activate$/, why: 'the step `python` has made one' },
  { is: /^pip install -r requirements\.txt && GOOGLE_API_KEY=… adk api_server \.$/, by: 'world.pythonAgent(' },
  { is: /^npm install && GEMINI_API_KEY=… npm start$/, by: 'world.typeScriptAgent(' },
  { is: /^ADK_BRIDGE__AGENT__APP=assistant cargo xtask run --agent adk$/, by: 'world.before(' },
  { is: /^npm install && cargo xtask run --config adk-bridge\.toml$/, by: "world.configured('mcp')" },
  { is: /^cargo run$/, by: "world.embedded('adk-bridge-example-rust')" },
];

export const folder = (name) => join(EXAMPLES, name);
export const packageOf = (name) => JSON.parse(readFileSync(join(folder(name), 'package.json'), 'utf8'));

/** `npm run dev` in the folder of a page; returns the page's address. */
export async function develop(name, bridge) {
  const port = await freePort();
  const host = packageOf(name).scripts.dev.startsWith('next') ? '--hostname' : '--host';
  const args = ['run', 'dev', '--', '--port', String(port), host, '127.0.0.1'];
  return serve(name, port, 'npm', args, bridge);
}

/** `node serve.mjs` in the folder of a page. */
export async function serveAlone(name, bridge) {
  const port = await freePort();
  return serve(name, port, process.execPath, ['serve.mjs'], bridge, { PORT: String(port) });
}

async function serve(name, port, program, args, bridge, more = {}) {
  const url = `http://127.0.0.1:${port}`;
  const env = { ...process.env, ADK_BRIDGE_URL: bridge.url, NEXT_TELEMETRY_DISABLED: '1', ...more };
  await startServer(url, program, args, { cwd: folder(name), env });
  return url;
}

/** Runs a program in the folder of an example to its end; `input` is what somebody types. */
export function run(name, program, args, bridge, input = '') {
  const env = { ...process.env, ADK_BRIDGE_URL: bridge.url };
  const child = spawn(program, args, { cwd: folder(name), env });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => (said += piece));
  child.stdin.end(input);
  return new Promise((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (code) => (code === 0 ? resolve(said) : reject(new Error(`${program} ended with ${code}:\n${said}`))));
  });
}

/** A question to the bridge from the terminal client; `input` is what somebody types. */
export const ask = (bridge, text, input) => run('python-client', 'python3', ['chat.py', text], bridge, input);
