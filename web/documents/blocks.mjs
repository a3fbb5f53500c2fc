// The fenced code blocks of the project's documents.

import { execFileSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const ROOT = join(dirname(fileURLToPath(import.meta.url)), '../..');

/** Every Markdown file that belongs to the project, from its root. */
export function documents() {
  const listed = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard', '*.md'], {
    cwd: ROOT,
    encoding: 'utf8',
  });
  return listed.trim().split('\n');
}

/** The blocks of a document in their order, each with its language, its text and the line on which it begins. */
export function blocksOf(path) {
  return blocksIn(path, readFileSync(join(ROOT, path), 'utf8'));
}

export function blocksIn(path, text) {
  const found = [];
  let open;
  for (const [index, line] of text.split('\n').entries()) {
    const [, indent, language] = /^( *)```(.*)$/.exec(line) ?? [];
    if (open === undefined && language !== undefined) {
      open = { path, line: index + 1, language: language.split(' ')[0], indent, lines: [] };
    } else if (open !== undefined && language === '') {
      const { indent, lines, ...block } = open;
      found.push({ ...block, text: lines.map((it) => `${it.slice(indent.length)}\n`).join('') });
      open = undefined;
    } else {
      open?.lines.push(line);
    }
  }
  if (open !== undefined) throw new Error(`${path}:${open.line}: the block has no end`);
  return found;
}
