// Google's ADK servers that the bridge is put before: one process each, with the scripted agent and sessions in memory.

import { cpSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { NEWEST_1_PYTHON, OLDEST_PYTHON, PYTHON } from '../target.mjs';
import { startAdkServer } from './adk-server.mjs';
import { startProcess } from './server.mjs';

const TYPESCRIPT_AGENTS = fileURLToPath(new URL('../adk-typescript', import.meta.url));
/** The packages of the example are those that the project is tested with. */
const TYPESCRIPT_PACKAGES = fileURLToPath(new URL('../../examples/adk-typescript/node_modules', import.meta.url));
const TYPESCRIPT_READY = /access at (http:\/\/[^\s]+?)\.\s/;

/** `shown`, `voice` and `restoring` are what `GET /api/agent` says of it. */
export const SERVERS = [
  {
    name: 'google-adk 1.18.0',
    shown: 'ADK for Python',
    voice: true,
    restoring: 'events',
    start: () => python(OLDEST_PYTHON, null),
  },
  {
    name: 'google-adk 1.39.1',
    shown: 'ADK for Python 1.39.1',
    voice: true,
    restoring: 'events',
    start: () => python(NEWEST_1_PYTHON),
  },
  { name: 'google-adk 2.13.0', shown: 'ADK for Python 2.13.0', voice: true, restoring: 'events', start: () => python(PYTHON) },
  {
    name: 'google-adk 2.13.0 that makes sessions',
    shown: 'ADK for Python 2.13.0',
    voice: true,
    restoring: 'events',
    start: () => startAdkServer(PYTHON, 'memory://', ['--auto_create_session']),
  },
  { name: '@google/adk 2.0.0', shown: 'ADK for TypeScript 2.0.0', voice: false, restoring: 'message', start: () => typeScript() },
];

/** Sessions are in memory; the oldest version has no name for that, and does it unless it is told otherwise. */
function python(interpreter, sessions = 'memory://') {
  return startAdkServer(interpreter, sessions);
}

/** `env` is added to its environment. */
export async function typeScript(env = {}) {
  const program = join(TYPESCRIPT_PACKAGES, '@google/adk-devtools/dist/esm/cli_entrypoint.js');
  // Where they find their packages.
  mkdirSync(join(TYPESCRIPT_PACKAGES, '.agents'), { recursive: true });
  const agents = mkdtempSync(join(TYPESCRIPT_PACKAGES, '.agents', 'agents-'));
  cpSync(TYPESCRIPT_AGENTS, agents, { recursive: true });
  writeFileSync(join(agents, 'package.json'), '{"type":"module"}');
  const launch = (port) =>
    startProcess(
      process.execPath,
      [program, 'api_server', agents, '--host', '127.0.0.1', '--port', port, '--compile', 'false', '--bundle', 'false'],
      TYPESCRIPT_READY,
      { env: { ...process.env, ...env } },
    );
  let running = await launch('0');
  const { url } = running;
  return {
    url,
    kill: async () => {
      await running.kill();
      rmSync(agents, { recursive: true, force: true });
    },
    restart: async () => {
      await running.kill();
      running = await launch(new URL(url).port);
    },
    log: () => running.log(),
  };
}
