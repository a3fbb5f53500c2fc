// Checks that every stream of a corpus is valid for the AI SDK packages and folds to the expected message.
//
// One case per line: {name, dialect, sdk: 6 | 7, prior: UIMessage | null, sse: string, message: UIMessage | null,
// ends: "finish" | "error" | "abort"}. `clientMaySend: true` says that the client has something to send at the end.
// `message7` replaces `message` for ai 7, where the packages fold differently. Without a message only the stream's
// form is checked.

import * as ai600 from 'ai-6.0.0';
import * as ai6 from 'ai-6';
import * as ai7 from 'ai-7';

import { PREDICATES } from './original-predicates.mjs';
import { firstDifference, readCorpus, testEach, throughJson } from './corpus.mjs';

const PACKAGES = {
  'ai 6.0.0': { package: ai600, sdk: 6, project: withoutYoungerFields },
  'ai 6': { package: ai6, sdk: 6, project: (message) => message },
  'ai 7': { package: ai7, sdk: 7, project: (message) => message },
};

const TERMINAL = ['finish', 'error', 'abort'];
const DONE = 'data: [DONE]\n\n';

// Their type is unknown to the schema, so that null is a value for them.
const UNTYPED_FIELDS = ['input', 'output', 'data', 'messageMetadata', 'approvalDescriptor', 'inputSchemaInput'];

// Metadata that makes a package hand out the message once more: it does so only when something was written.
const END_MARK = 'conformance-end';

await testEach(readCorpus('streams.jsonl'), async (testCase) => {
  const problems = checkForm(testCase);
  for (const [label, entry] of Object.entries(PACKAGES)) {
    if (testCase.sdk > entry.sdk) continue;
    const found = await checkWith(entry, testCase);
    problems.push(...found.map((problem) => `${label}: ${problem}`));
  }
  return problems;
});

/** What holds for every stream, whatever a package thinks of it. */
function checkForm({ sdk, sse, ends }) {
  if (sdk !== 6 && sdk !== 7) return [`sdk must be 6 or 7, not ${JSON.stringify(sdk)}`];
  if (!TERMINAL.includes(ends)) return [`ends must be one of ${TERMINAL.join(', ')}, not ${JSON.stringify(ends)}`];
  if (!sse.endsWith(DONE)) return ['the stream does not end with `data: [DONE]` and a blank line'];
  const { chunks, problems } = chunksOf(sse.slice(0, -DONE.length));
  const types = chunks.map((chunk) => chunk.type);
  if (types[0] !== 'start') {
    problems.push(`the first chunk is \`${types[0]}\`, not \`start\``);
  } else if (typeof chunks[0].messageId !== 'string' || chunks[0].messageId === '') {
    problems.push('`start` has no messageId');
  }
  const terminals = types.filter((type) => TERMINAL.includes(type));
  if (terminals.length !== 1) {
    problems.push(`there must be one terminal chunk, found ${terminals.length} [${terminals.join(', ')}]`);
  }
  if (types.at(-1) !== ends) problems.push(`the last chunk is \`${types.at(-1)}\`, not \`${ends}\``);
  for (const [index, chunk] of chunks.entries()) {
    for (const [field, value] of Object.entries(chunk)) {
      if (value === null && !UNTYPED_FIELDS.includes(field)) {
        problems.push(`chunk ${index} (${chunk.type}): \`${field}\` is null, it must be absent`);
      }
    }
  }
  return problems;
}

/** Splits events; comments, which keep connections alive, are no chunks. */
function chunksOf(text) {
  const chunks = [];
  const problems = [];
  const events = text.split('\n\n');
  if (events.pop() !== '') problems.push('the last event before `[DONE]` is not closed by a blank line');
  for (const event of events) {
    const lines = event.split('\n').filter((line) => !line.startsWith(':'));
    if (lines.length === 0) continue;
    if (lines.length > 1 || !lines[0].startsWith('data: ')) {
      problems.push(`not one line of data: ${JSON.stringify(event)}`);
    } else if (lines[0] === 'data: [DONE]') {
      problems.push('`[DONE]` comes before the end');
    } else {
      chunks.push(JSON.parse(lines[0].slice('data: '.length)));
    }
  }
  return { chunks, problems };
}

