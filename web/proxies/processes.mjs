// Starts programs, waits until they answer, and ends them all.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

// A development server takes seconds to start, and many times as long on a busy machine.
const START_LIMIT_MS = 120_000;
const LOOK_AGAIN_MS = 100;

const here = dirname(fileURLToPath(import.meta.url));
const running = [];
const directories = [];

/** A fresh directory with these files. Below this package, where its programs find their packages. */
export function directory(files) {
  mkdirSync(join(here, '.work'), { recursive: true });
  const path = mkdtempSync(join(here, '.work', 'proxy-'));
  directories.push(path);
  for (const [name, text] of Object.entries(files)) {
    mkdirSync(dirname(join(path, name)), { recursive: true });
    writeFileSync(join(path, name), text);
  }
  return path;
}

/** Starts the bridge with its demo agent, on a port of its own choosing. */
export async function startBridge(binary, toml) {
  const path = mkdtempSync(join(tmpdir(), 'adk-bridge-proxies-'));
  directories.push(path);
  writeFileSync(join(path, 'adk-bridge.toml'), `[demo]\npace = "20ms"\n${toml}`);
  const args = ['serve', '--config', join(path, 'adk-bridge.toml'), '--listen', '127.0.0.1:0', '--data-dir', join(path, 'data')];
  const child = start(binary, args);
  const url = await new Promise((resolve, reject) => {
    child.ended.then(() => reject(new Error(`the bridge ended:\n${child.log()}`)));
    child.process.stdout.on('data', () => {
      const found = /listening on (http:\/\/\S+)/.exec(child.log());
      if (found !== null) resolve(found[1]);
    });
  });
  return { url };
}

/** Starts a server at an address and waits until it answers there. */
export async function startServer(url, program, args, options) {
  const child = start(program, args, options);
  const deadline = Date.now() + START_LIMIT_MS;
  let ended = false;
  child.ended.then(() => (ended = true));
  for (;;) {
    if (await answers(url)) return;
    if (ended || Date.now() > deadline) throw new Error(`${program} does not serve ${url}:\n${child.log()}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
  }
}

/** Runs a program to its end. */
export async function run(program, args, options) {
  const child = start(program, args, options);
  const code = await child.ended;
  if (code !== 0) throw new Error(`${program} ended with ${code}:\n${child.log()}`);
}

/** A port that nobody listens on. */
export async function freePort() {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address();
  server.close();
  await once(server, 'close');
  return port;
}

/** Ends every program and removes every directory. */
export async function clean() {
  for (const child of running) child.kill();
  await Promise.all(running.map((child) => child.ended));
  for (const path of directories) rmSync(path, { recursive: true, force: true });
}

async function answers(url) {
  try {
    await fetch(url, { redirect: 'manual' });
    return true;
  } catch {
    return false;
  }
}

function start(program, args, options = {}) {
  // A group of its own: development servers have children that would outlive them.
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], detached: true, ...options });
  let log = '';
  const read = (piece) => (log += piece);
  child.stdout.on('data', read);
  child.stderr.on('data', read);
  const ended = new Promise((resolve) => {
    child.on('error', (error) => (read(String(error)), resolve(-1)));
    child.on('exit', (code) => resolve(code ?? -1));
  });
  const kill = () => {
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch {
      // It has ended.
    }
  };
  const started = { process: child, ended, kill, log: () => log };
  running.push(started);
  return started;
}
