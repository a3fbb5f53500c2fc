// Tools that run in the browser: location, music, camera; approved, denied and failing.

import assert from 'node:assert/strict';

const DIALECTS = { native: '', adk: '?dialect=adk' };

const everywhere = Object.entries(DIALECTS).flatMap(([dialect, query]) => [
  [
    `client tools: the location, approved, in ${dialect}`,
    async (open) => {
      const visit = await open({ query });
      await visit.say('where am I');
      await visit.get('approve').click();
      await visit.sees('You are at 35.0116, 135.7681');
      await visit.answered();
      await visit.cardIs('get_location', 'done');
      const requests = (await visit.audit('approval.approved', 'answer.refused')).length;
      assert.equal(requests, 1);
    },
  ],
  [
    `client tools: the location, denied, in ${dialect}`,
    async (open) => {
      const visit = await open({ query });
      await visit.say('where am I');
      await visit.get('deny').click();
      await visit.sees('You declined get_location');
      await visit.cardIs('get_location', 'denied');
    },
  ],
  [
    `client tools: the location, which the browser refuses, in ${dialect}`,
    async (open) => {
      const visit = await open({ query, permissions: [] });
      await visit.say('where am I');
      await visit.get('approve').click();
      await visit.sees('get_location did not work: the user did not allow');
      await visit.cardIs('get_location', 'failed');
      await visit.get('tool-error').getByText('did not allow').waitFor();
    },
  ],
]);

export const clientToolTests = [
  ...everywhere,
  [
    'client tools: music plays, the mini player pauses it, another track takes its place',
    async (open) => {
      const visit = await open();
      await visit.say('play some jazz');
      await visit.get('approve').click();
      const player = visit.get('mini-player');
      await player.getByText('jazz').waitFor();
      await visit.sees('The music is');
      await visit.picture('music');
      await visit.get('mini-player-toggle').click();
      await player.getByRole('button', { name: 'Play music' }).waitFor();
      await visit.answered();
      await visit.say('call change_bgm {"track_name":"calm piano"}');
      await visit.get('approve').click();
      await player.getByText('calm piano').waitFor();
      await player.getByRole('button', { name: 'Stop music' }).click();
      await player.waitFor({ state: 'detached' });
    },
  ],
  [
    'client tools: a photo is seen before it is sent, and the approval waits for it whatever happens meanwhile',
    async (open) => {
      const visit = await open();
      await visit.say('take a photo');
      await visit.get('approve').click();
      await visit.get('photo-dialog').waitFor();
      await visit.get('photo-shoot').click();
      await visit.get('photo-preview').waitFor();
      await visit.picture('photo');
      assert.deepEqual(await visit.audit('approval.approved', 'tool.finished'), []);
      await visit.looksAgain();
      await visit.cardIs('take_photo', 'approved');
      await visit.get('photo-use').click();
      await visit.sees('I got your photo: image/jpeg');
      await visit.answered();
    },
  ],
  [
    'client tools: a camera that is closed without a photo is reported to the agent',
    async (open) => {
      const visit = await open();
      await visit.say('take a photo');
      await visit.get('approve').click();
      await visit.get('photo-shoot').waitFor();
      await visit.page.keyboard.press('Escape');
      await visit.sees('take_photo did not work: the user closed the camera');
    },
  ],
  [
    'client tools: a reload while the camera is open is reported, and the tool is not run twice',
    async (open) => {
      const visit = await open();
      await visit.say('take a photo');
      await visit.get('approve').click();
      await visit.get('photo-dialog').waitFor();
      await visit.page.reload();
      // The approval went nowhere before the reload, so the question is still open.
      await visit.get('deny').click();
      await visit.sees('You declined take_photo');
    },
  ],
];
