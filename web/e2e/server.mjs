// Starts the real binary, on a data directory that survives a restart of it.

import { spawn } from 'node:child_process';
import { randomUUID } from 'node:crypto';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// A debug build takes a few seconds to start, and many times as long on a busy machine.
const START_LIMIT_MS = 120_000;

/** Starts a server; `toml` is its configuration, `env` is added to its environment. */
export async function startServer(binary, toml = '[demo]\npace = "0ms"\n', env = {}) {
  const directory = mkdtempSync(join(tmpdir(), 'adk-bridge-e2e-'));
  const config = join(directory, 'adk-bridge.toml');
  writeFileSync(config, toml);
  const server = {
    url: '',
    data: join(directory, 'data'),
    child: undefined,
    log: '',
    /** Ends the process at once, as a crash would. */
    kill: () => ended(server.child, 'SIGKILL'),
    /** Starts it again, at the same address and with the same data. */
    start: async () => {
      const listen = server.url === '' ? '127.0.0.1:0' : server.url.slice('http://'.length);
      const args = ['serve', '--config', config, '--listen', listen, '--data-dir', server.data];
      server.child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
      server.child.stderr.on('data', (piece) => (server.log += piece));
      server.url = await addressOf(server);
    },
    stop: async () => {
      await server.kill();
      rmSync(directory, { recursive: true, force: true });
    },
    /** Says something in a chat as another program would, and waits for the answer. */
    say: async (id, text) => {
      const message = { id: randomUUID(), role: 'user', parts: [{ type: 'text', text }] };
      const headers = { 'content-type': 'application/json' };
      const body = JSON.stringify({ id, messages: [message] });
      const response = await fetch(`${server.url}/api/chat`, { method: 'POST', headers, body });
      if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
      return response.text();
    },
    json: async (path, init) => {
      const response = await fetch(server.url + path, init);
      if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
      return response.json();
    },
  };
  await server.start();
  return server;
}

/** Waits until a program that was started says where it listens. */
function addressOf(server) {
  return new Promise((resolve, reject) => {
    let out = '';
    const timer = setTimeout(() => reject(new Error(`it did not start:\n${server.log}`)), START_LIMIT_MS);
    const settle = (how, value) => (clearTimeout(timer), how(value));
    server.child.once('error', (error) => settle(reject, error));
    server.child.once('exit', (code) => settle(reject, new Error(`it ended with ${code}:\n${server.log}`)));
    server.child.stdout.on('data', (piece) => {
      out += piece;
      const found = /listening on (http:\/\/\S+)/.exec(out);
      if (found !== null) settle(resolve, found[1]);
    });
  });
}

/** Ends a program and waits until it is gone. */
function ended(child, signal) {
  return new Promise((resolve) => {
    if (child.exitCode !== null || child.signalCode !== null) return resolve();
    child.once('exit', resolve);
    child.kill(signal);
  });
}
