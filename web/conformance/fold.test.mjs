// Compares messages that the Rust fold made (`conformance fold` writes them) with those of the real AI SDK, v6 and v7.

import { isDeepStrictEqual } from 'node:util';

import * as ai6 from 'ai-6';
import * as ai7 from 'ai-7';

import { readCorpus, testEach } from './corpus.mjs';

const versions = { v6: ai6, v7: ai7 };

const cases = readCorpus('fold.jsonl').flatMap((testCase) =>
  Object.keys(versions)
    .filter((version) => testCase.only === undefined || testCase.only === version)
    .map((version) => ({ ...testCase, version, title: `${testCase.name} (${version})` })),
);

await testEach(cases, async (testCase) => {
  const actual = await fold(versions[testCase.version], testCase);
  return agree(testCase[testCase.version], actual) ? [] : report(testCase, actual);
});

async function fold(ai, { prior, chunks }) {
  try {
    const schema = ai.uiMessageChunkSchema();
    const stream = new ReadableStream({
      async start(controller) {
        for (const chunk of chunks) {
          const result = await schema.validate(structuredClone(chunk));
          if (!result.success) {
            controller.error(result.error);
            return;
          }
          controller.enqueue(result.value);
        }
        controller.close();
      },
    });
    const message = structuredClone(prior) ?? undefined;
    let last;
    for await (const state of ai.readUIMessageStream({ message, stream, terminateOnError: true })) {
      last = state;
    }
    return { message: JSON.parse(JSON.stringify(last), wellFormed) };
  } catch (error) {
    return { error: String(error?.message ?? error) };
  }
}

// Rust has no halves of surrogate pairs: a streamed input that ends in one holds U+FFFD there.
function wellFormed(_key, value) {
  return typeof value === 'string' ? value.toWellFormed() : value;
}

function agree(expected, actual) {
  if (expected.error !== undefined || actual.error !== undefined) {
    return expected.error !== undefined && actual.error !== undefined;
  }
  // Both sides pass through the same printer, which makes one of 1.0 and 1, and of -0 and 0.
  return isDeepStrictEqual(JSON.parse(JSON.stringify(expected.message)), actual.message);
}

function report({ version, prior, chunks, [version]: expected }, actual) {
  return [
    `prior    ${JSON.stringify(prior)}`,
    ...chunks.map((chunk) => `chunk    ${JSON.stringify(chunk)}`),
    `rust     ${JSON.stringify(expected)}`,
    `ai sdk   ${JSON.stringify(actual)}`,
  ];
}
