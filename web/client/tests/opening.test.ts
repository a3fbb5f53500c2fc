/** Opening and closing at every moment: nothing stays open, and nothing is opened twice. */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { AudioPlayer, AudioRecorder } from '../src/index.js';
import { Opening } from '../src/audio/opening.js';

/** Something with two parts that come when the test says so, or not. */
function parts() {
  const open = new Set<string>();
  const waiting: ((comes: boolean) => void)[] = [];
  const opening = new Opening();
  let starts = 0;
  const start = () =>
    opening.open(async (onClose, signal) => {
      const name = String((starts += 1));
      for (const part of ['a', 'b']) {
        if (!(await new Promise<boolean>((resolve) => waiting.push(resolve)))) throw new Error('refused');
        open.add(name + part);
        onClose(() => open.delete(name + part));
        signal.throwIfAborted();
      }
    });
  return { open, waiting, opening, start };
}

const settled = () => new Promise((resolve) => setTimeout(resolve, 0));

describe('Opening', () => {
  it('is notified of a failure once, and can be opened again', async () => {
    const { open, waiting, start } = parts();
    const both = [start(), start()];
    waiting.shift()?.(true);
    await settled();
    waiting.shift()?.(false);
    await expect(both[0]).rejects.toThrow('refused');
    expect(both[1]).toBe(both[0]);
    expect([...open]).toEqual([]);
    const again = start();
    waiting.shift()?.(true);
    await settled();
    waiting.shift()?.(true);
    await again;
    expect([...open]).toEqual(['2a', '2b']);
  });

  it('leaves nothing open behind a close, whatever comes late', async () => {
    const step = fc.constantFrom('open', 'close', 'comes', 'comes', 'refused');
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 20 }), async (steps) => {
        const { open, waiting, opening, start } = parts();
        const attempts: Promise<void>[] = [];
        for (const what of steps) {
          if (what === 'open') attempts.push(start());
          else if (what === 'close') opening.close();
          else waiting.shift()?.(what === 'comes');
          attempts.at(-1)?.catch(() => {});
          await settled();
          // Two parts belong to one attempt at most.
          expect(new Set([...open].map((part) => part[0])).size).toBeLessThanOrEqual(1);
        }
        opening.close();
        while (waiting.length > 0) {
          waiting.shift()?.(true);
          await settled();
        }
        await Promise.allSettled(attempts);
        expect([...open]).toEqual([]);
      }),
    );
  });
});

it.each([
  ['recorder', (context: AudioContext) => new AudioRecorder({ context, onChunk: () => {} })],
  ['player', (context: AudioContext) => new AudioPlayer({ context })],
])('a %s says what a page without audio threads lacks', async (_name, make) => {
  // What browsers leave of it on a page that comes over plain HTTP from another machine.
  await expect(make({ resume: async () => {} } as AudioContext).open()).rejects.toThrow(/HTTPS/);
});
