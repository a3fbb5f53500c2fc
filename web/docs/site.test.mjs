// The documents as the real server shows them, in a real browser.

import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer, request } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';

import { launch, openContext, PHONE } from '../e2e/browser.mjs';
import { startServer } from '../e2e/server.mjs';
import { BINARY, TARGET } from '../target.mjs';
import { finish } from './finish.mjs';
import { anchorOf } from './markdown.mjs';
import { isPage, site, targetOf } from './pages.mjs';
import { BASE, HERE, OUT } from './places.mjs';
import { differenceFromList, SHIPPED } from './shipped.mjs';

// Most of a page's time is waiting.
const AT_ONCE = 4;
const ARTIFACTS = join(TARGET, 'docs-site');
const AXE = readFileSync(createRequire(join(HERE, '../e2e/look.mjs')).resolve('axe-core/axe.min.js'), 'utf8');
// VitePress's search button is called by its word, without the keys that it shows next to it.
const KNOWN_FAULTS = ['label-content-name-mismatch'];
// What a proxy puts in front of the bridge.
const PREFIX = '/some/where';

describe('docs-site', () => {
  const { pages, groups } = site();
  const addresses = [...pages.values()].map(({ slug }) => (slug === 'index' ? '/docs/' : `/docs/${slug}`));
  let server;
  let browser;

  before(async () => {
    mkdirSync(ARTIFACTS, { recursive: true });
    server = await startServer(BINARY);
    browser = await launch();
  });
  after(async () => {
    await browser?.close();
    await server?.stop();
  });

  const get = (path, init) => fetch(server.url + path, { redirect: 'manual', ...init });

  /** Opens pages in a profile of their own, which may leave no problem behind. */
  async function visit(options, run, origin = server.url) {
    const { context, problems } = await openContext(browser, origin, options);
    try {
      // What is fetched in advance is not waited for; without scripts, none is fetched.
      const isMeant = (reason) => reason === 'net::ERR_ABORTED' || (reason === 'csp' && options.javaScriptEnabled === false);
      context.on('requestfailed', (it) => isMeant(it.failure()?.errorText) || problems.push(`failed: ${it.url()}`));
      await run(await context.newPage(), problems);
      assert.deepEqual(problems, []);
    } finally {
      await context.close();
    }
  }

  const isAlive = (page) => page.waitForFunction(() => document.querySelector('#app')?.__vue_app__ !== undefined);
  const backgroundOf = (page) => page.evaluate(() => getComputedStyle(document.body).backgroundColor);

  test('every page loads under its policy, fits a phone, and links to what is there', async () => {
    const targets = new Map();
    const anchors = new Map();
    const waiting = [...addresses];
    const visitor = () =>
      visit({}, async (page, problems) => {
        page.on('response', (it) => it.status() >= 400 && problems.push(`${it.status()}: ${it.url()} on ${page.url()}`));
        for (let address = waiting.pop(); address !== undefined; address = waiting.pop()) {
          await page.setViewportSize({ width: 1280, height: 860 });
          await page.goto(server.url + address);
          await isAlive(page);
          const seen = await page.evaluate(() => ({
            links: [...document.querySelectorAll('a[href]')].map((it) => it.href),
            ids: [...document.querySelectorAll('[id]')].map((it) => it.id),
            words: document.querySelector('main').innerText.length,
          }));
          assert.ok(seen.words > 100, `${address} is empty`);
          anchors.set(server.url + address, new Set(seen.ids));
          for (const link of seen.links) targets.set(link, address);
          await page.setViewportSize(PHONE);
          const [wide, shown] = await page.evaluate(() => [document.documentElement.scrollWidth, innerWidth]);
          assert.ok(wide <= shown, `${address} is ${wide} wide on a phone of ${shown}`);
        }
      });
    await Promise.all(Array.from({ length: AT_ONCE }, visitor));
    assert.ok(anchors.size > 60, `only ${anchors.size} pages`);
    const own = [...targets.keys()].filter((link) => link.startsWith(server.url));
    assert.ok(own.length > 200, `only ${own.length} links`);
    for (const link of own) {
      const [page, anchor] = link.split('#');
      const place = `${link}, which is linked from ${targets.get(link)}`;
      if (!anchors.has(page)) assert.equal((await fetch(page, { method: 'HEAD' })).status, 200, place);
      else if (anchor !== undefined) assert.ok(anchors.get(page).has(decodeURIComponent(anchor)), place);
    }
  });

  test('the search finds a word where it is, without a service', () =>
    visit({}, async (page) => {
      await page.goto(`${server.url}/docs/`);
      await isAlive(page);
      await page.getByRole('button', { name: 'Search' }).click();
      await page.getByRole('searchbox').fill('PKCE');
      await page.getByRole('option', { name: 'OpenID providers' }).click();
      await page.waitForURL(`${server.url}/docs/access#openid-providers`);
      await page.getByText('PKCE is always used').waitFor();
    }));

  test('the navigation has the groups of the list, and goes from page to page', () =>
    visit({}, async (page) => {
      await page.goto(`${server.url}/docs/`);
      await isAlive(page);
      const side = page.getByRole('navigation', { name: 'Sidebar Navigation' });
      for (const { text } of groups) await side.getByRole('heading', { name: text, level: 2, exact: true }).waitFor();
      await side.getByRole('link', { name: 'ADK agents', exact: true }).click();
      await page.getByRole('heading', { name: 'ADK agents', level: 1 }).waitFor();
      assert.equal(page.url(), `${server.url}/docs/adk`);
      assert.equal(await side.getByRole('link', { name: /^00\d\d/ }).count(), 0);
      // A link of the text, to a heading of another page.
      await page.locator('main a[href*="approvals"]').first().click();
      await page.getByRole('heading', { name: 'Approvals', level: 1 }).waitFor();
      await page.goBack();
      await page.getByRole('heading', { name: 'ADK agents', level: 1 }).waitFor();
      await side.getByRole('link', { name: 'Decisions', exact: true }).click();
      await side.getByRole('link', { name: /^0001/ }).click();
      await page.waitForURL(/\/docs\/adr-0001/);
      // The way back to the chat leaves the site.
      await page.getByRole('link', { name: 'Chat', exact: true }).first().click();
      await page.waitForURL(`${server.url}/`);
    }));

  test('the colours are those of the system, until others are chosen', () =>
    visit({ colorScheme: 'dark' }, async (page) => {
      await page.goto(`${server.url}/docs/adk`);
      await isAlive(page);
      const dark = await backgroundOf(page);
      await page.screenshot({ path: join(ARTIFACTS, 'dark.png') });
      await page.getByRole('switch').first().click();
      await page.waitForFunction(() => !document.documentElement.classList.contains('dark'));
      const light = await backgroundOf(page);
      assert.deepEqual([dark, light], ['rgb(21, 21, 24)', 'rgb(255, 255, 255)']);
      await page.reload();
      await isAlive(page);
      assert.equal(await backgroundOf(page), light);
      await page.screenshot({ path: join(ARTIFACTS, 'light.png') });
    }));

  for (const colorScheme of ['light', 'dark']) {
    test(`no serious fault for screen readers and weak eyes, ${colorScheme}`, () =>
      visit({ colorScheme }, async (page) => {
        for (const address of [
          '',
          'getting-started',
          'security',
          'adk-bridge-example-toml',
          'adr-0001-adk-events-in-ai-sdk-chunks-out',
        ]) {
          await page.goto(`${server.url}/docs/${address}`);
          await isAlive(page);
          await page.evaluate(AXE);
          const { violations } = await page.evaluate(() => window.axe.run());
          const serious = violations.filter(({ id, impact }) => /serious|critical/.test(impact) && !KNOWN_FAULTS.includes(id));
          const faults = serious.map(({ id, nodes }) => `${id}: ${nodes[0].html}`);
          assert.deepEqual(faults, [], address);
        }
      }));
  }

  test('a phone has the navigation behind a button', () =>
    visit({ viewport: PHONE, colorScheme: 'dark' }, async (page) => {
      await page.goto(`${server.url}/docs/operations`);
      await isAlive(page);
      await page.screenshot({ path: join(ARTIFACTS, 'phone.png') });
      await page.getByRole('button', { name: 'Menu' }).click();
      await page.getByRole('link', { name: 'Telemetry', exact: true }).click();
      await page.waitForURL(`${server.url}/docs/telemetry`);
      await page.getByRole('heading', { name: 'Logs, traces and metrics', level: 1 }).waitFor();
    }));

  test('without scripts, pages can be read and followed', () =>
    visit({ javaScriptEnabled: false }, async (page) => {
      await page.goto(`${server.url}/docs/getting-started`);
      await page.locator('main a[href="./front-ends"]').first().click();
      await page.getByRole('heading', { name: 'Front ends', level: 1 }).waitFor();
    }));

  test('behind a proxy that puts something in front, everything works as well', async () => {
    const proxy = createServer((from, to) => {
      const [path, rest] = [from.url.slice(0, PREFIX.length), from.url.slice(PREFIX.length)];
      if (path !== PREFIX) return to.writeHead(404).end();
      const headers = { ...from.headers, host: new URL(server.url).host };
      const onward = request(server.url + rest, { method: from.method, headers }, (answer) => {
        to.writeHead(answer.statusCode, answer.headers);
        answer.pipe(to);
      });
      from.pipe(onward);
    });
    proxy.listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const outside = `http://127.0.0.1:${proxy.address().port}${PREFIX}`;
    try {
      await visit(
        {},
        async (page, problems) => {
          page.on('response', (it) => it.status() >= 400 && problems.push(`${it.status()}: ${it.url()}`));
          await page.goto(`${outside}/docs`);
          assert.equal(page.url(), `${outside}/docs/`);
          await isAlive(page);
          await page.waitForFunction(() => [...document.images].every((it) => it.naturalWidth > 0));
          await page.locator('main a[href="./getting-started"]').first().click();
          await page.waitForURL(`${outside}/docs/getting-started`);
          await page.getByRole('heading', { name: 'Getting started', level: 1 }).waitFor();
          await page.getByRole('button', { name: 'Search' }).click();
          await page.getByRole('searchbox').fill('PKCE');
          await page.getByRole('option', { name: 'OpenID providers' }).click();
          await page.waitForURL(`${outside}/docs/access#openid-providers`);
          await page.getByText('PKCE is always used').waitFor();
        },
        outside,
      );
    } finally {
      proxy.close();
    }
  });

  test('an address without a page says so, at any depth', () =>
    visit({}, async (page) => {
      for (const address of ['/docs/nothing', '/docs/adr/nothing/at-all']) {
        const answer = await page.goto(server.url + address);
        assert.equal(answer.status(), 404, address);
        await isAlive(page);
        await page.getByRole('heading', { name: 'No such page' }).waitFor();
        assert.match(await page.evaluate(() => getComputedStyle(document.body).fontFamily), /^system-ui/);
        await page.getByRole('link', { name: 'To the documents' }).click();
        await page.waitForURL(`${server.url}/docs/`);
      }
    }));

  test('files have their types, and are kept as long as they are the same', async () => {
    const answer = await get('/docs');
    assert.deepEqual([answer.status, answer.headers.get('location')], [308, 'docs/']);
    const html = await (await get('/docs/')).text();
    const assets = [...html.matchAll(/(?:src|href)="\.\/(assets\/[^"]+\.(?:js|css))"/g)].map(([, path]) => `/docs/${path}`);
    assert.ok(assets.length > 4, html);
    for (const [path, type, cache] of [
      ['/docs/', 'text/html; charset=utf-8', 'no-cache'],
      ['/docs/adk', 'text/html; charset=utf-8', 'no-cache'],
      ['/docs/icon.svg', 'image/svg+xml', 'no-cache'],
      ['/docs/hashmap.json', 'application/json', 'no-cache'],
      ...assets.map((path) => [
        path,
        `text/${path.endsWith('.js') ? 'javascript' : 'css'}; charset=utf-8`,
        'public, max-age=31536000, immutable',
      ]),
    ]) {
      const found = await get(path, { headers: { 'accept-encoding': 'br' } });
      const { headers } = found;
      assert.equal(found.status, 200, path);
      assert.deepEqual([headers.get('content-type'), headers.get('cache-control')], [type, cache], path);
      assert.equal(headers.get('content-encoding'), 'br', path);
      assert.equal(headers.get('x-content-type-options'), 'nosniff', path);
      const policy = headers.get('content-security-policy');
      assert.match(policy, /^default-src 'none'; script-src 'self'; style-src 'self'; /, path);
      const head = await get(path, { method: 'HEAD', headers: { 'accept-encoding': 'br' } });
      assert.deepEqual([head.status, head.headers.get('etag')], [200, headers.get('etag')], path);
      assert.equal(
        (await get(path, { headers: { 'if-none-match': headers.get('etag') } })).status,
        200,
        `${path}, not compressed`,
      );
      const known = { 'accept-encoding': 'br', 'if-none-match': headers.get('etag') };
      assert.equal((await get(path, { headers: known })).status, 304, path);
    }
  });

  test('nothing but the site is served', async () => {
    for (const path of ['adk.html', 'adk.html.br', 'index.html', 'assets/none.js', '%2e%2e/package.json', '..%2fpackage.json']) {
      const answer = await get(`/docs/${path}`);
      assert.equal(answer.status, 404, path);
      assert.doesNotMatch(await answer.text(), /adk-bridge-docs/, path);
    }
  });

  test('the server has neither panicked nor logged an error', () => {
    assert.doesNotMatch(server.log, /panicked| ERROR /);
  });

  describe('the build', () => {
    test('has pages for documents and for what readers copy, and no inline script', () => {
      assert.equal(pages.get('README.md').slug, 'index');
      assert.equal(pages.get('docs/adr/README.md').slug, 'adr');
      assert.equal(pages.get('web/client/README.md').slug, 'web-client');
      assert.deepEqual([isPage('examples/curl/chat.sh'), isPage('xtask/src/steps.rs'), isPage('deploy')], [true, false, false]);
      assert.ok(readdirSync(OUT).filter((name) => name.endsWith('.html')).length > pages.size);
    });

    test('finds where links lead, and fails if it is nowhere', () => {
      assert.deepEqual(targetOf('docs/adk.md', '../PROTOCOL.md#files'), { path: 'PROTOCOL.md', anchor: 'files' });
      assert.deepEqual(targetOf('examples/README.md', 'react/'), { path: 'examples/react/README.md', anchor: undefined });
      assert.equal(targetOf('docs/adk.md', 'https://example.com/'), undefined);
      assert.throws(() => targetOf('docs/adk.md', 'nothing.md'), /docs\/adk\.md: the link \(nothing\.md\) leads to nothing/);
    });

    test('names headings as code hosts do', () => {
      assert.equal(anchorOf('Three, four: five’s `GET /a_b`'), 'three-four-fives-get-a_b');
    });

    test('fails if a link or an absolute address is left', () => {
      const folder = mkdtempSync(join(tmpdir(), 'adk-bridge-docs-'));
      const built = (html) => {
        mkdirSync(join(folder, 'assets'), { recursive: true });
        writeFileSync(join(folder, 'index.html'), `<head></head><h1 id="a">A</h1>${html}`);
        finish(folder);
      };
      try {
        built(`<a class="b" href="${BASE}#a">A</a>`);
        assert.throws(() => built(`<a href="${BASE}b">B</a>`), /links lead nowhere:\nindex: \.\/b$/);
        assert.throws(() => built('<a href="#b">B</a>'), /index: #b$/);
        assert.throws(() => built(`<img srcset='${BASE}b.png'>`), /has an absolute address/);
      } finally {
        rmSync(folder, { recursive: true });
      }
    });

    test('ships only packages whose licenses are in the notices', () => {
      const modules = SHIPPED.map((name) => `/x/node_modules/${name}/index.js`);
      assert.equal(differenceFromList(modules), undefined);
      assert.match(differenceFromList([...modules, '/x/node_modules/@a/b/c.js']), /^@a\/b would be shipped/);
      assert.match(differenceFromList(modules.slice(1)), /^nothing of @docsearch\/css is shipped/);
    });
  });
});
