/** The page's messages against the server's. */
import type { UIMessage } from 'ai';
import { expect, it } from 'vitest';

import { hasUnsentAnswers, isNetworkFailure, reconciled } from './reconcile';

const said = (id: string, text: string, role: UIMessage['role'] = 'user'): UIMessage => ({
  id,
  role,
  parts: [{ type: 'text', text }],
});

it('keeps the own objects of what did not change', () => {
  const local = [said('a', 'one'), said('b', 'two')];
  expect(reconciled(local, [said('a', 'one'), said('b', 'two')])).toBe(local);
  const merged = reconciled(local, [said('a', 'one'), said('b', 'changed'), said('c', 'three')]);
  expect(merged[0]).toBe(local[0]);
  expect(merged.map(({ parts }) => parts)).toEqual(['one', 'changed', 'three'].map((text) => [{ type: 'text', text }]));
  expect(reconciled(local, [said('b', 'two')])).toEqual([local[1]]);
});

const asked = (state: string, id = 'm'): UIMessage =>
  ({
    id,
    role: 'assistant',
    parts: [{ type: 'tool-pay', toolCallId: 'c', state, input: {}, approval: { id: 'a', approved: true } }],
  }) as unknown as UIMessage;

it('keeps what was answered here until the server has it', () => {
  const [here, there] = [asked('approval-responded'), asked('approval-requested')];
  expect(reconciled([here], [there])).toEqual([here]);
  const settled = asked('output-error');
  expect(reconciled([here], [settled])).toEqual([settled]);
});

it.each([
  ['answered here, asked there', asked('approval-responded'), asked('approval-requested'), true],
  ['asked on both sides', asked('approval-requested'), asked('approval-requested'), false],
  ['settled there', asked('approval-responded'), asked('output-available'), false],
  ['another message', asked('approval-responded'), asked('approval-requested', 'other'), false],
  ['run here, open there', asked('output-available'), asked('approval-responded'), true],
  ['failed here, open there', asked('output-error'), asked('input-available'), true],
  ['open on both sides', asked('input-available'), asked('input-available'), false],
  ['nothing there', asked('approval-responded'), undefined, false],
])('finds answers that never arrived: %s', (_name, local, stored, expected) => {
  expect(hasUnsentAnswers(local, stored)).toBe(expected);
});

it.each([
  [new TypeError('Failed to fetch'), true],
  [new Error('outer', { cause: new TypeError('x') }), true],
  [new Error('network error'), true],
  [new Error('the model is not available, try again'), false],
])('tells a lost connection from a refusal: %s', (problem, expected) => {
  expect(isNetworkFailure(problem)).toBe(expected);
});
