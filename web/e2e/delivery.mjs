// How the page comes: its size, its headers, any path before it, and nothing from elsewhere.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';
import { gzipSync } from 'node:zlib';

import { OTHER_HOST } from './browser.mjs';

const MAX_FIRST_LOAD_BYTES = 250_000;
const MAX_FIRST_STYLE_BYTES = 12_000;

export const deliveryTests = [
  [
    'delivery: the first load has at most 250 kB of gzipped script, 12 kB of styles and no fonts, and asks its own origin only',
    async (open) => {
      const visit = await open();
      await visit.get('suggestions').waitFor();
      const loaded = await visit.page.evaluate(() => performance.getEntriesByType('resource').map(({ name }) => name));
      const gzipped = async (extension) => {
        const urls = loaded.filter((name) => name.includes(extension));
        const sizes = await Promise.all(
          urls.map(async (url) => gzipSync(Buffer.from(await (await fetch(url)).arrayBuffer()), { level: 9 }).length),
        );
        return sizes.reduce((total, size) => total + size, 0);
      };
      const [script, style] = [await gzipped('.js'), await gzipped('.css')];
      console.log(`      first load: ${script} bytes of gzipped script, ${style} of styles`);
      assert.ok(script > 0 && script <= MAX_FIRST_LOAD_BYTES, `${script} bytes of script`);
      assert.ok(style > 0 && style <= MAX_FIRST_STYLE_BYTES, `${style} bytes of styles`);
      assert.deepEqual(
        loaded.filter((name) => name.includes('.woff')),
        [],
      );
    },
  ],
  [
    'delivery: assets are compressed, kept forever, and the page is asked for again',
    async (_open, { servers: { usual } }) => {
      const page = await fetch(usual.url, { headers: { 'accept-encoding': 'br' } });
      assert.equal(page.headers.get('content-encoding'), 'br');
      assert.equal(page.headers.get('cache-control'), 'no-cache');
      const policy = page.headers.get('content-security-policy');
      assert.match(policy, /default-src 'none'; script-src 'self'; style-src 'self';/);
      assert.doesNotMatch(policy, /unsafe-eval|script-src[^;]*unsafe-inline/);
      const html = await page.text();
      assert.doesNotMatch(html, /<script(?![^>]*\bsrc=)|\son\w+=|href="\/|src="\//);
      const again = await fetch(usual.url, {
        headers: { 'accept-encoding': 'br', 'if-none-match': page.headers.get('etag') },
      });
      assert.equal(again.status, 304);
      for (const [, path] of html.matchAll(/(?:src|href)="\.\/(assets\/[^"]+)"/g)) {
        for (const encoding of ['br', 'gzip']) {
          const asset = await fetch(`${usual.url}/${path}`, { headers: { 'accept-encoding': encoding } });
          assert.equal(asset.status, 200, path);
          assert.equal(asset.headers.get('content-encoding'), encoding, path);
          assert.match(asset.headers.get('cache-control'), /max-age=31536000, immutable/);
          assert.equal(asset.headers.get('x-content-type-options'), 'nosniff');
          assert.ok((await asset.arrayBuffer()).byteLength > 0);
        }
        const plain = await fetch(`${usual.url}/${path}`, { headers: { 'accept-encoding': 'identity' } });
        assert.equal(plain.headers.get('content-encoding'), null);
      }
    },
  ],
  [
    'delivery: the page works below any path',
    async (open, { servers: { usual } }) => {
      const proxy = await prefixed(usual.url, '/tools/agent');
      try {
        const visit = await open({ server: { ...usual, url: proxy.url } });
        await visit.say('draw a cat');
        const picture = visit.get('picture').locator('img');
        await visit.until(() => picture.evaluate((image) => image.naturalWidth > 0), 'the picture to be shown');
        await visit.say('where am I');
        await visit.get('approve').click();
        await visit.sees('You are at');
        await visit.page.reload();
        await visit.sees('You are at');
      } finally {
        await proxy.close();
      }
    },
  ],
  [
    'delivery: the page works over plain HTTP from another machine, where browsers allow less',
    async (open, { servers: { usual } }) => {
      const proxy = await prefixed(usual.url, '');
      const url = proxy.url.replace('127.0.0.1', OTHER_HOST);
      try {
        const visit = await open({ server: { ...usual, url }, permissions: [] });
        assert.equal(await visit.page.evaluate(() => isSecureContext), false);
        await visit.page.goto(`${url}/`);
        await visit.get('suggestions').waitFor();
        await visit.say('say copied');
        await visit.answered();
        // It says so for a moment only.
        const copied = visit.page.getByRole('button', { name: 'Copied', exact: true }).waitFor();
        await Promise.all([copied, visit.get('copy').click()]);
        await visit.get('composer').press('Control+v');
        assert.equal(await visit.get('composer').inputValue(), 'copied');
      } finally {
        await proxy.close();
      }
    },
  ],
];

/** A server that passes on what lies below a path, and has nothing else. */
async function prefixed(target, prefix) {
  const server = createServer(async (request, response) => {
    if (!request.url.startsWith(`${prefix}/`)) {
      response.writeHead(404).end();
      return;
    }
    const body = [];
    for await (const piece of request) body.push(piece);
    // The origin is the proxy's own, as the bridge's page would have it.
    const { host: _host, origin: _origin, connection: _connection, ...headers } = request.headers;
    delete headers['content-length'];
    const answer = await fetch(target + request.url.slice(prefix.length), {
      method: request.method,
      headers,
      ...(body.length > 0 && { body: Buffer.concat(body) }),
    });
    const kept = [...answer.headers].filter(([name]) => !/^(content-encoding|content-length|transfer-encoding)$/.test(name));
    response.writeHead(answer.status, Object.fromEntries(kept));
    for await (const piece of answer.body ?? []) response.write(piece);
    response.end();
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${server.address().port}${prefix}`,
    close: () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())),
  };
}
