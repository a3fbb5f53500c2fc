// One replica: the real binary, and what may happen to it.

import { spawn } from 'node:child_process';
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';

const START_LIMIT_MS = 120_000;
// What a replica does with SIGTERM takes `server.drain`; beyond that it hangs.
const END_LIMIT_MS = 60_000;

export class Replica {
  #child;
  #log = '';
  #restarts = 0;

  /** `state`: up, paused, draining, down. Only one that is up is disturbed. */
  constructor({ name, binary, directory, toml, env }) {
    this.name = name;
    this.state = 'down';
    /** Whether it may rightly report that it lost its lease. */
    this.wasPaused = false;
    this.binary = binary;
    this.env = env;
    this.config = join(directory, `${name}.toml`);
    this.data = join(directory, `${name}-data`);
    this.listen = '127.0.0.1:0';
    writeFileSync(this.config, toml);
  }

  get port() {
    return Number(this.listen.split(':')[1]);
  }

  get url() {
    return `http://${this.listen}`;
  }

  get pid() {
    return this.#child.pid;
  }

  /** The log of all its lives. */
  log() {
    return this.#log;
  }

  async start() {
    this.#log += `---- start ${(this.#restarts += 1)} of ${this.name}\n`;
    const args = ['serve', '--config', this.config, '--listen', this.listen, '--data-dir', this.data];
    const child = spawn(this.binary, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...this.env } });
    this.#child = child;
    let said = '';
    const found = await new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${this.name} did not start:\n${said}`)), START_LIMIT_MS);
      const settle = (how, value) => (clearTimeout(timer), how(value));
      child.on('error', (problem) => settle(reject, problem));
      child.on('exit', (code, signal) => settle(reject, new Error(`${this.name} ended with ${code ?? signal}:\n${said}`)));
      const read = (piece) => {
        said += piece;
        this.#log += piece;
        const match = /listening on http:\/\/(\S+)/.exec(said);
        if (match !== null) settle(resolve, match[1]);
      };
      child.stdout.on('data', read);
      child.stderr.on('data', read);
    });
    this.listen = found;
    this.state = 'up';
  }

  /** Sends a signal that ends it, and waits for the end. */
  async end(signal) {
    const child = this.#child;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return (this.state = 'down');
    this.state = signal === 'SIGKILL' ? 'down' : 'draining';
    const ended = new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`${this.name} did not end after ${signal}`)), END_LIMIT_MS);
      child.on('exit', () => (clearTimeout(timer), resolve()));
    });
    child.kill(signal);
    await ended;
    return (this.state = 'down');
  }

  /** As good as dead to others, but it lives on where it was when `wake` comes. */
  pause() {
    this.state = 'paused';
    this.wasPaused = true;
    this.#child.kill('SIGSTOP');
  }

  wake() {
    this.#child.kill('SIGCONT');
    this.state = 'up';
  }

  /** Whether it ended although nobody ended it. */
  get hasDied() {
    return this.state === 'up' && (this.#child.exitCode !== null || this.#child.signalCode !== null);
  }
}
