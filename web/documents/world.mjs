// Where the commands of the documents run: a directory, a bridge that is running, and a database if one is asked for.

import { spawn } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import { startProcess } from '../chat/server.mjs';
import { startPostgres } from '../fleet/postgres.mjs';
import { BINARY } from '../target.mjs';

const READY = /listening on (http:\/\/\S+)/;
// A command has time for it on a busy machine as well.
const RUN_LIMIT_MS = 120_000;
/** What documents call secrets and keys, so that configurations with their names can be used. */
const SECRETS = ['LOGIN_SECRET', 'GEMINI_API_KEY', 'OPENAI_API_KEY'];
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
/** curl says how it was answered, and nothing of its progress. */
const CURL = `curl() { command curl --silent --show-error --write-out '\\nstatus %{http_code}\\n' "$@"; }`;

export class World {
  #ends = [];

  static async open() {
    const world = new World();
    const place = mkdtempSync(join(tmpdir(), 'adk-bridge-documents-'));
    world.#ends.push(() => rmSync(place, { recursive: true, force: true }));
    world.place = place;
    world.apart = join(place, 'apart');
    for (const name of ['apart', 'bin', 'backup']) mkdirSync(join(place, name));
    symlinkSync(BINARY, join(place, 'bin/adk-bridge'));
    const data = join(place, 'bridge');
    const config = `[server]\ndata_dir = "${data}"\nlisten = "127.0.0.1:0"\n[demo]\npace = "0ms"\n[[agents]]\nid = "demo"\nkind = "demo"\n[[agents]]\nid = "weather"\nkind = "demo"\n`;
    writeFileSync(join(place, 'adk-bridge.toml'), config);
    const bridge = await startProcess(BINARY, ['serve'], READY, { cwd: place });
    world.#ends.push(() => bridge.kill());
    world.url = bridge.url;
    // Conversations that the documents ask about.
    for (const id of ['chat-1', 'c1'])
      await world.post({ id, message: { role: 'user', parts: [{ type: 'text', text: 'say hello' }] } });
    return world;
  }

  /** A request as a front end posts it; resolves to the stream. */
  async post(body) {
    const headers = { 'content-type': 'application/json' };
    const text = typeof body === 'string' ? body : JSON.stringify(body);
    const response = await fetch(`${this.url}/api/chat`, { method: 'POST', headers, body: text });
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    return response.text();
  }

  /** The words of a document, for this machine. */
  #here(command) {
    const here = command
      .replaceAll(/(http:\/\/)?(localhost|127\.0\.0\.1):8080/g, this.url)
      .replaceAll('/backup/', `${this.place}/backup/`);
    if (this.database === undefined) return here;
    return here.replaceAll(/bridge(:PASSWORD)?@db\.internal\//g, `bridge@127.0.0.1:${this.database.port}/`);
  }

  env() {
    const path = [join(this.place, 'bin'), ...postgresPrograms(), process.env.PATH].join(':');
    const secrets = Object.fromEntries(SECRETS.map((name) => [name, 'a-secret-of-the-documents']));
    const database = this.database && { PGHOST: '127.0.0.1', PGPORT: String(this.database.port), PGUSER: 'bridge' };
    return { ...process.env, ...secrets, ...database, PATH: path };
  }

  /** Runs a command of a document after those `before` it; resolves to its code and what it said. */
  run(command, before = [], cwd = this.place) {
    const script = [CURL, ...before, this.#here(command)].join('\n');
    const child = spawn('bash', ['-euo', 'pipefail', '-c', script], { cwd, env: this.env(), timeout: RUN_LIMIT_MS });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => (said += piece));
    child.stdin.end();
    return new Promise((resolve, reject) => {
      child.on('error', reject);
      child.on('close', (code) => resolve({ code, said }));
    });
  }

  /** Runs a command until it listens, then ends it. */
  async serves(command) {
    const data = mkdtempSync(join(this.place, 'served-'));
    const env = { ...this.env(), ADK_BRIDGE__SERVER__LISTEN: '127.0.0.1:0', ADK_BRIDGE__SERVER__DATA_DIR: data };
    // What bash has started is ended with it.
    const started = await startProcess('bash', ['-c', `exec env ${this.#here(command)}`], READY, { cwd: data, env });
    await started.kill();
  }

  /** A PostgreSQL, and a data directory to be moved into it. */
  async postgres() {
    if (this.database !== undefined) return;
    const { code, said } = await this.run('adk-bridge backup backup-to-move && cp -r backup-to-move data');
    if (code !== 0) throw new Error(said);
    const place = mkdtempSync(join(tmpdir(), 'adk-bridge-documents-'));
    // PostgreSQL runs as a user of its own where this runs as root.
    chmodSync(place, 0o755);
    this.#ends.push(() => rmSync(place, { recursive: true, force: true }));
    this.database = await startPostgres(place);
    this.#ends.push(() => this.database.stop());
  }

  picture() {
    writeFileSync(join(this.place, 'cat.png'), Buffer.from(PIXEL, 'base64'));
  }

  write(name, text) {
    writeFileSync(join(this.place, name), text);
    return join(this.place, name);
  }

  async end() {
    for (const end of this.#ends.toReversed()) await end();
  }
}

/** Where Debian puts the programs of its PostgreSQL. */
function postgresPrograms() {
  const versions = '/usr/lib/postgresql';
  return existsSync(versions) ? readdirSync(versions).map((version) => join(versions, version, 'bin')) : [];
}
