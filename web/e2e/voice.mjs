// Speaking: push-to-talk and hands-free, captions of both sides, a reply that is heard, barge-in, recordings, camera.

import assert from 'node:assert/strict';

import { accessible } from './look.mjs';
import { installMicrophone } from './microphone.mjs';

async function speaking(open) {
  const visit = await open();
  await visit.context.addInitScript(installMicrophone);
  await visit.page.reload();
  await visit.get('voice-toggle').click();
  await visit.get('voice-status').getByText('ready').waitFor();
  // A short reply may begin and end between two looks.
  await visit.page.evaluate(() => {
    window.player = [];
    const status = document.querySelector('[data-testid=voice-status]');
    const note = () => window.player.push(status.dataset.playing);
    new MutationObserver(note).observe(status, { attributeFilter: ['data-playing'] });
  });
  return visit;
}

const say = (visit, text) => visit.page.evaluate((words) => window.speak(words), text);

const wasHeard = (visit) => visit.page.evaluate(() => window.player.includes('playing'));
const isHeard = async (visit) => (await visit.get('voice-status').getAttribute('data-playing')) === 'playing';

/** Holds the key while the words are said. */
async function saysWithKey(visit, text) {
  await visit.get('composer').focus();
  await visit.page.keyboard.down('Control');
  await visit.get('voice-status').getByText('listening').waitFor();
  await say(visit, text);
  await visit.page.keyboard.up('Control');
}

