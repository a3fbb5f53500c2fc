// A real ADK server of Google's, with the scripted agents of `python/adk_agents`.

import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

import { TARGET } from '../target.mjs';
import { startProcess } from './server.mjs';

const AGENTS = join(dirname(fileURLToPath(import.meta.url)), '../../python/adk_agents');
const READY = /Uvicorn running on (http:\/\/\S+)/;

/** Starts a server; `sessions` says where it keeps them unless it is null, `options` are others of its own, `env` is added to its environment. */
export async function startAdkServer(python, sessions = 'memory://', options = [], env = {}) {
  const places = sessions === null ? [] : ['--session_service_uri', sessions, '--artifact_service_uri', 'memory://'];
  const launch = (port) =>
    startProcess(
      python,
      ['-m', 'google.adk.cli', 'api_server', '--port', port, ...places, ...options, AGENTS],
      READY,
      // What Python compiles stays out of the project.
      { env: { ...process.env, ...env, PYTHONPYCACHEPREFIX: join(TARGET, 'pycache') } },
    );
  let running = await launch('0');
  const { url } = running;
  return {
    url,
    kill: () => running.kill(),
    start: async () => {
      running = await launch(new URL(url).port);
    },
    /** The same address, and only what `sessions` kept. */
    restart: async () => {
      await running.kill();
      running = await launch(new URL(url).port);
    },
    log: () => running.log(),
  };
}

/** The bridge's configuration for an app of it. */
export function agentOf(url, app) {
  return `[agent]\nkind = "adk"\nbase_url = "${url}"\napp = "${app}"\n`;
}
