// One visit to the page: what a person does and sees, in words that tests are written in.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';
import { join } from 'node:path';

import { openContext } from './browser.mjs';

// Nothing that a test waits for takes so long, apart from what it names itself: not on a machine with other work either.
const WAIT_MS = 90_000;

export class Visit {
  static async open(world, options = {}) {
    const { server = world.servers.usual, chat = randomUUID(), query = '', ...context } = options;
    const visit = new Visit(world, server, chat, query);
    Object.assign(visit, await openContext(world.browser, server.url, context));
    visit.page = await visit.newTab();
    return visit;
  }

  constructor(world, server, chat, query) {
    Object.assign(this, { world, server, chat, query });
  }

  /** Another tab of the same browser, at the same chat. */
  async newTab() {
    const page = await this.context.newPage();
    page.setDefaultTimeout(WAIT_MS);
    await page.goto(this.address());
    await page.getByTestId('composer').waitFor();
    return page;
  }

  address(chat = this.chat) {
    return `${this.server.url}/${this.query}#${chat}`;
  }

  get(id, page = this.page) {
    return page.getByTestId(id);
  }

  async say(text, page = this.page) {
    await this.get('composer', page).fill(text);
    await this.get('composer', page).press('Enter');
    const [line] = text.replace(/^say |^\W+/, '').split('\n');
    await page.locator('[data-testid=message-user], [data-testid=queue]').filter({ hasText: line }).last().waitFor();
  }

  /** Waits until the last answer is complete: it can then be answered again. */
  async answered(page = this.page) {
    await page.getByRole('article').last().getByTestId('regenerate').waitFor();
  }

  /** The last answer, as soon as it has these words. */
  async sees(words, page = this.page, timeout = WAIT_MS) {
    await page.getByTestId('message-assistant').last().getByText(words).first().waitFor({ timeout });
  }

  card(tool, page = this.page) {
    return page.locator(`[data-testid=tool-card][data-tool=${tool}]`);
  }

  async cardIs(tool, state, page = this.page) {
    await page.locator(`[data-testid=tool-card][data-tool=${tool}][data-state=${state}]`).first().waitFor();
  }

  async messages() {
    return (await this.server.json(`/api/chats/${this.chat}`)).messages;
  }

  async audit(...kinds) {
    const rows = await this.server.json(`/api/audit?chat=${this.chat}`);
    return rows.filter(({ kind }) => kinds.length === 0 || kinds.includes(kind)).map(({ kind }) => kind);
  }

  clipboard() {
    return this.page.evaluate(() => navigator.clipboard.readText());
  }

  async until(condition, what) {
    for (const end = Date.now() + WAIT_MS; !(await condition()); ) {
      assert.ok(Date.now() < end, `waited too long for ${what}`);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Has the page take in what the server knows of the chat, as when another window has changed it. */
  async looksAgain() {
    const asked = this.page.waitForResponse((response) => response.url().includes(`/api/chats/${this.chat}`));
    await this.page.evaluate((chat) => new BroadcastChannel('adk-bridge').postMessage({ chat }), this.chat);
    await (await asked).finished();
    await this.page.evaluate(() => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve))));
  }

  /** Keeps a picture as an artifact of the run. */
  async picture(name, page = this.page) {
    await page.screenshot({ path: join(this.world.artifacts, `${name}.png`) });
  }

  async close() {
    const { problems } = this;
    await this.context.close();
    assert.deepEqual(problems, []);
  }
}