export const voiceTests = [
  [
    'voice: with the key held, both sides are captioned, the reply is heard, and both recordings are kept',
    async (open) => {
      const visit = await speaking(open);
      await saysWithKey(visit, 'what is the weather in Tokyo');
      await visit.get('message-user').getByText('what is the weather in Tokyo').waitFor();
      await visit.until(() => wasHeard(visit), 'the reply to be heard');
      await visit.picture('voice');
      await accessible(visit, 'speaking');
      await visit.sees('sunny in Tokyo');
      await visit.until(async () => !(await isHeard(visit)), 'the reply to end');
      await visit.page.reload();
      await visit.sees('sunny in Tokyo');
      await visit.get('chat-title').getByText('what is the weather in Tokyo').waitFor();
      assert.equal(await visit.get('message-user').getByTestId('recording').count(), 1);
      const recording = visit.get('message-assistant').getByTestId('recording');
      await recording.getByText(/0:0[1-9]/).waitFor();
      await recording.click();
      const sound = visit.get('message-assistant').locator('audio');
      await visit.until(() => sound.evaluate(({ currentTime }) => currentTime > 0), 'the recording to be heard');
    },
  ],
  [
    'voice: hands-free, speaking again silences the reply at once, and the cut is marked, over a reload too',
    async (open) => {
      const visit = await speaking(open);
      await visit.get('voice-handsfree').click();
      await visit.get('voice-status').getByText('just speak').waitFor();
      await say(visit, 'long 60');
      await visit.until(() => isHeard(visit), 'the reply to be heard');
      await say(visit, 'say stopped');
      await visit.sees('stopped');
      await visit.get('ended').getByText('Interrupted').waitFor();
      await visit.picture('barge-in');
      await visit.page.reload();
      await visit.get('message-assistant').first().getByTestId('ended').getByText('Interrupted').waitFor();
      assert.equal(await visit.get('ended').count(), 1);
    },
  ],
  [
    'voice: the microphone is chosen from a list, and its level is shown',
    async (open) => {
      const visit = await speaking(open);
      await visit.get('voice-device').click();
      const devices = visit.page.getByRole('menuitemradio');
      await devices.nth(1).waitFor();
      const name = await devices.nth(1).innerText();
      await devices.nth(1).click();
      await visit.page.keyboard.press('Escape');
      await visit.get('voice-status').getByText('ready').waitFor();
      await visit.get('voice-device').click();
      await visit.page.getByRole('menuitemradio', { name, checked: true }).waitFor();
      await visit.page.keyboard.press('Escape');
      await visit.page.evaluate(() => {
        window.levels = [];
        const meter = document.querySelector('[data-testid=voice-level]');
        const note = () => window.levels.push(Number(meter.dataset.level));
        new MutationObserver(note).observe(meter, { attributeFilter: ['data-level'] });
      });
      await saysWithKey(visit, 'say heard');
      await visit.sees('heard');
      assert.ok(await visit.page.evaluate(() => Math.max(...window.levels) > 0.05));
    },
  ],
  [
    'voice: a question that was spoken is answered by a press',
    async (open) => {
      const visit = await speaking(open);
      await saysWithKey(visit, 'pay Hanako 50 dollars');
      await visit.get('approve').click();
      await visit.sees('Paid 50 USD to Hanako');
      assert.deepEqual(await visit.audit('tool.started'), ['tool.started']);
    },
  ],
  [
    'voice: a window that takes the chat over takes the microphone, too',
    async (open) => {
      const visit = await speaking(open);
      const is = (status, page) => page.locator(`[data-testid=voice-status][data-status=${status}]`).waitFor();
      const other = await visit.newTab();
      await visit.get('voice-toggle', other).click();
      await is('ready', other);
      await visit.get('live-closed').waitFor();
      await is('off', visit.page);
      await visit.get('take-over').click();
      await is('ready', visit.page);
      await is('off', other);
      await saysWithKey(visit, 'say back again');
      await visit.sees('back again');
    },
  ],
  [
    'voice: muted nothing is heard, and written answers are silent',
    async (open) => {
      const visit = await speaking(open);
      await visit.get('voice-mute').click();
      await visit.get('voice-status').getByText('muted').waitFor();
      await visit.get('composer').focus();
      await visit.page.keyboard.down('Control');
      await say(visit, 'say not heard');
      await visit.page.keyboard.up('Control');
      await visit.get('voice-mute').click();
      await visit.get('voice-spoken').click();
      await saysWithKey(visit, 'say quietly');
      await visit.sees('quietly');
      await visit.answered();
      assert.equal(await visit.get('message-user').count(), 1);
      assert.equal(await wasHeard(visit), false);
    },
  ],
  [
    'voice: camera and screen show a preview of what the agent sees, one at a time, and everything is let go at the end',
    async (open) => {
      const visit = await speaking(open);
      // Tracks that are captured, to see that they end.
      await visit.page.evaluate(() => {
        window.tracks = [];
        for (const name of ['getUserMedia', 'getDisplayMedia']) {
          const original = navigator.mediaDevices[name].bind(navigator.mediaDevices);
          navigator.mediaDevices[name] = async (constraints) => {
            const stream = await original(constraints);
            window.tracks.push(...stream.getVideoTracks());
            return stream;
          };
        }
      });
      const live = () => visit.page.evaluate(() => window.tracks.filter((track) => track.readyState === 'live').length);
      const preview = visit.get('camera-preview');
      const hasPicture = () => preview.evaluate((video) => video.videoWidth > 0 && video.currentTime > 0);
      await visit.get('inspector-toggle').click();
      for (const source of ['camera', 'screen']) {
        await visit.get('inspector').getByRole('button', { name: 'Clear' }).click();
        await visit.get(`${source}-toggle`).click();
        await preview.waitFor();
        await visit.until(hasPicture, `the preview of the ${source}`);
        await visit.get('chunk-row').filter({ hasText: 'binary' }).first().waitFor();
        assert.equal(await visit.get(`${source}-toggle`).getAttribute('aria-pressed'), 'true');
        assert.equal(await live(), 1);
        await visit.picture(`voice-${source}`);
      }
      await visit.get('screen-toggle').click();
      await preview.waitFor({ state: 'detached' });
      assert.equal(await live(), 0);
      await visit.get('voice-toggle').click();
      await visit.get('voice-bar').waitFor({ state: 'detached' });
    },
  ],
];
