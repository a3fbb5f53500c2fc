// A page of another origin, on a bridge with keys: its pictures are drawn by plain `<img>` elements, which send no key.

import assert from 'node:assert/strict';
import { createServer } from 'node:http';

import { startServer } from './server.mjs';

const KEY = 'a-key-of-the-page-0123456789';

// Keeps out everything that does not say that it may be shown elsewhere.
const HEADERS = { 'content-type': 'text/html', 'cross-origin-embedder-policy': 'require-corp' };

export const elsewhereTests = [
  [
    'elsewhere: pictures of a bridge with keys are drawn on a page of another origin',
    async (_open, { binary, browser }) => {
      const page = createServer((_request, response) => response.writeHead(200, HEADERS).end('<!doctype html><p>a page'));
      await new Promise((resolve) => page.listen(0, '127.0.0.1', resolve));
      const origin = `http://localhost:${page.address().port}`;
      const keys = `[auth]\napi_keys = [{ key = "${KEY}", user = "alice" }]\n`;
      const server = await startServer(binary, `[server]\nallowed_origins = ["${origin}"]\n${keys}[demo]\npace = "0ms"\n`);
      const context = await browser.newContext();
      try {
        const tab = await context.newPage();
        await tab.goto(origin);
        const drawn = await tab.evaluate(drawPictures, { bridge: server.url, key: KEY });
        assert.equal(drawn.length, 3);
        for (const { url, width, how } of drawn) {
          assert.ok(url.startsWith(`${server.url}/api/files/`), `${how}: ${url}`);
          assert.ok(width > 0, `${how}: ${url} is not drawn`);
        }
        // Without its signature it is what it was: for its owner.
        const [bare] = drawn[0].url.split('?');
        assert.equal((await fetch(bare)).status, 401);
      } finally {
        await context.close();
        await server.stop();
        page.close();
      }
    },
  ],
];

/** Runs in the page: asks for a picture, uploads another, loads the chat, and draws each as any page would. */
async function drawPictures({ bridge, key }) {
  const headers = { authorization: `Bearer ${key}` };
  const parts = [{ type: 'text', text: 'draw a cat' }];
  const body = JSON.stringify({ id: 'c', messages: [{ id: 'u1', role: 'user', parts }] });
  const json = { ...headers, 'content-type': 'application/json' };
  const answer = await fetch(`${bridge}/api/chat`, { method: 'POST', headers: json, body });
  const streamed = (await answer.text())
    .split('\n')
    .filter((line) => line.startsWith('data: {"type":"file"'))
    .map((line) => JSON.parse(line.slice('data: '.length)).url);
  const chat = await (await fetch(`${bridge}/api/chats/c`, { headers })).json();
  const listed = chat.messages.flatMap((message) => message.parts).filter((part) => part.type === 'file');
  const canvas = document.createElement('canvas');
  const blob = await new Promise((resolve) => canvas.toBlob(resolve, 'image/png'));
  const sent = await fetch(`${bridge}/api/files?chat=c`, { method: 'POST', headers, body: blob });
  const urls = [
    ...streamed.map((url) => ({ url, how: 'streamed' })),
    ...listed.map(({ url }) => ({ url, how: 'listed' })),
    { url: (await sent.json()).url, how: 'uploaded' },
  ];
  return Promise.all(
    urls.map(async ({ url, how }) => {
      const picture = new Image();
      picture.src = url;
      document.body.append(picture);
      await picture.decode().catch(() => {});
      return { url, how, width: picture.naturalWidth };
    }),
  );
}
