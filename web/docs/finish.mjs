// Finishes what VitePress has built: it works at any address and without inline scripts, no link is dead, texts are compressed.

import { createHash } from 'node:crypto';
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';

import { BASE } from './places.mjs';

/** Scripts ask it for the address that the site has. */
const ADDRESS = 'window.addressOfTheSite';
/** It tells them: all pages are in the folder above its own. */
const TELL_ADDRESS = `${ADDRESS}=new URL("..",document.currentScript.src).pathname;`;
const INLINE_SCRIPT = /<script(?![^>]*\ssrc=)[^>]*>([\s\S]*?)<\/script>/g;
const COMPRESSED = /\.(html|js|css|svg|json)$/;

/** Changes the files of a directory, or says why they would not work. */
export function finish(directory) {
  const files = filesIn(directory);
  for (const file of files.filter((name) => name.endsWith('.html'))) change(file, (html) => relativePage(html, directory));
  for (const file of files.filter((name) => name.endsWith('.js'))) change(file, (script) => relativeScript(script, file));
  checkLinks(directory);
  for (const file of filesIn(directory)) {
    const content = readFileSync(file);
    if (content.includes(BASE) && !isIndex(file)) throw new Error(`${file} has an absolute address: see web/docs/finish.mjs`);
    if (COMPRESSED.test(file)) compress(file, content);
  }
}

/** A page whose addresses are relative, and whose scripts are files. */
function relativePage(html, directory) {
  const scripts = [...html.matchAll(INLINE_SCRIPT)].map(([, script]) => script.trim());
  const start = [TELL_ADDRESS, ...scripts].join('\n');
  const name = `assets/start.${createHash('sha256').update(start).digest('hex').slice(0, 8)}.js`;
  writeFileSync(join(directory, name), start);
  const external = `<script src="./${name}"></script>`;
  return html
    .replaceAll(INLINE_SCRIPT, '')
    .replace('<head>', () => `<head>\n    ${external}`)
    .replaceAll(`="${BASE}`, '="./');
}

/** A script that takes addresses from the one that tells them. */
function relativeScript(script, file) {
  if (isIndex(file)) {
    // One long text, in which each section has its address.
    const changed = script.replace(/;export\{/, `.replaceAll(${JSON.stringify(BASE)},${ADDRESS});export{`);
    if (changed === script) throw new Error(`${file} has another form: see web/docs/finish.mjs`);
    return changed;
  }
  // What VitePress knows of the site is JSON in a text.
  const known = JSON.stringify(`"base":"${BASE}"`).slice(1, -1);
  if (script.includes(known)) {
    return `${script.replace(known, JSON.stringify('"base":""').slice(1, -1))};window.__VP_SITE_DATA__.base=${ADDRESS};`;
  }
  return script.replaceAll(new RegExp(`"${BASE}([^"\\\\]*)"`, 'g'), (_whole, rest) => `(${ADDRESS}+${JSON.stringify(rest)})`);
}

function isIndex(file) {
  return file.includes('@localSearchIndex');
}

/** Fails if a page links to a page or a heading that is not there. */
function checkLinks(directory) {
  const names = readdirSync(directory).filter((name) => name.endsWith('.html'));
  const pages = new Map(names.map((name) => [name.replace(/\.html$/, ''), readFileSync(join(directory, name), 'utf8')]));
  const anchors = new Map(
    [...pages].map(([name, html]) => [name, new Set([...html.matchAll(/ id="([^"]+)"/g)].map(([, id]) => id))]),
  );
  const dead = [];
  for (const [name, html] of pages) {
    for (const [, href] of html.matchAll(/<a [^>]*href="([^"]+)"/g)) {
      if (/^([a-z]+:|\.\.\/)/.test(href)) continue;
      const [path, anchor] = href.split('#');
      const to = path === '' ? name : path.replace(/^\.\//, '') || 'index';
      const isThere = anchors.get(to)?.has(decodeURIComponent(anchor ?? ''));
      if (!pages.has(to) || (anchor !== undefined && !isThere)) dead.push(`${name}: ${href}`);
    }
  }
  if (dead.length > 0) throw new Error(`links lead nowhere:\n${dead.join('\n')}`);
}

/** Writes `NAME.br` and `NAME.gz`, so that the server compresses nothing. */
function compress(file, content) {
  const quality = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
  writeFileSync(`${file}.br`, brotliCompressSync(content, { params: quality }));
  writeFileSync(`${file}.gz`, gzipSync(content, { level: 9 }));
}

function change(file, how) {
  writeFileSync(file, how(readFileSync(file, 'utf8'), file));
}

function filesIn(directory) {
  return readdirSync(directory).flatMap((name) => {
    const path = join(directory, name);
    return statSync(path).isDirectory() ? filesIn(path) : [path];
  });
}
