// Starts the real binary on a fresh data directory, and calls its other endpoints.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// A debug build takes a few seconds to start, an ADK server ten, and many times as long on a busy machine.
const START_LIMIT_MS = 120_000;

/** Starts a server on a fresh data directory; `toml` is its configuration in addition to the agent's, `env` is added to its environment. */
export async function startServer(binary, toml = '', agent = DEMO, env = {}) {
  const directory = mkdtempSync(join(tmpdir(), 'adk-bridge-chat-'));
  const config = join(directory, 'adk-bridge.toml');
  writeFileSync(config, `${agent}\n${toml}`);
  const launch = (listen) =>
    startProcess(
      binary,
      ['serve', '--config', config, '--listen', listen, '--data-dir', join(directory, 'data')],
      /listening on (http:\/\/\S+)/,
      { env: { ...process.env, ...env } },
    );
  let running = await launch('127.0.0.1:0');
  let earlier = '';
  const { url } = running;
  return {
    url,
    /** Where it keeps everything. */
    data: join(directory, 'data'),
    log: () => earlier + running.log(),
    stop: async () => {
      await running.kill();
      rmSync(directory, { recursive: true, force: true });
    },
    /** Loads another configuration while it runs; resolves to what the log says of it. */
    reload: async (other) => {
      const before = running.log().length;
      writeFileSync(config, `${agent}\n${other}`);
      running.signal('SIGHUP');
      const said = /the configuration was loaded again.*|was not loaded again.*/;
      for (;;) {
        const found = said.exec(running.log().slice(before));
        if (found !== null) return found[0];
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
    },
    /** What a crash and a new start are: the same data at the same address; `between` happens while nobody is there. */
    restart: async (between = async () => {}) => {
      await running.kill();
      earlier += running.log();
      await between();
      running = await launch(url.slice('http://'.length));
    },
    ...endpoints(url),
  };
}

/** Starts a program and waits until it says where it is: the first group of `ready`. */
export async function startProcess(program, args, ready, options = {}) {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], ...options });
  let log = '';
  const url = await new Promise((resolve, reject) => {
    const timer = setTimeout(() => reject(new Error(`${program} did not start:\n${log}`)), START_LIMIT_MS);
    const settle = (how, value) => (clearTimeout(timer), how(value));
    child.on('error', (error) => settle(reject, error));
    child.on('exit', (code) => settle(reject, new Error(`${program} ended with ${code}:\n${log}`)));
    const read = (piece) => {
      log += piece;
      const found = ready.exec(log);
      if (found !== null) settle(resolve, found[1]);
    };
    child.stdout.on('data', read);
    child.stderr.on('data', read);
  });
  const kill = () =>
    new Promise((resolve) => {
      if (child.exitCode !== null || child.signalCode !== null) return resolve();
      child.on('exit', () => resolve());
      child.kill('SIGKILL');
    });
  return { url, kill, signal: (name) => child.kill(name), log: () => log };
}

const DEMO = `
[demo]
pace = "0ms"

[[agent.client_tools]]
name = "pick_color"
description = "Lets the user pick a color."
`;

function endpoints(url) {
  const json = async (path) => {
    const response = await fetch(url + path);
    if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  const post = (path, body) =>
    fetch(url + path, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    });
  return {
    /** What a page loads: the messages that have ended or wait for an answer. */
    messages: async (id, query = '') => (await json(`/api/chats/${id}${query}`)).messages,
    agent: () => json('/api/agent'),
    audit: (id) => json(`/api/audit?chat=${id}`),
    stopTurn: (id) => post(`/api/chat/${id}/stop`, {}),
    toolOutput: (id, body) => post(`/api/chat/${id}/tool-output`, body),
    /** A chat request written by hand; resolves to its status and the chunks of its answer. */
    post: async (body) => {
      const response = await post('/api/chat', body);
      const text = await response.text();
      return { status: response.status, chunks: response.ok ? chunksOf(text) : [], text };
    },
  };
}

/** The chunks of a stream, `[DONE]` and comments left out. */
export function chunksOf(text) {
  return text
    .split('\n')
    .filter((line) => line.startsWith('data: {'))
    .map((line) => JSON.parse(line.slice('data: '.length)));
}
