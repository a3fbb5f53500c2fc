/** One form of a call for both dialects. */
import { isToolUIPart, type UIMessage } from 'ai';
import { expect, it } from 'vitest';

import { callOf, hasOpenCalls, waitingCalls } from './calls';

type Parts = Record<string, unknown>[];

const message = (parts: Parts): UIMessage => ({ id: 'm', role: 'assistant', parts }) as unknown as UIMessage;

const call = (state: string, approval?: object) => ({
  type: 'tool-pay',
  toolCallId: 'c1',
  state,
  input: { amount: 5 },
  ...(approval && { approval }),
});

const confirmation = (state: string, rest: object = {}) => ({
  type: 'tool-adk_request_confirmation',
  toolCallId: 'q1',
  state,
  input: { originalFunctionCall: { id: 'c1', name: 'pay' }, toolConfirmation: { hint: 'Sure?' } },
  approval: { id: 'q1' },
  ...rest,
});

const access = (errorText: string) => ({
  type: 'tool-adk_request_credential',
  toolCallId: 'r1',
  state: 'output-error',
  input: { kind: 'oauth2' },
  errorText,
});

const cases: [string, Parts, string, string | undefined][] = [
  ['running', [call('input-available')], 'running', undefined],
  ['native, asked', [call('approval-requested', { id: 'a' })], 'waiting', 'a'],
  ['native, approved', [call('approval-responded', { id: 'a', approved: true })], 'approved', 'a'],
  ['native, denied', [call('approval-responded', { id: 'a', approved: false })], 'denied', 'a'],
  ['native, done', [call('output-available', { id: 'a' })], 'done', 'a'],
  ['native, denied by the server', [call('output-denied', { id: 'a' })], 'denied', 'a'],
  ['access, refused', [access('denied: the user did not grant access')], 'denied', undefined],
  ['access, expired', [access('expired: access was not granted in time')], 'failed', undefined],
  ['adk, asked', [call('input-available'), confirmation('approval-requested')], 'waiting', 'q1'],
  [
    'adk, approved',
    [call('input-available'), confirmation('approval-responded', { approval: { id: 'q1', approved: true } })],
    'approved',
    'q1',
  ],
  [
    'adk, confirmed before a reload',
    [call('output-available'), confirmation('output-available', { output: { confirmed: true } })],
    'done',
    'q1',
  ],
];

it.each(cases)('%s', (_name, parts, state, approvalId) => {
  const whole = message(parts);
  const [shown] = whole.parts.filter(isToolUIPart).flatMap((part) => callOf(part, whole) ?? []);
  expect(shown?.state).toBe(state);
  expect(shown?.approval?.id).toBe(approvalId);
  expect(waitingCalls(whole)).toHaveLength(state === 'waiting' ? 1 : 0);
});

it('the hint of a native question is in the metadata', () => {
  const asked = message([call('approval-requested', { id: 'a' })]);
  const hintWith = (metadata: unknown) => waitingCalls({ ...asked, metadata })[0]?.approval?.hint;
  expect(hintWith(undefined)).toBeUndefined();
  expect(hintWith({ questions: { other: { hint: 'No.' } } })).toBeUndefined();
  expect(hintWith({ questions: { c1: { hint: 'Sure?' } } })).toBe('Sure?');
});

it('a confirmation has no card of its own, and tells its hint', () => {
  const whole = message([call('input-available'), confirmation('approval-requested')]);
  const shown = whole.parts.filter(isToolUIPart).flatMap((part) => callOf(part, whole) ?? []);
  expect(shown).toHaveLength(1);
  expect(shown[0]?.approval?.hint).toBe('Sure?');
  expect(hasOpenCalls(whole)).toBe(true);
});
