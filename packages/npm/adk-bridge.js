#!/usr/bin/env node
// Becomes the program that the package of this platform has.

import { spawn } from 'node:child_process';
import { createRequire } from 'node:module';

const { platform, arch } = process;
const name = `@adk-bridge/${platform}-${arch}`;

function program() {
  try {
    return createRequire(import.meta.url).resolve(`${name}/adk-bridge${platform === 'win32' ? '.exe' : ''}`);
  } catch {
    console.error(
      `adk-bridge: ${name} is not installed. Install without --omit=optional; where there is no such package, build from source`,
    );
    process.exit(1);
  }
}

const child = spawn(program(), process.argv.slice(2), { stdio: 'inherit' });
const signals = ['SIGINT', 'SIGTERM', 'SIGHUP'];
for (const signal of signals) {
  // A terminal tells both of them.
  process.on(signal, () => (signal === 'SIGINT' && process.stdin.isTTY) || child.kill(signal));
}
child.on('error', (error) => {
  console.error(`adk-bridge: ${error.message}`);
  process.exit(1);
});
child.on('exit', (code, signal) => {
  if (signal === null) process.exit(code);
  for (const handled of signals) process.removeAllListeners(handled);
  process.kill(process.pid, signal);
});
