// Starts the agents, tools and embedders of the examples, and a bridge for each.

import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

import { startProcess } from '../../web/chat/server.mjs';
import { startServer } from '../../web/e2e/server.mjs';
import { BINARY, PYTHON, TARGET } from '../../web/target.mjs';
import { folder, packageOf } from './programs.mjs';

const BRIDGE_READY = /listening on (http:\/\/\S+)/;

/** Programs and directories of one test; `end` leaves nothing of them. */
export class World {
  #ends = [];

  /** The scripted Gemini, in place of Google's; what points an agent's client at it. */
  async gemini() {
    const { url } = await this.#start(BINARY, ['fake-gemini', '--pace', '0ms'], BRIDGE_READY);
    return { GOOGLE_GEMINI_BASE_URL: url, GOOGLE_API_KEY: 'any', GEMINI_API_KEY: 'any' };
  }

  async pythonAgent(env) {
    const memory = ['--session_service_uri', 'memory://', '--artifact_service_uri', 'memory://'];
    const args = ['-m', 'google.adk.cli', 'api_server', '--port', '0', ...memory, folder('adk-python')];
    // What Python compiles stays out of the project.
    const all = { ...env, PYTHONPYCACHEPREFIX: join(TARGET, 'pycache') };
    return this.#start(PYTHON, args, /Uvicorn running on (http:\/\/\S+)/, all);
  }

  async typeScriptAgent(env) {
    const ready = /access at (http:\/\/[^\s]+?)\.\s/;
    // What `npm start` becomes, which does not pass on that it is ended.
    const [program, ...args] = packageOf('adk-typescript').scripts.start.split(' ');
    const path = join(folder('adk-typescript'), 'node_modules/.bin', program);
    return this.#start(path, [...args, '--port', '0'], ready, env, { cwd: folder('adk-typescript') });
  }

  /** A bridge before the app `assistant` of an ADK server. */
  async before(adk, toml = '') {
    const bridge = await startServer(BINARY, `[agent]\nkind = "adk"\nbase_url = "${adk.url}"\napp = "assistant"\n${toml}`);
    this.#ends.push(() => bridge.stop());
    return bridge;
  }

  /** The bridge with the configuration of an example, in its folder. */
  async configured(name) {
    return this.#bridge(BINARY, ['serve', '--config', 'adk-bridge.toml'], { cwd: folder(name) });
  }

  /** A program of the example that is a bridge itself. */
  async embedded(program) {
    return this.#bridge(join(dirname(BINARY), program), []);
  }

  async end() {
    for (const end of this.#ends.toReversed()) await end();
  }

  async #bridge(program, args, options) {
    const data = mkdtempSync(join(tmpdir(), 'adk-bridge-examples-'));
    this.#ends.push(() => rmSync(data, { recursive: true, force: true }));
    const env = { ADK_BRIDGE__SERVER__LISTEN: '127.0.0.1:0', ADK_BRIDGE__SERVER__DATA_DIR: data };
    const { url } = await this.#start(program, args, BRIDGE_READY, env, options);
    const json = async (path) => (await fetch(url + path)).json();
    return { url, json };
  }

  async #start(program, args, ready, env = {}, options = {}) {
    const started = await startProcess(program, args, ready, { ...options, env: { ...process.env, ...env } });
    this.#ends.push(() => started.kill());
    return started;
  }
}
