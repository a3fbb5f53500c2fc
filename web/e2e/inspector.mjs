// The inspector: chunks, timings, audit, download and replay.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';

export const inspectorTests = [
  [
    'inspector: chunks, timings and audit of a chat, a log that is downloaded and played again',
    async (open) => {
      const visit = await open();
      await visit.get('inspector-toggle').click();
      await visit.get('inspector').waitFor();
      await visit.say('pay Hanako 50 dollars');
      await visit.get('approve').click();
      await visit.sees('Paid 50 USD');
      await visit.answered();
      await visit.get('chunk-row').filter({ hasText: 'tool-approval-request' }).waitFor();
      await visit.get('chunk-row').filter({ hasText: 'tool-input-available' }).click();
      await visit.get('inspector').getByText('"recipient": "Hanako"').waitFor();
      await visit.picture('inspector');

      const downloading = visit.page.waitForEvent('download');
      await visit.get('download-log').click();
      const log = await (await downloading).path();
      const lines = readFileSync(log, 'utf8')
        .trim()
        .split('\n')
        .map((line) => JSON.parse(line));
      assert.ok(lines.some(({ type }) => type === 'finish') && lines.some(({ direction }) => direction === 'out'));

      await visit.get('inspector-timings').click();
      await visit
        .get('timings')
        .getByText(/\d+ in, \d+ out/)
        .waitFor();
      await visit.get('timings').getByText('native').waitFor();
      await visit.get('inspector-audit').click();
      await visit.get('audit').getByText('approval.approved').waitFor();
      await visit.get('audit').getByText('tool.finished').waitFor();

      await visit.get('inspector-replay').click();
      await visit.get('replay-picker').setInputFiles({
        name: 'log.jsonl',
        mimeType: 'application/jsonl',
        buffer: readFileSync(log),
      });
      await visit.get('replay-play').first().click();
      await visit.get('replay-message').getByText('approval-requested').waitFor();
      await visit.get('replay-picker').setInputFiles({ name: 'x.jsonl', mimeType: 'text/plain', buffer: Buffer.from('no') });
      await visit.get('inspector').getByText('not a chunk log').waitFor();
    },
  ],
];
