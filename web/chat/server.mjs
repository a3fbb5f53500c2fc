// Starts the real binary on a fresh data directory, and asks its doors beside the chat.

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

// A debug build on a busy machine takes a few seconds to start.
const START_LIMIT_MS = 30_000;

/** Starts a server; `toml` is its configuration beside what all tests share. */
export async function startServer(binary, toml = '') {
  const directory = mkdtempSync(join(tmpdir(), 'adk-bridge-chat-'));
  const config = join(directory, 'adk-bridge.toml');
  writeFileSync(config, `${SHARED}\n${toml}`);
  const args = ['serve', '--config', config, '--listen', '127.0.0.1:0', '--data-dir', join(directory, 'data')];
  const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'pipe'] });
  let log = '';
  child.stderr.on('data', (piece) => (log += piece));
  const url = await new Promise((resolve, reject) => {
    let out = '';
    const timer = setTimeout(() => reject(new Error(`the server did not start:\n${log}`)), START_LIMIT_MS);
    const settle = (how, value) => (clearTimeout(timer), how(value));
    child.on('error', (error) => settle(reject, error));
    child.on('exit', (code) => settle(reject, new Error(`the server ended with ${code}:\n${log}`)));
    child.stdout.on('data', (piece) => {
      out += piece;
      const found = /listening on (http:\/\/\S+)/.exec(out);
      if (found !== null) settle(resolve, found[1]);
    });
  });
  const stop = () =>
    new Promise((resolve) => {
      child.on('exit', resolve);
      child.kill('SIGKILL');
    }).then(() => rmSync(directory, { recursive: true, force: true }));
  return { url, stop, log: () => log, ...doors(url) };
}

const SHARED = `
[demo]
pace = "0ms"

[[agent.client_tools]]
name = "pick_color"
description = "Lets the user pick a color."
`;

function doors(url) {
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
