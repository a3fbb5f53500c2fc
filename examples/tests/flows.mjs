// What the front ends show, each flow a function of a visit.

import assert from 'node:assert/strict';

/** The smallest picture there is: one pixel. */
const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==';
const PICTURE = { name: 'pixel.png', mimeType: 'image/png', buffer: Buffer.from(PIXEL, 'base64') };
// Far more words than come while somebody reaches for a button.
const ENDLESS = 'long 12000';

export const flows = {
  text: async (visit) => {
    await visit.send('long 200');
    await visit.sees(/word200\b/);
    await visit.idle();
    assert.ok(visit.texts.size > 3, `only ${visit.texts.size} states of the answer were drawn: it did not stream`);
  },

  tool: async (visit) => {
    await visit.send('what is the weather in Tokyo');
    await visit.seesTool(/get_weather[\s\S]*temperatureCelsius/);
    await visit.sees(/°C and .* in Tokyo/);
    await visit.idle();
  },

  approve: async (visit) => {
    await visit.send('pay Hanako 50 dollars');
    await visit.press('Allow');
    await visit.sees('Paid 50 USD to Hanako.');
    await visit.idle();
    assert.deepEqual(await visit.audited('approval.approved', 'tool.started'), ['approval.approved', 'tool.started']);
  },

  deny: async (visit) => {
    await visit.send('pay Hanako 50 dollars');
    await visit.press('Deny');
    await visit.sees(/declined process_payment/);
    await visit.idle();
    assert.deepEqual(await visit.audited('approval.denied', 'tool.started'), ['approval.denied']);
  },

  'client tool': async (visit) => {
    await visit.send('call set_color {"color":"teal"}');
    await visit.seesTool(/set_color[\s\S]*"shown":"teal"/);
    await visit.idle();
    assert.equal(await visit.color(), 'rgb(0, 128, 128)');
    const [part] = (await visit.messages()).at(-1).parts.filter(({ toolCallId }) => toolCallId !== undefined);
    assert.deepEqual(part.output, { shown: 'teal' });
  },

  stop: async (visit) => {
    await visit.send(ENDLESS);
    await visit.sees(/word3\b/);
    await visit.press('Stop');
    await visit.idle();
    const isOver = async () => (await fetch(`${visit.bridge.url}/api/chat/${visit.chat}/stream`)).status === 204;
    await visit.until(isOver, 'the turn to end on the server');
    const [{ text }] = (await visit.messages()).at(-1).parts.filter(({ type }) => type === 'text');
    assert.ok(!text.includes('word12000'), 'the server went on');
    await visit.send('say still here');
    await visit.sees('still here');
  },

  'reload while a question waits': async (visit) => {
    await visit.send('pay Hanako 50 dollars');
    await visit.page.getByRole('button', { name: 'Allow' }).waitFor();
    await visit.reload();
    await visit.press('Allow');
    await visit.sees('Paid 50 USD to Hanako.');
    await visit.idle();
    assert.deepEqual(await visit.audited('tool.started'), ['tool.started']);
  },

  'reload while an answer comes': async (visit) => {
    await visit.send('long 1000');
    await visit.sees(/word3\b/);
    await visit.reload();
    await visit.sees(/word1000\b/);
    await visit.idle();
    assert.equal(await visit.page.locator('article').count(), 2);
  },

  picture: async (visit) => {
    await visit.send('draw a cat');
    await visit.draws('assistant');
    await visit.idle();
    await visit.reload();
    await visit.draws('assistant');
  },

  'picture of the user': async (visit) => {
    await visit.choosePicture(PICTURE);
    await visit.send('describe the picture');
    await visit.page.locator('article.assistant p').first().waitFor();
    await visit.idle();
    const [question] = await visit.messages();
    const file = question.parts.find(({ type }) => type === 'file');
    const answer = await fetch(new URL(file.url, visit.bridge.url));
    assert.equal(Buffer.from(await answer.arrayBuffer()).toString('base64'), PIXEL);
  },
};
