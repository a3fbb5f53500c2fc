/** Splits a growing Markdown text into blocks without reading its beginning again at every piece. */
import { parseMarkdownIntoBlocks } from 'streamdown';

/** The last blocks may still change with what follows: a paragraph can become a heading, a list can go on. */
const OPEN_BLOCKS = 3;

/** Returns a splitter for one text; each call may get a longer one. */
export function incrementalBlocks(split: (text: string) => string[] = parseMarkdownIntoBlocks) {
  let settled: string[] = [];
  let settledText = '';
  return (text: string): string[] => {
    if (!text.startsWith(settledText)) {
      settled = [];
      settledText = '';
    }
    const blocks = [...settled, ...split(text.slice(settledText.length))];
    const closed = blocks.slice(0, -OPEN_BLOCKS);
    const closedText = settledText + closed.slice(settled.length).join('');
    // Footnotes make one block of the whole; then nothing is settled, and nothing is taken apart wrongly.
    if (closed.length > settled.length && text.startsWith(closedText)) {
      settled = closed;
      settledText = closedText;
    }
    return blocks;
  };
}
