/** A chunk log is read back as it was written, and anything else is no log. */
import fc from 'fast-check';
import { expect, it } from 'vitest';

import { recordedRequests } from './recorded';

const line = (request: number, direction: string, data: unknown) =>
  JSON.stringify({ number: 1, request, at: 5, direction, type: 'x', data });

it('gathers the chunks of each request', () => {
  const text = [
    line(1, 'out', { type: 'request' }),
    line(1, 'in', { type: 'start' }),
    line(1, 'in', { type: 'start-step' }),
    line(2, 'in', { type: 'start' }),
    'no json',
    line(1, 'in', null),
  ].join('\n');
  const [first, ...others] = recordedRequests(text);
  expect(first?.chunks.map(({ chunk }) => chunk.type)).toEqual(['start', 'start-step']);
  expect(others).toEqual([]);
});

it('takes any text without harm', () => {
  fc.assert(
    fc.property(fc.string({ maxLength: 200 }), (text) => {
      expect(recordedRequests(text)).toEqual([]);
    }),
  );
});
