// The proxies, each set up with the words of docs/front-ends.md; returns the address of the page.

import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

import { blocksOf } from '../documents/blocks.mjs';
import { directory, freePort, run, startServer } from './processes.mjs';

/** The document that says how each proxy is set up, and what the comment on top of its block begins with. */
export const GUIDE = 'docs/front-ends.md';
export const SNIPPETS = ['next.config.mjs', 'vite.config.js', 'Express', 'nginx', 'Caddy'];

const packages = createRequire(import.meta.url);

export const isSnippet = ({ path, text }, comment) => path === GUIDE && text.slice(2).trimStart().startsWith(comment);

/** The code block of the guide that begins with this comment, for this bridge. */
function snippet(comment, bridge) {
  const found = blocksOf(GUIDE).find((block) => isSnippet(block, comment));
  if (found === undefined) throw new Error(`${GUIDE} has no block that begins with ${comment}`);
  return found.text.replaceAll('127.0.0.1:8080', new URL(bridge).host);
}

const PAGE = {
  'app/layout.jsx': 'export default ({ children }) => <html><body>{children}</body></html>;',
  'app/page.jsx': 'export default () => <p>a page</p>;',
};

/** Next.js with rewrites, as a development server or built. */
export const next = (mode) => async (bridge) => {
  const path = directory({ 'next.config.mjs': snippet('next.config.mjs', bridge), ...PAGE });
  const port = await freePort();
  const program = packages.resolve('next/dist/bin/next');
  const env = { ...process.env, NEXT_TELEMETRY_DISABLED: '1', CI: '1' };
  if (mode === 'start') await run(process.execPath, [program, 'build', path], { env });
  const args = [program, mode, path, '--port', String(port), '--hostname', '127.0.0.1'];
  return serving(`http://127.0.0.1:${port}`, process.execPath, args, { env });
};

/** Vite's development server; `options` are added to those of the guide. */
export const vite = (options) => async (bridge) => {
  const config = snippet('vite.config.js', bridge).replace('ws: true', `ws: true, ...${JSON.stringify(options)}`);
  const path = directory({ 'vite.config.mjs': config, 'index.html': '<p>a page</p>' });
  const port = await freePort();
  const program = join(dirname(packages.resolve('vite/package.json')), 'bin/vite.js');
  const args = [program, path, '--port', String(port), '--strictPort', '--host', '127.0.0.1'];
  return serving(`http://127.0.0.1:${port}`, process.execPath, args);
};

/** Express, which compresses whatever may be compressed. */
export const express = async (bridge) => {
  const port = await freePort();
  const server = `
    import { createServer } from 'node:http';
    import compression from 'compression';
    import express from 'express';
    import { createProxyMiddleware } from 'http-proxy-middleware';
    const app = express();
    const server = createServer(app);
    app.use(compression());
    ${snippet('Express', bridge)}
    app.get('/', (request, response) => response.send('a page'));
    server.listen(${port}, '127.0.0.1');
  `;
  const path = directory({ 'server.mjs': server });
  return serving(`http://127.0.0.1:${port}`, process.execPath, [join(path, 'server.mjs')]);
};

const PLAIN_NGINX = (bridge) => `server { listen 80; location / { proxy_pass ${bridge}; proxy_http_version 1.1; } }`;

/** nginx with its own buffering and everything compressed: as it is by default, or as in the guide. */
export const nginx = (kind) => async (bridge) => {
  const port = await freePort();
  const server = kind === 'guide' ? snippet('nginx', bridge) : PLAIN_NGINX(bridge);
  const path = directory({});
  const config = `
    daemon off;
    pid ${path}/pid;
    error_log stderr;
    events {}
    http {
      access_log off;
      gzip on;
      gzip_min_length 1;
      gzip_types *;
      ${['client_body', 'proxy', 'fastcgi', 'uwsgi', 'scgi'].map((it) => `${it}_temp_path ${path}/${it};`).join('\n')}
      ${server.replace('listen 80', `listen 127.0.0.1:${port}`)}
    }`;
  const file = join(directory({ 'nginx.conf': config }), 'nginx.conf');
  return serving(`http://127.0.0.1:${port}`, 'nginx', ['-p', path, '-c', file]);
};

/** Caddy, which compresses what it may. */
export const caddy = async (bridge) => {
  const port = await freePort();
  const config = `{\n admin off\n auto_https off\n}\n${snippet('Caddy', bridge).replace(':80 {', `http://:${port} {\n    bind 127.0.0.1`)}`;
  const path = directory({ Caddyfile: config });
  const env = { ...process.env, HOME: path, XDG_CONFIG_HOME: path, XDG_DATA_HOME: path };
  const args = ['run', '--adapter', 'caddyfile', '--config', join(path, 'Caddyfile')];
  return serving(`http://127.0.0.1:${port}`, 'caddy', args, { env });
};

async function serving(url, program, args, options) {
  await startServer(url, program, args, options);
  return url;
}
