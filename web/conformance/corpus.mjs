// What the checks share: the cases of a corpus as tests, and comparing JSON.

import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';

import { TARGET } from '../target.mjs';

// Enough to see a pattern; the rest of a broken corpus says the same again.
const SHOWN_FAILURES = 20;

// Long values hide the difference that they are printed for.
const SHOWN_CHARACTERS = 300;

/** A file of the corpora that `cargo xtask test` writes. */
export function corpusFile(name) {
  return join(TARGET, 'conformance', name);
}

/** The cases of a corpus, one per line; `title` says where each is. */
export function readCorpus(name) {
  const path = corpusFile(name);
  const cases = readFileSync(path, 'utf8')
    .split('\n')
    .flatMap((line, index) => {
      if (line.trim() === '') return [];
      const testCase = JSON.parse(line);
      const title = `line ${index + 1}${testCase.name === undefined ? '' : `: ${testCase.name}`}`;
      return [{ title, ...testCase }];
    });
  assert.notEqual(cases.length, 0, `${path} holds no case`);
  return cases;
}

/**
 * One test for each case, which has a `title`; `check(testCase)` returns a list of problems.
 *
 * The cases are checked before the first test is made: `node:test` follows every promise of a test, which makes reading the
 * packages' streams many times as slow.
 */
export async function testEach(cases, check) {
  const outcomes = [];
  for (const testCase of cases) outcomes.push({ title: testCase.title, problems: await problemsOf(testCase, check) });
  let failed = 0;
  for (const { title, problems } of outcomes) {
    if (problems.length > 0) failed += 1;
    const shown = failed <= SHOWN_FAILURES ? problems.join('\n') : 'one more failure, whose problems are not shown';
    test(title, () => {
      // The stack would tell of this place only.
      if (problems.length > 0) throw Object.assign(new Error(shown), { stack: shown });
    });
  }
}

async function problemsOf(testCase, check) {
  try {
    return await check(testCase);
  } catch (error) {
    return [`the check broke: ${error.stack ?? error}`];
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
