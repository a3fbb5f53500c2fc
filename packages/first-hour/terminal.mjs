// A terminal as a newcomer uses it: commands of a document one after the other, and one that goes on until it is stopped.

import { spawn } from 'node:child_process';
import { once } from 'node:events';

import { commandsOf } from '../../web/documents/commands.mjs';

// Everything is built and installed within it, on a busy machine too; without a bound a hanging program would be killed nameless.
const LIMIT_MS = 20 * 60_000;
/** What the next commands of a terminal find. */
const IS_KEPT = /^(export|cd|\.) /;

export class Terminal {
  #kept = [];
  #cwd;
  #env;
  #here;
  #running;

  /** `here` changes a command into what it is on this machine. */
  constructor(cwd, env, here) {
    this.#cwd = cwd;
    this.#env = env;
    this.#here = here;
  }

  /** Runs the commands of a block to their end; resolves to what they said. */
  async run(text) {
    let said = '';
    for (const command of commandsOf(text)) said += await this.#one(this.#here(command));
    return said;
  }

  /** Runs the commands of a block, of which the last goes on; resolves to the first group of `ready` in what it says. */
  async serve(text, ready) {
    const commands = commandsOf(text);
    await this.run(commands.slice(0, -1).join('\n'));
    const command = this.#here(commands.at(-1));
    const child = this.#start(command);
    this.#running = child;
    return within(command, child, (resolve, reject) => {
      child.on('said', (said) => {
        const found = ready.exec(said);
        if (found !== null) resolve(found[1]);
      });
      child.on('close', (code) => reject(new Error(`\`${command}\` ended with ${code}:\n${child.said}`)));
    });
  }

  /** Ctrl-C: everything that the terminal runs is asked to stop. */
  async stop() {
    const child = this.#running;
    this.#running = undefined;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const closed = once(child, 'close');
    process.kill(-child.pid, 'SIGINT');
    await within('Ctrl-C', child, (resolve) => closed.then(resolve));
  }

  /** Leaves nothing of what the terminal runs. */
  close() {
    if (this.#running !== undefined) kill(this.#running);
  }

  async #one(command) {
    if (IS_KEPT.test(command)) {
      this.#kept.push(command);
      return '';
    }
    const child = this.#start(command);
    const code = await within(command, child, (resolve, reject) => {
      child.on('error', reject);
      child.on('close', resolve);
    });
    if (code !== 0) throw new Error(`\`${command}\` ended with ${code}:\n${child.said}`);
    return child.said;
  }

  #start(command) {
    const script = ['set -euo pipefail', ...this.#kept, command].join('\n');
    // A group of its own, so that what it starts does not outlive it.
    const options = { cwd: this.#cwd, env: this.#env, stdio: ['ignore', 'pipe', 'pipe'], detached: true };
    const child = spawn('bash', ['-c', script], options);
    child.said = '';
    for (const stream of [child.stdout, child.stderr]) {
      stream.on('data', (piece) => {
        child.said += piece;
        child.emit('said', child.said);
      });
    }
    return child;
  }
}

function within(what, child, begin) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(() => {
      kill(child);
      reject(new Error(`\`${what}\` took too long:\n${child.said}`));
    }, LIMIT_MS);
    const settle = (how) => (value) => (clearTimeout(timer), how(value));
    begin(settle(resolve), settle(reject));
  });
}

function kill(child) {
  try {
    process.kill(-child.pid, 'SIGKILL');
  } catch {
    // It has ended.
  }
}
