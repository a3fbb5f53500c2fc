// Draws the animation of README.md from the real page: a payment is asked for, waits, is approved, and is made.
//
// `cargo xtask test ui` makes what it needs; then: node web/e2e/animation.mjs web/ui/approval.png

import { readFileSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';

import { BINARY } from '../target.mjs';
import { launch, openContext } from './browser.mjs';
import { startServer } from './server.mjs';

const UPNG = createRequire(import.meta.url)('upng-js');

const SIZE = { width: 900, height: 560 };
// As many as the page needs for its shades of grey; more would only make the file larger.
const COLORS = 96;
const MAX_BYTES = 500_000;
const REQUEST = 'pay Hanako 50 dollars';
// How long a state is shown, in milliseconds: somebody types, reads a question, and looks at what has come of it.
const TYPED = 90;
const READ = 2_400;
const AIMED = 700;
const DONE = 4_000;

const [target] = process.argv.slice(2);
if (target === undefined) throw new Error('say where the animation is written: node web/e2e/animation.mjs FILE');

const server = await startServer(BINARY, '[demo]\npace = "150ms"\n');
const browser = await launch();
try {
  const { context } = await openContext(browser, server.url, { viewport: SIZE });
  const page = await context.newPage();
  await page.goto(server.url);
  const composer = page.getByTestId('composer');
  await composer.waitFor();

  const frames = [];
  const draw = async (millis) => {
    const { data, width, height, ...png } = UPNG.decode(await page.screenshot({ caret: 'hide' }));
    const pixels = UPNG.toRGBA8({ data, width, height, ...png })[0];
    const last = frames.at(-1);
    if (last !== undefined && Buffer.from(last.pixels).equals(Buffer.from(pixels))) last.millis += millis;
    else frames.push({ pixels, millis });
  };

  await draw(AIMED);
  for (let length = 3; length < REQUEST.length + 3; length += 3) {
    await composer.fill(REQUEST.slice(0, length));
    await draw(TYPED);
  }
  await composer.press('Enter');
  const approve = page.getByTestId('approve');
  await approve.waitFor();
  await draw(READ);
  const asked = frames.length - 1;
  await approve.hover();
  await draw(AIMED);
  await approve.click();
  const answer = page.getByTestId('message-assistant').last();
  await answer.getByText('Paid').waitFor();
  for (let shown = ''; !(await page.getByRole('article').last().getByTestId('regenerate').isVisible()); ) {
    const text = await answer.innerText();
    if (text !== shown) await draw(TYPED);
    shown = text;
  }
  await page.mouse.move(0, 0);
  await draw(DONE);

  // The first frame is all that a viewer which does not animate shows: it has the question. What came before it ends the loop.
  frames.push(...frames.splice(0, asked));
  const images = frames.map(({ pixels }) => pixels);
  const times = frames.map(({ millis }) => millis);
  writeFileSync(target, Buffer.from(UPNG.encode(images, SIZE.width, SIZE.height, COLORS, times)));
  const { length } = readFileSync(target);
  console.log(`${target}: ${frames.length} frames, ${length} bytes`);
  if (length > MAX_BYTES) throw new Error(`more than ${MAX_BYTES} bytes: draw fewer frames or colors`);
} finally {
  await browser.close();
  await server.stop();
}
