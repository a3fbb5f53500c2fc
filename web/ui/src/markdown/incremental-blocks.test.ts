/** A text that grows is split as the whole text is. */
import fc from 'fast-check';
import { parseMarkdownIntoBlocks } from 'streamdown';
import { expect, it } from 'vitest';

import { incrementalBlocks } from './incremental-blocks';

const piece = fc.constantFrom(
  'A paragraph.\n\n',
  'words that ',
  'go on\n',
  '# Heading\n\n',
  '- item\n',
  '  nested\n',
  '\n',
  '```rust\nfn main() {}\n```\n\n',
  '```\n',
  '| a | b |\n|---|---|\n| 1 | 2 |\n\n',
  '> quote\n',
  '$$\nx^2\n$$\n\n',
  '---\n\n',
  '日本語の文。\n\n',
);

it('keeps every character, whatever the pieces', () => {
  fc.assert(
    fc.property(fc.array(piece, { maxLength: 60 }), (pieces) => {
      const split = incrementalBlocks();
      let text = '';
      for (const next of pieces) {
        text += next;
        expect(split(text).join('')).toBe(parseMarkdownIntoBlocks(text).join(''));
      }
    }),
    { numRuns: 300 },
  );
});

it('splits closed paragraphs as the whole text is split', () => {
  const split = incrementalBlocks();
  let text = '';
  for (let index = 0; index < 200; index += 1) {
    text += `Paragraph ${index} has *words*.\n\n`;
    expect(split(text)).toEqual(parseMarkdownIntoBlocks(text));
  }
});

it('reads only the end of a long text again', () => {
  let read = 0;
  const split = incrementalBlocks((text) => {
    read += text.length;
    return parseMarkdownIntoBlocks(text);
  });
  let text = '';
  for (let index = 0; index < 1_000; index += 1) {
    text += `Paragraph ${index}.\n\n`;
    split(text);
  }
  expect(read).toBeLessThan(text.length * 10);
});

it('begins again with another text', () => {
  const split = incrementalBlocks();
  split('One.\n\nTwo.\n\nThree.\n\nFour.\n\nFive.\n\n');
  expect(split('Other.\n\n').join('')).toBe('Other.\n\n');
});
