// Builds the documents into `dist`, from where the server embeds them.

import { copyFileSync, mkdirSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { build } from 'vitepress';

import { finish } from './finish.mjs';
import { fileAsDocument } from './markdown.mjs';
import { ROOT, site, textOf } from './pages.mjs';
import { HERE, ICON, OUT, PAGES } from './places.mjs';

const { pages } = site();
for (const place of [PAGES, OUT]) empty(place);
mkdirSync(join(PAGES, 'public'), { recursive: true });
copyFileSync(join(ROOT, 'web/ui/src/icon.svg'), join(PAGES, 'public', ICON));
for (const { source, slug, kind } of pages.values()) {
  const text = kind === 'file' ? fileAsDocument(source, textOf(source)) : textOf(source);
  writeFileSync(join(PAGES, `${slug}.md`), text);
}
// Its sources, for those who want to know whether the site is old.
writeFileSync(join(PAGES, 'sources.txt'), [...pages.keys()].map((source) => `${source}\n`).join(''));
try {
  await build(HERE);
  finish(OUT);
} catch (problem) {
  // Half a site is none.
  empty(OUT);
  throw problem;
}

/** The folder itself stays: a server that is compiled meanwhile looks for it. */
function empty(folder) {
  mkdirSync(folder, { recursive: true });
  for (const name of readdirSync(folder)) rmSync(join(folder, name), { recursive: true });
}
