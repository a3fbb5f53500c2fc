// Which documents the site consists of, where each is found, and how they are listed.
//
// docs/README.md says what there is and in which groups; what the documents link to comes with them.

import { readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');

/** The list of all documents, and the page that the site opens with. */
export const LIST = 'docs/README.md';
const FIRST = 'README.md';
/** The group of the decision records, which are listed by their number. */
const DECISIONS = 'docs/adr/README.md';

/** What readers copy is shown as a page. Other sources are for those who have them: their paths are shown. */
const COPIED = [/^examples\//, /^deploy\//, /^crates\/[^/]+\/examples\//, /\.example\.toml$/, /^LICENSE$/];

/**
 * All pages by the paths of their sources, and the groups of the navigation. `kind` is `document`, or `file` for what is shown as it is.
 */
export function site() {
  const pages = new Map();
  const waiting = [FIRST, LIST];
  while (waiting.length > 0) {
    const source = waiting.pop();
    if (pages.has(source)) continue;
    const page = pageOf(source);
    pages.set(source, page);
    if (page.kind === 'document') waiting.push(...linksOf(source).filter(isPage));
  }
  for (const source of [...documentsIn('docs'), ...documentsIn('docs/adr')]) {
    if (!pages.has(source)) throw new Error(`${source} is linked from nowhere: list it in ${LIST}`);
  }
  const slugs = new Map();
  for (const [source, { slug }] of pages) {
    if (slugs.has(slug)) throw new Error(`${source} and ${slugs.get(slug)} have one address, /docs/${slug}: rename one`);
    slugs.set(slug, source);
  }
  return { pages, groups: groupsOf(pages) };
}

/** The file or folder of the project that a link leads to, with its anchor; `undefined` if it leads elsewhere. */
export function targetOf(source, href) {
  if (/^[a-z][a-z0-9+.-]*:/i.test(href)) return undefined;
  const [path, anchor] = decodeURI(href).split('#');
  const target = path === '' ? source : posix.normalize(posix.join(posix.dirname(source), path)).replace(/\/$/, '');
  const kind = kindOf(target);
  if (kind === undefined) throw new Error(`${source}: the link (${href}) leads to nothing`);
  const readme = posix.join(target, 'README.md');
  return { path: kind === 'folder' && kindOf(readme) === 'file' ? readme : target, anchor };
}

/** Whether something of the project is a page of the site where a document links to it. */
export function isPage(path) {
  return kindOf(path) === 'file' && (path.endsWith('.md') || COPIED.some((pattern) => pattern.test(path)));
}

export function textOf(path) {
  return readFileSync(join(ROOT, path), 'utf8').replaceAll('\r\n', '\n');
}

/** One folder holds all pages, so that each finds all others by a relative address, wherever the site is put. */
function pageOf(source) {
  const kind = source.endsWith('.md') ? 'document' : 'file';
  return { source, kind, slug: slugOf(source), title: kind === 'document' ? titleOf(source) : source };
}

function slugOf(source) {
  if (source === FIRST) return 'index';
  if (source === LIST) return 'documents';
  const path = source
    .replace(/^docs\//, '')
    .replace(/\.md$/, '')
    .replace(/\/README$/, '');
  return path.toLowerCase().replaceAll(/[^a-z0-9]+/g, '-');
}

function titleOf(source) {
  const heading = /^# (.+)$/m.exec(textOf(source));
  if (heading === null) throw new Error(`${source} has no title: begin it with "# "`);
  return heading[1].replaceAll('`', '').trim();
}

/** What the prose of a document links to inside the project. */
function linksOf(source) {
  const hrefs = [...prose(textOf(source)).matchAll(/\]\(([^)\s]+)/g)].map(([, href]) => href);
  return hrefs.flatMap((href) => targetOf(source, href)?.path ?? []);
}

/** A text without its code. */
function prose(text) {
  return text.replaceAll(/^ *(```|~~~)[\s\S]*?^ *\1/gm, '').replaceAll(/`[^`\n]*`/g, 'code');
}

/** The headings of the list are the groups, and what is linked below each its pages. */
function groupsOf(pages) {
  const sections = prose(textOf(LIST)).split(/^## /m).slice(1);
  const groups = sections.map((section) => {
    const [text] = section.split('\n');
    const listed = section.matchAll(/\[([^\]]+)\]\(([^)]+)\)/g);
    const items = [...listed].map(([, title, href]) => itemOf(pages, title, targetOf(LIST, href).path));
    return { text: text.trim(), items };
  });
  if (groups.length === 0) throw new Error(`${LIST} has no group: write "## " above each of its tables`);
  const placed = new Set(
    groups.flatMap(({ items }) => items.flatMap((item) => [item, ...item.items].map(({ source }) => source))),
  );
  for (const source of documentsIn('docs')) {
    if (source !== LIST && !placed.has(source)) throw new Error(`${source} is in no group: list it in ${LIST}`);
  }
  return groups;
}

/** A page in the navigation, and below it those that are in folders of its own. */
function itemOf(pages, text, source) {
  const page = pages.get(source);
  if (page === undefined) throw new Error(`${LIST} lists ${source}, which is no page`);
  const folder = `${posix.dirname(source)}/`;
  const isBelow = (other) => other.kind === 'document' && other.source.startsWith(folder) && other.source !== source;
  const hasOwn = posix.basename(source) === 'README.md' && folder !== './';
  const below = hasOwn ? [...pages.values()].filter(isBelow) : [];
  const items = below.map((other) => ({ text: other.title, source: other.source, slug: other.slug, items: [] }));
  // Records by number, others by name.
  const key = source === DECISIONS ? 'source' : 'text';
  return { text, source, slug: page.slug, items: items.sort((a, b) => (a[key] < b[key] ? -1 : 1)) };
}

function documentsIn(folder) {
  const names = readdirSync(join(ROOT, folder)).filter((name) => name.endsWith('.md'));
  return names.map((name) => posix.join(folder, name)).sort();
}

function kindOf(path) {
  const found = statSync(join(ROOT, path), { throwIfNoEntry: false });
  if (found === undefined || path.startsWith('..')) return undefined;
  return found.isDirectory() ? 'folder' : 'file';
}
