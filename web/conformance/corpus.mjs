// What the checks share: reading a corpus, comparing JSON, counting and closing.

import { readFileSync } from 'node:fs';

// Enough to see a pattern; the rest of a broken corpus says the same again.
const SHOWN_FAILURES = 20;

// Long values hide the difference that they are printed for.
const SHOWN_CHARACTERS = 300;

/** Runs `check(testCase)`, which returns a list of problems, for each line of the corpus named on the command line. */
export async function checkCorpus(name, check) {
  const path = process.argv[2];
  if (path === undefined) {
    console.error(`usage: node ${name}.mjs CORPUS.jsonl`);
    process.exit(2);
  }
  let passed = 0;
  let failed = 0;
  for (const [index, line] of readFileSync(path, 'utf8').split('\n').entries()) {
    if (line.trim() === '') continue;
    const { title, problems } = await checkLine(line, check);
    if (problems.length === 0) {
      passed += 1;
      continue;
    }
    failed += 1;
    if (failed <= SHOWN_FAILURES) {
      console.log(`line ${index + 1}${title}`);
      for (const problem of problems) console.log(`    ${problem.replaceAll('\n', '\n    ')}`);
    } else if (failed === SHOWN_FAILURES + 1) {
      console.log('more failures follow; they are only counted');
    }
  }
  if (passed + failed === 0) console.log(`${path} holds no case`);
  console.log(`${name}: ${passed} passed, ${failed} failed`);
  process.exitCode = failed > 0 || passed === 0 ? 1 : 0;
}

async function checkLine(line, check) {
  let title = '';
  try {
    const testCase = JSON.parse(line);
    if (typeof testCase.name === 'string') title = `: ${testCase.name}`;
    return { title, problems: await check(testCase) };
  } catch (error) {
    return { title, problems: [`the check broke: ${error.stack ?? error}`] };
  }
}

/** The value as it would arrive after being sent as JSON: without `undefined`. */
export function throughJson(value) {
  return value === undefined ? undefined : JSON.parse(JSON.stringify(value));
}

/** The first place where two JSON values differ, or undefined. The order of keys does not matter. */
export function firstDifference(actual, expected, path = '$') {
  if (Object.is(actual, expected)) return undefined;
  // JSON has one zero.
  if (actual === 0 && expected === 0) return undefined;
  const kinds = [kindOf(actual), kindOf(expected)];
  if (kinds[0] !== kinds[1] || !['array', 'object'].includes(kinds[0])) {
    return `at ${path}\n  found    ${shown(actual)}\n  expected ${shown(expected)}`;
  }
  for (const key of new Set([...Object.keys(expected), ...Object.keys(actual)])) {
    const place = kinds[0] === 'array' ? `${path}[${key}]` : `${path}.${key}`;
    const difference = firstDifference(member(actual, key), member(expected, key), place);
    if (difference !== undefined) return difference;
  }
  return undefined;
}

function kindOf(value) {
  if (value === null) return 'null';
  return Array.isArray(value) ? 'array' : typeof value;
}

function member(value, key) {
  return Object.hasOwn(value, key) ? value[key] : undefined;
}

function shown(value) {
  const text = value === undefined ? 'nothing' : JSON.stringify(value);
  return text.length > SHOWN_CHARACTERS ? `${text.slice(0, SHOWN_CHARACTERS)}…` : text;
}