async function checkWith({ package: ai, sdk, project }, testCase) {
  const { chunks, problems } = await parse(ai, testCase.sse);
  if (problems.length > 0) return problems;
  const { message, shown, errors } = await fold(ai, testCase.prior, chunks);

  const expectedErrors = testCase.ends === 'error' ? [chunks.at(-1).errorText] : [];
  const difference = firstDifference(errors, expectedErrors, 'errors');
  if (difference !== undefined) problems.push(`the errors reported while folding differ ${difference}`);
  if (message === undefined) return [...problems, 'folding yielded no message'];

  const stored = sdk === 7 ? (testCase.message7 ?? testCase.message) : testCase.message;
  const expected = testCase.dialect === 'held' && testCase.ends === 'finish' ? withSpeech(stored, chunks) : stored;
  if (expected !== null) {
    const tidy = (value) => project(withoutEmptyMetadata(throughJson(value)));
    const found = firstDifference(tidy(message), tidy(expected));
    if (found !== undefined) problems.push(`the folded message differs ${found}`);
  }
  if (testCase.clientMaySend !== true) {
    for (const [name, predicate] of Object.entries(predicatesOf(ai, testCase))) {
      if (predicate({ messages: [shown] })) problems.push(`\`${name}\` is true: the client would send again`);
    }
  }
  return problems;
}

/** What decides in a front end of this dialect whether it sends automatically. */
function predicatesOf(ai, { dialect }) {
  if (dialect === 'held') return { first: PREDICATES.first(), later: PREDICATES.later() };
  const { lastAssistantMessageIsCompleteWithToolCalls, lastAssistantMessageIsCompleteWithApprovalResponses } = ai;
  return { lastAssistantMessageIsCompleteWithToolCalls, lastAssistantMessageIsCompleteWithApprovalResponses };
}

async function parse(ai, sse) {
  const bytes = new Blob([sse]).stream();
  const chunks = [];
  const problems = [];
  const items = ai.parseJsonEventStream({ stream: bytes, schema: ai.uiMessageChunkSchema });
  for await (const item of items) {
    if (item.success) {
      chunks.push(item.value);
    } else {
      const where = `chunk ${chunks.length + problems.length}`;
      problems.push(`${where} is refused: ${reasonOf(item.error)}\n  ${JSON.stringify(item.rawValue)}`);
    }
  }
  return { chunks, problems };
}

/** The schema is a union of all chunks, and complains about each; only the one of the right type is of interest. */
function reasonOf(error) {
  const issues = error.cause?.issues;
  if (issues === undefined) return error.message;
  const found = issues.flatMap((issue) => {
    if (issue.code !== 'invalid_union') return [issue];
    return issue.errors.find((branch) => !branch.some((inner) => inner.path[0] === 'type')) ?? [];
  });
  if (found.length === 0) return 'there is no chunk of this type';
  return found.map((issue) => [...issue.path, issue.message].join(': ')).join('; ');
}

/** Folds up to the end, or up to an error, as the package does it, and collects the errors. */
async function fold(ai, prior, chunks) {
  const mark = { type: 'message-metadata', messageMetadata: { [END_MARK]: true } };
  const end = chunks.at(-1)?.type === 'error' ? chunks.length - 1 : chunks.length;
  const errors = [];
  const messages = ai.readUIMessageStream({
    message: prior === null ? undefined : structuredClone(prior),
    stream: ReadableStream.from([...chunks.slice(0, end), mark, ...chunks.slice(end)]),
    onError: (error) => errors.push(String(error?.message ?? error)),
  });
  // What a client shows, and sends by, is the last state that the package handed out on its own.
  let shown = prior;
  let message;
  for await (const state of messages) {
    message = state;
    if (state.metadata?.[END_MARK] === undefined) shown = state;
  }
  if (message?.metadata !== undefined) delete message.metadata[END_MARK];
  return { message, shown: shown ?? message, errors };
}

/** The message with how much speech this stream had, which only dialect `held` tells, at the end. */
function withSpeech(message, chunks) {
  const speech = chunks.filter(({ type }) => type === 'data-pcm').map(({ data }) => data);
  if (message === null || speech.length === 0) return message;
  const bytes = speech.reduce((sum, { chunk }) => sum + Buffer.from(chunk, 'base64').length, 0);
  const { sampleRate } = speech.at(-1);
  const audio = { chunks: speech.length, bytes, sampleRate, duration: bytes / (2 * sampleRate) };
  return { ...message, metadata: { ...message.metadata, audio } };
}

/** The end mark leaves an empty object behind where no metadata was. */
function withoutEmptyMetadata(message) {
  const { metadata, ...rest } = message;
  const isEmpty = metadata === null || metadata === undefined || Object.keys(metadata).length === 0;
  return isEmpty ? rest : message;
}

/** A message without the fields that ai 6.0.0 does not write. */
function withoutYoungerFields(message) {
  const parts = message.parts.map((part) => {
    const { rawInput, resultProviderMetadata, callProviderMetadata, ...rest } = part;
    if (rest.type === 'reasoning') delete rest.id;
    if (rest.type === 'file') delete rest.providerMetadata;
    return rest;
  });
  return { ...message, parts };
}
