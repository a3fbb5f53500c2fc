// Judges a conversation that has come to its end: what the page shows, what is stored, what was done, and who wrote it.

import assert from 'node:assert/strict';

import { comparable, nameOf, toolsOf } from '../chat/session.mjs';

const UNKNOWN = /outcome is unknown/;
const EXPIRED = /not given in time|expired/;
const DECISIONS = ['approval.approved', 'approval.denied', 'approval.expired', 'approval.superseded'];

/** What is stored of a conversation, in the words that a run of the same conversation shares: ids by order, no usage. */
function essence(messages, { paidAgain = false } = {}) {
  const ids = new Map();
  const named = (id, kind) => {
    if (!ids.has(id)) ids.set(id, `${kind}-${ids.size}`);
    return ids.get(id);
  };
  return JSON.parse(JSON.stringify(comparable(messages)), (key, value) => {
    if (key === 'toolCallId') return named(value, 'call');
    if (key === 'id' && typeof value === 'string') return named(value, 'id');
    // Who asks for an answer again, and approves again, pays again.
    if (key === 'balance' && paidAgain) return 'less';
    if (key === 'transactionId' || key === 'transaction_id') return 'some transaction';
    if (key === 'thoughtSignature') return 'some signature';
    // Model calls that were lost with their replica cost what they cost.
    if (key === 'usage') return undefined;
    return value;
  });
}

/** What holds for every conversation. `expected` is what is stored of an undisturbed one. Returns what was remarkable. */
export async function judge(person, expected) {
  const remarks = [];
  const stored = await person.api.messages(person.id, person.dialect ? `?dialect=${person.dialect}` : '');
  const native = await person.api.messages(person.id);
  const audit = await person.api.audit(person.id);
  const journal = person.fleet.journal();
  person.evidence = { stored, audit };

  sameAsShown(person, stored);
  const calls = native.flatMap(toolsOf);
  once(calls, audit, journal);
  decidedOnce(person, calls, audit);
  keptOutputs(person, calls);
  const unknown = calls.filter((part) => UNKNOWN.test(part.errorText ?? ''));
  const late = calls.filter((part) => EXPIRED.test(part.errorText ?? ''));
  const meant = person.conversation.turns.some(({ ignore }) => ignore);
  if (unknown.length > 0) remarks.push('unknown');
  if (late.length > 0 && !meant) remarks.push('late');
  if (person.regenerated > 0) remarks.push('regenerated');
  if (person.unasked > 0) remarks.push('unasked');
  if (unknown.length === 0 && (late.length === 0 || meant)) {
    const paidAgain = person.regenerated > 0;
    assert.deepEqual(
      essence(stored, { paidAgain }),
      essence(expected, { paidAgain }),
      'the conversation differs from an undisturbed one',
    );
    countedAll(stored, expected);
  } else {
    upToDifference(essence(stored), essence(expected));
  }
  return remarks;
}

/** What the page shows is what is stored. */
function sameAsShown(person, stored) {
  const { messages } = person.chat;
  assert.deepEqual(shown(messages, person.page), shown(stored, person.page), 'the page shows something else than what is stored');
  const ids = messages.map(({ id }) => id);
  assert.equal(new Set(ids).size, ids.length, 'a message twice');
}

/** v6 has no chunk that carries the answer to a question, so that a replay cannot tell it; 6.0.0 keeps no ids of reasoning. */
function shown(messages, { sdk, name }) {
  const known = (part) => {
    const approval = sdk === 7 || part.approval === undefined ? part.approval : { id: part.approval.id };
    const { id, ...rest } = { ...part, ...(approval && { approval }) };
    return id === undefined || name === 'v6.0.0' ? rest : { id, ...rest };
  };
  return comparable(messages).map((message) => ({ ...message, parts: message.parts.map(known) }));
}

/** Payments: at most once, never without a yes, and once where the message says so. */
function once(calls, audit, journal) {
  for (const part of calls.filter((part) => nameOf(part) === 'shop__pay')) {
    const begun = journal.filter(({ event, key }) => event === 'begun' && key === part.toolCallId).length;
    const yes = audit.filter((row) => row.kind === 'approval.approved' && row.toolCallId === part.toolCallId).length;
    assert.ok(begun <= 1, `${part.toolCallId} was paid ${begun} times`);
    assert.ok(begun <= yes, `${part.toolCallId} was paid without a yes`);
    if (part.state === 'output-available') assert.equal(begun, 1, `${part.toolCallId} is shown as paid`);
    else if (!UNKNOWN.test(part.errorText ?? '')) assert.equal(begun, 0, `${part.toolCallId} (${part.state}) was paid`);
  }
  // The others are declared idempotent, and may be.
  const started = audit.filter(({ kind, toolName }) => kind === 'tool.started' && /pay/.test(toolName));
  assert.equal(new Set(started.map(({ toolCallId }) => toolCallId)).size, started.length, 'a payment was started twice');
}

/** Every approval that was asked for has exactly one end, which is what the user was shown. */
function decidedOnce(person, calls, audit) {
  for (const { approvalId, toolCallId } of audit.filter(({ kind }) => kind === 'approval.requested')) {
    const ends = audit.filter((row) => row.approvalId === approvalId && DECISIONS.includes(row.kind));
    const kinds = ends.map(({ kind }) => kind.slice('approval.'.length));
    assert.equal(kinds.length, 1, `${approvalId} of ${toolCallId} was decided ${kinds.length} times: ${kinds}`);
    const shownAs = person.acknowledged.decisions.get(approvalId);
    if (shownAs !== undefined) assert.equal(kinds[0], shownAs ? 'approved' : 'denied', `${approvalId} was answered otherwise`);
  }
  const asked = new Set(audit.filter(({ kind }) => kind === 'approval.requested').map(({ approvalId }) => approvalId));
  const lost = calls.filter((part) => part.approval && !asked.has(part.approval.id));
  assert.deepEqual(lost, [], 'an approval that the audit does not know');
}

/** An output of the page that the server has taken is stored. One that came too late was refused, which the answer says. */
function keptOutputs(person, calls) {
  for (const { toolCallId, output, errorText } of calls) {
    const sent = person.acknowledged.outputs.get(toolCallId);
    if (sent === undefined || EXPIRED.test(errorText ?? '')) continue;
    assert.deepEqual(output, sent, `the output of ${toolCallId} was acknowledged and is lost`);
  }
}

/** Every model call of a conversation is counted; calls that were lost with their replica may be counted beside them. */
function countedAll(stored, expected) {
  stored.forEach(({ metadata }, at) => {
    for (const [kind, tokens] of Object.entries(expected[at].metadata?.usage ?? {})) {
      const counted = metadata?.usage?.[kind] ?? 0;
      assert.ok(counted >= tokens, `message ${at}: ${counted} ${kind} of ${tokens} are counted`);
    }
  });
}

/** Where the outcome of a tool is rightly unknown, the model goes on from there in its own words; before it nothing differs. */
function upToDifference(found, expected) {
  assert.equal(found.length, expected.length, 'the conversation has another length');
  found.forEach((message, at) => {
    const cut = message.parts.findIndex((part) => UNKNOWN.test(part.errorText ?? '') || EXPIRED.test(part.errorText ?? ''));
    if (cut === -1 && at === 0) assert.deepEqual(message, expected[at]);
    else assert.deepEqual(message.parts.slice(0, Math.max(cut, 0)), expected[at].parts.slice(0, Math.max(cut, 0)));
  });
}
