// Compares messages that the Rust fold made (`cargo run --example fold_corpus`) with those of the real AI SDK, v6 and v7.
//
// `node web/conformance/fold.mjs CORPUS.jsonl`; ends with `fold: N passed, M failed` and code 1 if any failed.

import { createReadStream } from "node:fs";
import { createInterface } from "node:readline";
import { isDeepStrictEqual } from "node:util";

import * as ai6 from "ai-6";
import * as ai7 from "ai-7";

const versions = { v6: ai6, v7: ai7 };
const shownFailures = 5;

const [path] = process.argv.slice(2);
if (path === undefined) {
  console.error("say which corpus to read: node fold.mjs CORPUS.jsonl");
  process.exit(2);
}

let passed = 0;
let failed = 0;
for await (const line of createInterface({ input: createReadStream(path) })) {
  const testCase = JSON.parse(line);
  for (const [version, ai] of Object.entries(versions)) {
    if (testCase.only !== undefined && testCase.only !== version) {
      continue;
    }
    const actual = await fold(ai, testCase);
    if (agree(testCase[version], actual)) {
      passed += 1;
    } else {
      failed += 1;
      if (failed <= shownFailures) {
        show(version, testCase, actual);
      }
    }
  }
}
console.log(`fold: ${passed} passed, ${failed} failed`);
process.exitCode = failed === 0 ? 0 : 1;

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
  return typeof value === "string" ? value.toWellFormed() : value;
}

function agree(expected, actual) {
  if (expected.error !== undefined || actual.error !== undefined) {
    return expected.error !== undefined && actual.error !== undefined;
  }
  // Both sides pass through the same printer, which makes one of 1.0 and 1, and of -0 and 0.
  return isDeepStrictEqual(JSON.parse(JSON.stringify(expected.message)), actual.message);
}

function show(version, { name, prior, chunks, [version]: expected }, actual) {
  console.log(`--- ${name} (${version})`);
  console.log("prior   ", JSON.stringify(prior));
  for (const chunk of chunks) {
    console.log("chunk   ", JSON.stringify(chunk));
  }
  console.log("rust    ", JSON.stringify(expected));
  console.log("ai sdk  ", JSON.stringify(actual));
}
