// haproxy as it is usually set up: round robin, no stickiness, `/ready` asked every second.

import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

import { freePort } from './postgres.mjs';

const START_LIMIT_MS = 60_000;
const LOOK_AGAIN_MS = 20;

/** Starts it in front of these ports. */
export async function startBalancer(directory, ports) {
  const port = await freePort();
  const config = join(directory, 'haproxy.cfg');
  const servers = ports.map((it, index) => `  server r${index} 127.0.0.1:${it}`).join('\n');
  writeFileSync(
    config,
    `
global
  maxconn 4000
defaults
  mode http
  timeout connect 2s
  timeout client 1m
  timeout server 1m
  timeout tunnel 1h
  option redispatch
frontend front
  bind 127.0.0.1:${port}
  default_backend bridges
backend bridges
  balance roundrobin
  option httpchk
  http-check send meth GET uri /ready ver HTTP/1.1 hdr Host localhost
  http-check expect status 200
  default-server check inter 1s fall 2 rise 1 init-addr none
${servers}
`,
  );
  const child = spawn('haproxy', ['-db', '-f', config], { stdio: ['ignore', 'pipe', 'pipe'] });
  const ended = once(child, 'exit');
  let log = '';
  for (const stream of [child.stdout, child.stderr]) stream.on('data', (piece) => (log += piece));
  const url = `http://127.0.0.1:${port}`;
  for (const end = Date.now() + START_LIMIT_MS; !(await isReady(url)); ) {
    if (Date.now() > end || child.exitCode !== null) throw new Error(`haproxy did not start:\n${log}`);
    await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
  }
  const stop = async () => {
    child.kill('SIGKILL');
    await ended;
  };
  return { url, stop, log: () => log };
}

/** Says nothing when it has started, and passes on what it is asked once it has found a replica ready. */
async function isReady(url) {
  try {
    return (await fetch(`${url}/ready`)).ok;
  } catch {
    return false;
  }
}
