// How Markdown that is written for code hosts becomes that of the site: links, pictures, anchors, braces.

import { copyFileSync } from 'node:fs';
import { join, posix } from 'node:path';

import { ROOT, targetOf } from './pages.mjs';
import { PAGES } from './places.mjs';

/** Languages of code that nothing here knows the colours of. */
const UNCOLOURED = ['caddyfile', 'sse'];

/** Changes a markdown-it. Pages are found by their addresses in the site and by their sources. */
export function codeHostMarkdown(md, pageBySlug, pageBySource) {
  // Of bare text only whole addresses are links, not names such as README.md.
  md.linkify.set({ fuzzyLink: false, fuzzyEmail: false });
  md.core.ruler.push('links_of_the_site', (state) => {
    const source = pageBySlug.get(state.env.relativePath?.replace(/\.md$/, ''))?.source;
    if (source === undefined) return;
    for (const token of state.tokens) {
      if (token.type === 'inline') token.children = relinked(token.children, source, state.Token);
      if (UNCOLOURED.includes(token.info.split(' ')[0])) token.info = 'text';
    }
  });
  // Vue would take what stands between two braces for an expression.
  for (const kind of ['text', 'code_inline']) {
    const render = md.renderer.rules[kind];
    md.renderer.rules[kind] = (...args) => render(...args).replaceAll('{{', '&#123;&#123;');
  }

  function relinked(tokens, source, Token) {
    const made = [];
    const open = [];
    for (const token of tokens) {
      if (token.type === 'image') picture(token, source);
      if (token.type === 'link_open') {
        const shown = shownPath(token, source);
        open.push({ shown, begin: made.length });
        if (shown === undefined) made.push(token);
      } else if (token.type === 'link_close') {
        const { shown, begin } = open.pop();
        if (shown === undefined) made.push(token);
        else made.push(...asText(made.splice(begin), shown, Token));
      } else made.push(token);
    }
    return made;
  }

  /** Gives a link its address in the site, or returns the path of a file that the site does not have. */
  function shownPath(token, source) {
    const target = targetOf(source, token.attrGet('href'));
    if (target === undefined) return undefined;
    const { path, anchor } = target;
    const page = pageBySource.get(path);
    if (page === undefined) {
      if (path.endsWith('.md')) throw new Error(`${source}: the link to ${path} was not seen by pages.mjs`);
      return path;
    }
    const hash = anchor === undefined ? '' : `#${anchor}`;
    if (path === source && hash !== '') token.attrSet('href', hash);
    else token.attrSet('href', `./${page.slug === 'index' ? '' : page.slug}${hash}`);
    return undefined;
  }

  function picture(token, source) {
    const target = targetOf(source, token.attrGet('src'));
    if (target === undefined) throw new Error(`${source}: a picture from elsewhere is not shown without internet`);
    const name = target.path.replaceAll('/', '-');
    copyFileSync(join(ROOT, target.path), join(PAGES, name));
    token.attrSet('src', `./${name}`);
  }
}

/** The words of a link with the path that they stand for; words that end the path are part of it. */
function asText(words, path, Token) {
  const code = new Token('html_inline', '', 0);
  // It may be broken between its parts.
  code.content = `<code>${path.replaceAll('/', '/<wbr>')}</code>`;
  const said = words.map(({ content }) => content).join('');
  if (path.endsWith(said.replace(/\/$/, ''))) return [code];
  const [before, after] = [' (', ')'].map((content) => Object.assign(new Token('text', '', 0), { content }));
  return [...words, before, code, after];
}

/** What a heading is called in links, as code hosts derive it from its text. */
export function anchorOf(heading) {
  return heading
    .trim()
    .toLowerCase()
    .replaceAll(/[^\p{Alphabetic}\p{N}\- _]/gu, '')
    .replaceAll(' ', '-');
}

/** A file as a document. */
export function fileAsDocument(path, text) {
  const language = LANGUAGES[posix.extname(path)] ?? LANGUAGES[posix.basename(path)] ?? 'text';
  // Its lines are long, and it has no headings that could be listed next to it.
  return `---\naside: false\n---\n\n# \`${path}\`\n\n~~~~~${language}\n${text.trimEnd()}\n~~~~~\n`;
}

const LANGUAGES = {
  '.css': 'css',
  '.html': 'html',
  '.mjs': 'js',
  '.js': 'js',
  '.py': 'python',
  '.rs': 'rust',
  '.service': 'ini',
  '.sh': 'sh',
  '.toml': 'toml',
  '.ts': 'ts',
  '.tsx': 'tsx',
  '.yaml': 'yaml',
  Dockerfile: 'docker',
};
