// @vitest-environment jsdom
/** Every way in which a held key is let go. */

import { afterEach, beforeEach, expect, it, vi } from 'vitest';

import { PushToTalk } from '../src/index.js';

let talk: PushToTalk | undefined;
beforeEach(() => void vi.useFakeTimers());
afterEach(() => {
  talk?.close();
  vi.useRealTimers();
});

function listen(): string[] {
  const events: string[] = [];
  talk = new PushToTalk({
    onPress: () => events.push('press'),
    onRelease: (isCancelled) => events.push(isCancelled ? 'cancel' : 'release'),
  });
  return events;
}

const key = (type: 'keydown' | 'keyup', key: string, more: KeyboardEventInit = {}) =>
  window.dispatchEvent(new KeyboardEvent(type, { key, ...more }));

it.each([
  ['released', ['press', 'release'], () => key('keyup', 'Meta')],
  ['another key', ['press', 'cancel'], () => key('keydown', 'c', { metaKey: true })],
  ['the window loses the focus', ['press', 'release'], () => window.dispatchEvent(new Event('blur'))],
  ['the page is hidden', ['press', 'release'], () => document.dispatchEvent(new Event('visibilitychange'))],
  ['closed', ['press', 'release'], () => talk?.close()],
  ['another key is released', ['press'], () => key('keyup', 'Control')],
  ['repeated', ['press'], () => key('keydown', 'Meta', { repeat: true })],
] as [string, string[], () => void][])('%s', (_name, expected, end) => {
  const events = listen();
  key('keydown', 'Meta', { metaKey: true });
  vi.advanceTimersByTime(200);
  expect(talk?.isHeld).toBe(true);
  end();
  expect(events).toEqual(expected);
  expect(talk?.isHeld).toBe(expected.length === 1);
});

it.each([
  ['a shortcut', () => key('keydown', 'c', { ctrlKey: true })],
  ['a tap', () => key('keyup', 'Control')],
  ['a window that loses the focus', () => window.dispatchEvent(new Event('blur'))],
  ['the end', () => talk?.close()],
] as [string, () => void][])('%s within a moment is no speech', (_name, end) => {
  const events = listen();
  key('keydown', 'Control', { ctrlKey: true });
  vi.advanceTimersByTime(199);
  end();
  vi.advanceTimersByTime(1_000);
  expect(events).toEqual([]);
  expect(talk?.isHeld).toBe(false);
});

it.each([
  ['another key', 'a', {}],
  ['with shift', 'Control', { ctrlKey: true, shiftKey: true }],
  ['after Cmd', 'Control', { ctrlKey: true, metaKey: true }],
  ['a repeat whose beginning went elsewhere', 'Control', { ctrlKey: true, repeat: true }],
] as [string, string, KeyboardEventInit][])('does not begin: %s', (_name, name, more) => {
  const events = listen();
  key('keydown', name, more);
  vi.advanceTimersByTime(1_000);
  expect(events).toEqual([]);
});
