// What a code block of a document is.

export interface Block {
  path: string;
  line: number;
  language: string;
  text: string;
}

export function documents(): string[];
export function blocksOf(path: string): Block[];
