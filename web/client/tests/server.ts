/** Starts the real binary on a fresh data directory. */

import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

import type { UIMessage } from 'ai';

/** A debug build on a busy machine takes a few seconds to start. */
const START_LIMIT_MS = 30_000;

/** No flow of a test takes longer, however busy the machine is. */
export const WAIT_LIMIT_MS = 30_000;

/** The origin that jsdom and the tests' pages have. */
export const PAGE_ORIGIN = 'http://localhost:3000';

export interface AuditRow {
  kind: string;
  toolName?: string;
  reason?: string;
}

export interface Server {
  url: string;
  directory: string;
  /** Ends it at once; its data stays. */
  kill(): Promise<void>;
  /** Ends it and removes its data. */
  stop(): Promise<void>;
  /** What a page loads. */
  messages(chatId: string, query?: string): Promise<UIMessage[]>;
  audit(chatId: string): Promise<AuditRow[]>;
}

/**
 * Starts a server; `toml` is its configuration in addition to what all tests share, `from` a stopped one whose data it
 * takes over, `env` what is set in its environment.
 */
export async function startServer(toml = '', from?: Server, env: Record<string, string> = {}): Promise<Server> {
  const binary = process.env['ADK_BRIDGE_BINARY'];
  if (binary === undefined) throw new Error('set ADK_BRIDGE_BINARY to the path of adk-bridge (`cargo xtask test client` does)');
  const directory = from?.directory ?? mkdtempSync(join(tmpdir(), 'adk-bridge-client-'));
  const config = join(directory, 'adk-bridge.toml');
  // A configuration with several agents has no single one.
  const agent = toml.includes('[[agents]]') ? '' : AGENT;
  writeFileSync(config, `${SHARED}\n${agent}\n${toml}`);
  const args = ['serve', '--config', config, '--listen', '127.0.0.1:0', '--data-dir', join(directory, 'data')];
  const child = spawn(binary, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } });
  let log = '';
  child.stderr.on('data', (piece: Buffer) => (log += piece.toString()));
  const url = await new Promise<string>((resolve, reject) => {
    let out = '';
    const timer = setTimeout(() => reject(new Error(`the server did not start:\n${log}`)), START_LIMIT_MS);
    child.on('error', reject);
    child.on('exit', (code) => reject(new Error(`the server ended with ${code}:\n${log}`)));
    child.stdout.on('data', (piece: Buffer) => {
      out += piece.toString();
      const found = /listening on (http:\/\/\S+)/.exec(out)?.[1];
      if (found === undefined) return;
      clearTimeout(timer);
      resolve(found);
    });
  });
  const kill = () =>
    new Promise<void>((resolve) => {
      child.on('exit', () => resolve());
      child.kill('SIGKILL');
    });
  const stop = async () => {
    if (child.exitCode === null && child.signalCode === null) await kill();
    rmSync(directory, { recursive: true, force: true });
  };
  const json = async (path: string): Promise<unknown> => {
    const response = await fetch(url + path);
    if (!response.ok) throw new Error(`GET ${path}: ${response.status} ${await response.text()}`);
    return response.json();
  };
  return {
    url,
    directory,
    kill,
    stop,
    messages: async (chatId, query = '') => ((await json(`/api/chats/${chatId}${query}`)) as { messages: UIMessage[] }).messages,
    audit: async (chatId) => (await json(`/api/audit?chat=${chatId}`)) as AuditRow[],
  };
}

const SHARED = `
[server]
allowed_origins = ["${PAGE_ORIGIN}"]

[demo]
pace = "0ms"
`;

const AGENT = `
[[agent.client_tools]]
name = "pick_color"
description = "Lets the user pick a color."
`;
