// One visit to the page of an example: what a person does and sees. All of these pages name their parts alike.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

// Nothing takes so long, on a machine that has much else to do either.
const WAIT_MS = 90_000;
const LOOK_AGAIN_MS = 50;

export class Visit {
  texts = new Set();
  chat = randomUUID();

  static async open(browser, bridge, url) {
    const visit = new Visit();
    Object.assign(visit, { bridge, url, problems: [], context: await browser.newContext({ permissions: ['microphone'] }) });
    visit.context.on('weberror', (error) => visit.problems.push(`uncaught: ${error.error().stack ?? error.error()}`));
    visit.page = await visit.context.newPage();
    visit.page.setDefaultTimeout(WAIT_MS);
    await visit.page.exposeFunction('drawnText', (text) => visit.texts.add(text));
    await visit.page.addInitScript(() => {
      new MutationObserver(() => {
        const last = [...document.querySelectorAll('article.assistant')].at(-1);
        if (last?.textContent) window.drawnText(last.textContent);
      }).observe(document, { childList: true, subtree: true, characterData: true });
    });
    return visit;
  }

  async start() {
    await this.page.goto(`${this.url}/#${this.chat}`);
    await this.idle();
  }

  /** Loads the page again, whatever it is doing. */
  async reload() {
    await this.page.reload();
    await this.page.locator('output').waitFor();
  }

  idle() {
    return this.page.locator('output', { hasText: /^ready$/ }).waitFor();
  }

  async send(text) {
    await this.page.getByPlaceholder('Message').fill(text);
    await this.press('Send');
  }

  press(name) {
    return this.page.getByRole('button', { name, exact: true }).click();
  }

  /** Waits for words of the assistant. */
  sees(words) {
    return this.page.locator('article.assistant').getByText(words).first().waitFor();
  }

  /** Waits until the last answer has this tool's outcome. */
  async seesTool(words) {
    await this.page.locator('article.assistant section').filter({ hasText: words }).first().waitFor();
  }

  async choosePicture(file) {
    const [chooser] = await Promise.all([
      this.page.waitForEvent('filechooser'),
      this.page.locator('[aria-label=Picture], button:text-is("Picture")').click(),
    ]);
    await chooser.setFiles(file);
  }

  /** Waits until the picture of an author has its pixels. */
  draws(author) {
    return this.page.waitForFunction((role) => document.querySelector(`article.${role} img`)?.naturalWidth > 0, author);
  }

  color() {
    return this.page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  }

  messages() {
    return this.bridge.json(`/api/chats/${this.chat}`).then(({ messages }) => messages);
  }

  /** The kinds of the audit's rows, as far as they are among these. */
  async audited(...kinds) {
    const rows = await this.bridge.json(`/api/audit?chat=${this.chat}`);
    return rows.map(({ kind }) => kind).filter((kind) => kinds.includes(kind));
  }

  async until(condition, what) {
    for (const end = Date.now() + WAIT_MS; !(await condition()); ) {
      assert.ok(Date.now() < end, `waited too long for ${what}`);
      await new Promise((resolve) => setTimeout(resolve, LOOK_AGAIN_MS));
    }
  }

  async close() {
    await this.context.close();
    assert.deepEqual(this.problems, []);
  }
}
