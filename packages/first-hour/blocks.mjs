// The code blocks that a newcomer follows within the first hour, by name, and where the documents say to put files.

import { blocksIn } from '../../web/documents/blocks.mjs';

export const GETTING_STARTED = 'docs/getting-started.md';
const ADK = 'docs/adk.md';

/** Each block by its document and what it begins with. The test of the first hour runs them all. */
export const FOLLOWED = {
  demo: { path: GETTING_STARTED, begins: 'cargo xtask run\n' },
  program: { path: GETTING_STARTED, begins: 'export PATH=' },
  packages: { path: GETTING_STARTED, begins: 'npm init -y\n' },
  proxy: { path: GETTING_STARTED, begins: '// vite.config.js of a page' },
  page: { path: GETTING_STARTED, begins: '<!doctype html>\n' },
  chat: { path: GETTING_STARTED, begins: "import { useChat } from '@ai-sdk/react';\n" },
  'served page': { path: GETTING_STARTED, begins: 'npx vite\n' },
  agent: { path: ADK, begins: 'from google.adk.agents import ' },
  environment: { path: GETTING_STARTED, begins: 'python3 -m venv ' },
  model: { path: GETTING_STARTED, begins: 'adk-bridge fake-gemini ' },
  'served agent': { path: GETTING_STARTED, begins: 'export GOOGLE_GEMINI_BASE_URL=' },
  bridge: { path: GETTING_STARTED, begins: 'export ADK_BRIDGE__AGENT__BASE_URL=' },
};

/** The names under which a block is followed: one, or it is not a part of the first hour. */
export const namesOf = ({ path, text }) =>
  Object.keys(FOLLOWED).filter((name) => FOLLOWED[name].path === path && text.startsWith(FOLLOWED[name].begins));

/** The blocks of a clone's documents as they are taken one by one, so that in the end none is left. */
export class Followed {
  #found;
  #taken = new Set();

  /** `read` has the text of a document. */
  constructor(read) {
    const documents = [...new Set(Object.values(FOLLOWED).map(({ path }) => path))];
    this.#found = documents.flatMap((path) => {
      const text = read(path);
      return blocksIn(path, text).map((block) => ({ ...block, file: fileBefore(block, text) }));
    });
  }

  take(name) {
    const found = this.#found.filter((block) => namesOf(block).includes(name));
    if (found.length !== 1) throw new Error(`${FOLLOWED[name].path} has ${found.length} blocks for "${name}", not one`);
    this.#taken.add(found[0]);
    return found[0];
  }

  /** What a newcomer reads and this has not taken. */
  left() {
    const mine = this.#found.filter((block) => block.path === GETTING_STARTED || namesOf(block).length > 0);
    return mine.filter((block) => !this.#taken.has(block)).map(({ path, line }) => `${path}:${line}`);
  }
}

/** The file that a document names last before a block. */
function fileBefore({ line }, text) {
  const before = text.split('\n', line - 1).join('\n');
  return [...before.matchAll(/`([\w./-]+\.(?:html|js|py|tsx))`/g)].at(-1)?.[1];
}
