// assistant-ui in a real browser against the real binary: another origin, and a key.

import { strict as assert } from 'node:assert';
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { dirname, extname, join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { launch } from '../e2e/browser.mjs';
import { startServer } from '../e2e/server.mjs';
import { BINARY } from '../target.mjs';

const BUILT = join(dirname(fileURLToPath(import.meta.url)), 'dist');
const TYPES = { '.html': 'text/html', '.js': 'text/javascript' };
const KEY = 'a-key-of-the-tests';
/** The smallest picture there is: one pixel. */
const PICTURE = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
// A busy machine takes its time; a test that passes takes none of it.
const LIMIT_MS = 60_000;

const TESTS = {
  'text streams in': async (visit) => {
    // Long enough that a busy machine, too, draws it more than once.
    await visit.exchange('long 600');
    assert.match(await visit.page.locator('[data-test=assistant]').innerText(), /word600/);
    assert.ok(visit.texts.size > 3, `only ${visit.texts.size} states of the answer were drawn`);
  },

  'a tool runs': async (visit) => {
    await visit.send('what is the weather in Tokyo');
    await visit.page.getByText(/°C and .* in Tokyo/).waitFor();
    assert.match(await visit.tool(0), /get_weather: .*temperatureCelsius/);
  },

  'an approval is given, and another one refused': async (visit) => {
    await visit.send('pay Hanako 50 dollars');
    await visit.page.getByRole('button', { name: 'Allow' }).click();
    await visit.page.getByText('Paid 50 USD to Hanako.').waitFor();
    await visit.idle();
    await visit.send('pay Hanako 20 dollars');
    await visit.page.getByRole('button', { name: 'Deny' }).click();
    await visit.idle();
    assert.deepEqual(await visit.audited(['approval.approved', 'approval.denied', 'tool.started']), [
      'approval.approved',
      'tool.started',
      'approval.denied',
    ]);
  },

  'a question survives a reload': async (visit) => {
    await visit.send('pay Hanako 50 dollars');
    await visit.page.getByRole('button', { name: 'Allow' }).waitFor();
    await visit.reload();
    await visit.page.getByRole('button', { name: 'Allow' }).click();
    await visit.page.getByText('Paid 50 USD to Hanako.').waitFor();
    assert.deepEqual(await visit.audited(['tool.started']), ['tool.started']);
  },

  'an edit replaces what it edits': async (visit) => {
    for (const text of ['say first', 'say second', 'say third']) await visit.exchange(text);
    await visit.edit(1, 'say other');
    await visit.showsBoth(['say first', 'say other'], ['first', 'other']);
    await visit.reload();
    await visit.showsBoth(['say first', 'say other'], ['first', 'other']);
    await visit.exchange('say fourth');
    await visit.reload();
    await visit.showsBoth(['say first', 'say other', 'say fourth'], ['first', 'other', 'fourth']);
  },

  'a branch is come back to': async (visit) => {
    for (const text of ['say first', 'say second']) await visit.exchange(text);
    await visit.edit(1, 'say other');
    await visit.showsBoth(['say first', 'say other'], ['first', 'other']);
    await visit.page.getByRole('button', { name: 'Previous' }).click();
    await visit.showsBoth(['say first', 'say second'], ['first', 'second']);
    await visit.exchange('say third');
    await visit.showsBoth(['say first', 'say second', 'say third'], ['first', 'second', 'third']);
    await visit.reload();
    await visit.showsBoth(['say first', 'say second', 'say third'], ['first', 'second', 'third']);
  },

  'an attachment is sent and kept': async (visit) => {
    const [chooser] = await Promise.all([
      visit.page.waitForEvent('filechooser'),
      visit.page.getByRole('button', { name: 'Attach' }).click(),
    ]);
    await chooser.setFiles({ name: 'pixel.png', mimeType: 'image/png', buffer: Buffer.from(PICTURE, 'base64') });
    await visit.page.locator('[data-test=composer] [data-test=attachment]').waitFor();
    await visit.exchange('describe the picture');
    const [question] = (await visit.stored()).messages;
    const file = question.parts.find((part) => part.type === 'file');
    // An address of the bridge, as every stock front end can show it.
    const answer = await fetch(new URL(file.url, visit.server.url));
    assert.equal(Buffer.from(await answer.arrayBuffer()).toString('base64'), PICTURE);
    await visit.reload();
    await visit.page.locator('[data-test=user] [data-test=attachment]').waitFor();
    await visit.exchange('say more');
  },

  'a picture is drawn, before and after a reload': async (visit) => {
    await visit.send('draw a cat');
    await visit.drawn();
    await visit.idle();
    await visit.reload();
    await visit.drawn();
  },
};

/** One page on one chat. */
class Visit {
  texts = new Set();

  constructor(page, server, origin) {
    this.page = page;
    this.server = server;
    this.chat = randomUUID();
    this.address = `${origin}/?${new URLSearchParams({ bridge: server.url, key: KEY, chat: this.chat })}`;
    page.setDefaultTimeout(LIMIT_MS);
  }

  async open() {
    await this.page.exposeFunction('drawnText', (text) => this.texts.add(text));
    await this.page.addInitScript(() => {
      new MutationObserver(() => {
        const last = [...document.querySelectorAll('[data-test=assistant]')].at(-1);
        if (last !== undefined && last.textContent !== '') window.drawnText(last.textContent);
      }).observe(document, { childList: true, subtree: true, characterData: true });
    });
    await this.page.goto(this.address);
    await this.idle();
  }

  async reload() {
    await this.idle();
    await this.page.reload();
    await this.idle();
  }

  idle() {
    return this.page.locator('[data-test=status]', { hasText: /^ready$/ }).waitFor();
  }

  async send(text) {
    await this.page.getByPlaceholder('Write').fill(text);
    await this.page.getByRole('button', { name: 'Send' }).click();
  }

  /** Says something and waits for the whole answer. */
  async exchange(text) {
    const before = await this.page.locator('[data-test=assistant]').count();
    await this.send(text);
    await this.page.waitForFunction((count) => document.querySelectorAll('[data-test=assistant]').length > count, before);
    await this.idle();
  }

  async edit(index, text) {
    const message = this.page.locator('[data-test=user]').nth(index);
    await message.getByRole('button', { name: 'Edit' }).click();
    const composer = this.page.locator('[data-test=edit]');
    await composer.locator('textarea').fill(text);
    await composer.getByRole('button', { name: 'Save' }).click();
  }

  tool(index) {
    return this.page.locator('[data-test=tool]').nth(index).innerText();
  }

  /** Waits until these are the paragraphs of this author. */
  async shows(author, expected) {
    try {
      await this.page.waitForFunction(
        ([selector, wanted]) => JSON.stringify([...document.querySelectorAll(selector)].map((it) => it.textContent)) === wanted,
        [`[data-test=${author}] p`, JSON.stringify(expected)],
      );
    } catch (error) {
      const found = await this.page.locator(`[data-test=${author}] p`).allTextContents();
      throw new Error(`${author} shows ${JSON.stringify(found)}, not ${JSON.stringify(expected)}`, { cause: error });
    }
  }

  async showsBoth(user, assistant) {
    await this.idle();
    await this.shows('user', user);
    await this.shows('assistant', assistant);
  }

  /** Waits until the picture of the answer has its pixels. */
  drawn() {
    return this.page.waitForFunction(() => document.querySelector('[data-test=assistant] img')?.naturalWidth > 0);
  }

  stored() {
    return this.server.json(`/api/chats/${this.chat}`, { headers: { authorization: `Bearer ${KEY}` } });
  }

  /** The kinds of the audit's rows, as far as they are among these. */
  async audited(kinds) {
    const rows = await this.server.json(`/api/audit?chat=${this.chat}`, { headers: { authorization: `Bearer ${KEY}` } });
    return rows.map((row) => row.kind).filter((kind) => kinds.includes(kind));
  }
}

/** Serves the page that was built. */
async function startPage() {
  const page = createServer((request, response) => {
    const { pathname } = new URL(request.url, 'http://page');
    const file = pathname === '/' ? 'index.html' : pathname.slice(1);
    try {
      response.setHeader('content-type', TYPES[extname(file)] ?? 'application/octet-stream');
      response.end(readFileSync(join(BUILT, file)));
    } catch {
      response.writeHead(404).end();
    }
  });
  await new Promise((resolve) => page.listen(0, '127.0.0.1', resolve));
  return { origin: `http://127.0.0.1:${page.address().port}`, close: () => page.close() };
}

describe('assistant-ui', () => {
  const ends = [];
  let page;
  let server;
  let browser;

  before(async () => {
    page = await startPage();
    ends.push(() => page.close());
    const toml = `
[server]
allowed_origins = ["${page.origin}"]
[auth]
api_keys = [{ key = "${KEY}", user = "alice" }]
[demo]
pace = "10ms"
`;
    server = await startServer(BINARY, toml);
    ends.push(() => server.stop());
    browser = await launch();
    ends.push(() => browser.close());
  });
  after(async () => {
    for (const end of ends.toReversed()) await end();
  });

  for (const [name, run] of Object.entries(TESTS)) {
    test(name, async () => {
      const context = await browser.newContext();
      const problems = [];
      context.on('weberror', (error) => problems.push(`uncaught: ${error.error().stack ?? error.error()}`));
      try {
        const visit = new Visit(await context.newPage(), server, page.origin);
        await visit.open();
        await run(visit);
      } catch (error) {
        problems.unshift(error.stack ?? String(error));
      } finally {
        await context.close();
      }
      assert.equal(problems.join('\n'), '');
    });
  }
});
