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
      assert.equal(await visit.get('message-user').getByTestId('recording').count(), 1);
      const recording = visit.get('message-assistant').getByTestId('recording');
      await recording.getByText(/0:0[1-9]/).waitFor();
      await recording.click();
      const sound = visit.get('message-assistant').locator('audio');
      await visit.until(() => sound.evaluate(({ currentTime }) => currentTime > 0), 'the recording to be heard');
    },
  ],
  [
    'voice: hands-free, speaking again silences the reply at once, and the cut is marked',
    async (open) => {
      const visit = await speaking(open);
      await visit.get('voice-handsfree').click();
      await visit.get('voice-status').getByText('just speak').waitFor();
      await say(visit, 'long 60');
      await visit.until(() => isHeard(visit), 'the reply to be heard');
      await say(visit, 'say stopped');
      await visit.sees('stopped');
      await visit.get('ended').getByText('Interrupted').waitFor();
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
    'voice: the camera shows a preview of what the agent sees, and everything is let go at the end',
    async (open) => {
      const visit = await speaking(open);
      await visit.get('inspector-toggle').click();
      await visit.get('camera-toggle').click();
      await visit.get('camera-preview').waitFor();
      await visit.get('chunk-row').filter({ hasText: 'binary' }).first().waitFor();
      await visit.get('camera-toggle').click();
      await visit.get('camera-preview').waitFor({ state: 'detached' });
      await visit.get('voice-toggle').click();
      await visit.get('voice-bar').waitFor({ state: 'detached' });
    },
  ],
];
