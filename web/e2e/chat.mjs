// Talking: streaming, Markdown, reasoning, pictures, stop, regenerate, edit, queue, errors, scrolling.

import assert from 'node:assert/strict';
import { PNG } from './pictures.mjs';

const MARKDOWN = `say ## A heading

Some **bold** words, \`inline\` and [a link](https://example.com/).

| city | sky |
|---|---|
| Tokyo | sunny |

\`\`\`rust
fn main() { println!("hello"); }
\`\`\`

$$e^{i\\pi} + 1 = 0$$

<img src=x onerror="window.hacked = true"><b>not bold</b>`;

export const chatTests = [
  [
    'chat: a suggestion is sent, answered and kept over a reload',
    async (open) => {
      const visit = await open();
      await visit.get('suggestions').waitFor();
      await visit.picture('empty');
      await visit.page.getByRole('button', { name: /weather/i }).click();
      await visit.sees('sunny in Tokyo');
      await visit.answered();
      await visit.cardIs('get_weather', 'done');
      await visit.page.reload();
      await visit.sees('sunny in Tokyo');
      assert.equal(await visit.get('message-user').count(), 1);
    },
  ],
  [
    'chat: Markdown has code with copy, tables and formulas, and HTML is text',
    async (open) => {
      const visit = await open();
      await visit.say(MARKDOWN);
      await visit.answered();
      const answer = visit.get('message-assistant');
      await answer.getByRole('heading', { name: 'A heading' }).waitFor();
      await answer.locator('table td', { hasText: 'sunny' }).waitFor();
      await answer.locator('.katex').first().waitFor();
      await answer.getByText('<b>not bold</b>').waitFor();
      assert.equal(await answer.locator('img').count(), 0);
      assert.equal(await visit.page.evaluate(() => window.hacked), undefined);
      const link = answer.getByRole('link', { name: 'a link' });
      assert.match(await link.getAttribute('rel'), /noopener/);
      // A colour tells that the highlighter has come.
      await visit.until(
        () =>
          answer
            .locator('pre span[style*="--"]')
            .count()
            .then((count) => count > 0),
        'coloured code',
      );
      await answer.locator('[data-streamdown=code-block]').getByRole('button', { name: 'Copy' }).click();
      const code = /^fn main\(\) \{ println!\("hello"\); \}\s*$/;
      await visit.until(async () => code.test(await visit.clipboard()), 'the code in the clipboard');
      await visit.picture('markdown');
    },
  ],
  [
    'chat: reasoning is folded when it is over, and tells how long it took',
    async (open, { servers, model }) => {
      const visit = await open({ server: servers.gated });
      const gate = model.gate();
      await visit.say(`think from two sides ${gate.word} then say done`);
      const reasoning = visit.get('reasoning');
      const toggle = reasoning.getByRole('button');
      await toggle.getByText('Thinking').waitFor();
      await reasoning.getByText('from two sides').waitFor();
      assert.equal(await toggle.getAttribute('aria-expanded'), 'true');
      gate.open();
      await visit.answered();
      await toggle.getByText(/Thought for \d/).waitFor();
      assert.equal(await toggle.getAttribute('aria-expanded'), 'false');
      await toggle.click();
      await reasoning.getByText('from two sides').waitFor();
      await visit.page.reload();
      await visit.get('reasoning').waitFor();
    },
  ],
  [
    'chat: an answer from the web has its sources, over a reload too',
    async (open, { servers }) => {
      const visit = await open({ server: servers.gated });
      await visit.say('search the web for bridges');
      await visit.answered();
      for (const reload of [false, true]) {
        if (reload) await visit.page.reload();
        await visit.sees('The handbook agrees');
        const sources = visit.get('sources');
        await sources.getByText('2 sources').waitFor();
        const addresses = await sources.getByRole('link').evaluateAll((links) => links.map((link) => link.href));
        assert.deepEqual(addresses, ['https://encyclopedia.example.com/entry', 'https://handbook.example.org/page']);
      }
      await visit.picture('sources');
    },
  ],
  [
    'chat: only sources that are web pages are links',
    async (open) => {
      const visit = await open();
      const chunks = [
        { type: 'start', messageId: 'with-sources' },
        { type: 'start-step' },
        { type: 'text-start', id: 't1' },
        { type: 'text-delta', id: 't1', delta: 'Well documented.' },
        { type: 'text-end', id: 't1' },
        { type: 'source-url', sourceId: 's1', url: 'https://example.org/a', title: 'An encyclopedia' },
        { type: 'source-url', sourceId: 's2', url: 'javascript:alert(1)', title: 'No web page' },
        { type: 'source-document', sourceId: 's3', mediaType: 'text/plain', title: 'A handbook' },
        { type: 'finish-step' },
        { type: 'finish', finishReason: 'stop' },
      ];
      // No honest model names such sources, so this stream is written by hand.
      await visit.page.route('**/api/chat?*', (route) =>
        route.fulfill({
          contentType: 'text/event-stream',
          body: chunks
            .map((chunk) => `data: ${JSON.stringify(chunk)}\n\n`)
            .join('')
            .concat('data: [DONE]\n\n'),
        }),
      );
      await visit.say('anything');
      const sources = visit.get('sources');
      await sources.getByText('3 sources').waitFor();
      assert.equal(await sources.getByRole('link').count(), 1);
      assert.equal(await sources.getByRole('link').getAttribute('href'), 'https://example.org/a');
    },
  ],
  [
    'chat: pictures go in by choice, paste and drop, come out, and can be enlarged',
    async (open) => {
      const visit = await open();
      const file = { name: 'dot.png', mimeType: 'image/png', buffer: PNG };
      await visit.get('file-picker').setInputFiles(file);
      await hand(visit, 'paste', 'image/jpeg');
      await hand(visit, 'drop', 'image/webp');
      await visit.until(async () => (await visit.get('attached').locator('img').count()) === 3, 'three previews');
      await visit
        .get('attached')
        .getByRole('button', { name: /Remove/ })
        .first()
        .click();
      await visit.say('what is in this picture?');
      await visit.sees(/I see 2 images: image\/jpeg.*image\/webp/);
      assert.equal(await visit.get('message-user').getByTestId('picture').count(), 2);
      await visit.say('draw a cat');
      const drawn = visit.get('message-assistant').last().getByTestId('picture');
      await drawn.click();
      await visit.get('picture-large').waitFor();
      await visit.picture('picture');
      await visit.page.keyboard.press('Escape');
      await visit.get('picture-large').waitFor({ state: 'detached' });
      await visit.page.reload();
      await visit.get('picture').nth(2).waitFor();
    },
  ],
  [
    'chat: while files are on their way the message stays as it was sent',
    async (open) => {
      const visit = await open();
      let release;
      const released = new Promise((resolve) => (release = resolve));
      await visit.page.route('**/api/files?*', async (route) => {
        await released;
        await route.continue();
      });
      await visit.get('file-picker').setInputFiles({ name: 'dot.png', mimeType: 'image/png', buffer: PNG });
      const field = visit.get('composer');
      await field.fill('say look');
      const asked = visit.page.waitForRequest((request) => request.url().includes('/api/files?'));
      await field.press('Enter');
      await asked;
      await field.press('End');
      await visit.page.keyboard.type(' and this is lost');
      assert.equal(await field.inputValue(), 'say look');
      release();
      await visit.sees('look');
      await visit.until(async () => (await field.inputValue()) === '', 'an empty field');
      await visit.page.keyboard.type('next');
      assert.equal(await field.inputValue(), 'next');
    },
  ],
  [
    'chat: a file that is no picture goes in by its name, and is there after a reload',
    async (open) => {
      const visit = await open();
      await visit.get('file-picker').setInputFiles({
        name: 'notes.txt',
        mimeType: 'text/plain',
        buffer: Buffer.from('Bridges connect.'),
      });
      await visit.get('attached').getByText('notes.txt').waitFor();
      await visit.say('what is in this file?');
      await visit.sees('text/plain');
      await visit.answered();
      await visit.page.reload();
      await visit.get('message-user').getByText('notes.txt').waitFor();
    },
  ],
  [
    'chat: stop takes the place of send, keeps what was said, and regenerate answers again',
    async (open) => {
      const visit = await open();
      await visit.say('slow 10000');
      await visit.sees(/\w+ \w+ \w+/);
      await visit.get('stop').click();
      await visit.get('send').waitFor();
      await visit.get('ended').waitFor();
      const half = await visit.get('message-assistant').last().innerText();
      assert.ok(half.length > 10);
      await visit.say('roll a die');
      await visit.answered();
      const before = (await visit.messages()).at(-1).id;
      await visit.get('regenerate').last().click();
      await visit.until(async () => (await visit.messages()).at(-1).id !== before, 'another answer');
      await visit.answered();
      assert.equal(await visit.get('message-user').count(), 2);
    },
  ],
  [
    'chat: an edited message is sent again, and what followed it is gone',
    async (open) => {
      const visit = await open();
      await visit.say('say first');
      await visit.answered();
      await visit.say('say second');
      await visit.sees('second');
      await visit.answered();
      await visit.get('message-user').first().hover();
      await visit.get('edit').first().click();
      await visit.get('edit-field').fill('say third');
      await visit.get('edit-field').press('Enter');
      await visit.sees('third');
      await visit.answered();
      assert.equal(await visit.get('message-user').count(), 1);
      assert.equal((await visit.messages()).length, 2);
    },
  ],
  [
    'chat: an answer can be copied',
    async (open) => {
      const visit = await open();
      await visit.say('say copy **this**');
      await visit.answered();
      await visit.get('copy').click();
      await visit.until(async () => (await visit.clipboard()) === 'copy **this**', 'the answer in the clipboard');
    },
  ],
  [
    'chat: a failed answer tells why and can be tried again',
    async (open) => {
      const visit = await open();
      await visit.say('http 400 once then say recovered');
      await visit.get('error').waitFor();
      await visit.picture('error');
      // What happens to the chat elsewhere does not take the failure off the page.
      await visit.looksAgain();
      await visit.get('retry').click();
      await visit.sees('recovered');
      await visit.get('error').waitFor({ state: 'detached' });
    },
  ],
  ...['the agent', 'the server'].map((who) => [
    `chat: who writes on after a failure of ${who} is answered`,
    async (open) => {
      const visit = await open();
      await visit.say('say before');
      await visit.answered();
      if (who === 'the server') {
        const refusal = { status: 422, json: { error: { code: 'refused', message: 'this is refused' } } };
        await visit.page.route('**/api/chat?*', (route) => route.fulfill(refusal), { times: 1 });
      }
      await visit.say('http 400 once then say late');
      await visit.get('error').waitFor();
      await visit.say('say going on');
      await visit.sees('going on');
      await visit.answered();
      assert.equal(await visit.get('error').count(), 0);
      assert.equal(await visit.get('queue').count(), 0);
      await visit.page.reload();
      await visit.sees('going on');
      assert.equal(await visit.get('queue').count(), 0, 'what failed is not sent automatically later');
    },
  ]),
  [
    'chat: what is typed while the agent is busy waits in a queue, and goes in order',
    async (open, { servers, model }) => {
      const visit = await open({ server: servers.gated });
      const gate = model.gate();
      await visit.say(`say first ${gate.word} done`);
      await visit.sees('first');
      await visit.get('stop').waitFor();
      await visit.say('say second');
      await visit.say('say third');
      await visit.say('say never');
      const queue = visit.get('queue');
      await queue.getByText('say never').waitFor();
      await visit.picture('queue');
      await queue.getByRole('button', { name: 'Remove' }).last().click();
      await queue.getByText('say never').waitFor({ state: 'detached' });
      gate.open();
      await visit.sees('third');
      await visit.answered();
      const typed = (await visit.messages()).filter(({ role }) => role === 'user').map(({ parts }) => parts[0].text);
      assert.deepEqual(typed, [`say first ${gate.word} done`, 'say second', 'say third']);
    },
  ],
  [
    'chat: scrolling yields to the user, and one press leads back to the end',
    async (open) => {
      const visit = await open();
      await visit.say('long 1500');
      await visit.answered();
      const top = () => visit.get('scroller').evaluate((box) => box.scrollTop);
      const rest = () => visit.get('scroller').evaluate((box) => box.scrollHeight - box.scrollTop - box.clientHeight);
      await visit.until(async () => (await rest()) < 2, 'the end in sight');
      await visit.say('slow 10000');
      await visit.get('stop').waitFor();
      await visit.get('scroller').hover();
      await visit.page.mouse.wheel(0, -700);
      await visit.get('to-end').waitFor();
      const where = await top();
      const length = () =>
        visit
          .get('message-assistant')
          .last()
          .innerText()
          .then((text) => text.length);
      const before = await length();
      await visit.until(async () => (await length()) > before + 100, 'the answer to grow');
      assert.ok(Math.abs((await top()) - where) < 2, 'the page moved under the reader');
      await visit.get('to-end').click();
      await visit.until(async () => (await rest()) < 2, 'the end in sight');
      await visit.get('stop').click();
    },
  ],
];

/** Hands the page a picture the way that the browser does for a paste or a drop. */
async function hand(visit, kind, type) {
  await visit.get('composer').evaluate(
    async (field, [kind, type]) => {
      const canvas = Object.assign(document.createElement('canvas'), { width: 8, height: 8 });
      const picture = await new Promise((resolve) => canvas.toBlob(resolve, type));
      const transfer = new DataTransfer();
      transfer.items.add(new File([picture], kind, { type }));
      const event =
        kind === 'paste'
          ? new ClipboardEvent('paste', { clipboardData: transfer, bubbles: true, cancelable: true })
          : new DragEvent('drop', { dataTransfer: transfer, bubbles: true, cancelable: true });
      field.dispatchEvent(event);
    },
    [kind, type],
  );
}
