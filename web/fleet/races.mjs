// Two people answer one question at the same moment, at two replicas, with opposite words.

import { randomUUID } from 'node:crypto';
import assert from 'node:assert/strict';

import { chunksOf } from '../chat/server.mjs';
import { toolsOf } from '../chat/session.mjs';
import { USERS, endpoints } from './fleet.mjs';
import { inParallel } from './run.mjs';

const AT_ONCE = 8;

/** A fleet in which so many answers may be refused; it is about who counts, not about how fast a model talks. */
export const RACING = { pace: '0ms', paymentMs: 1, toml: '[limits]\nrefused_answers_per_minute = 1000000\n' };

/** Asks `times` times, and has each question answered twice. Resolves to how often yes and no counted. */
export async function contradict(fleet, times, random) {
  const counts = { yes: 0, no: 0 };
  const rounds = Array.from({ length: times }, () => random.branch());
  await inParallel(AT_ONCE, rounds, async (own) => {
    const approved = await once(fleet, own);
    counts[approved ? 'yes' : 'no'] += 1;
  });
  return counts;
}

async function once(fleet, random) {
  const id = `race-${randomUUID().slice(0, 8)}`;
  const user = random.oneOf(USERS);
  const at = (replica) => endpoints(replica.url, user);
  const [first, second, third] = shuffled(fleet.replicas, random).map(at);
  const question = {
    id: 'u1',
    role: 'user',
    parts: [{ type: 'text', text: 'call shop__pay {"amount":1,"recipient":"a"} then say ok' }],
  };
  // The owner is one of the two, or neither.
  const asker = random.chance(0.5) ? first : (third ?? first);
  const asked = await send(asker, id, [question]);
  const messages = await asker.messages(id);
  assert.ok(toolsOf(messages.at(-1)).length === 1, `nothing was asked: ${JSON.stringify({ asked, messages })}`);
  const answered = (approved) => {
    const copy = structuredClone(messages);
    const [part] = toolsOf(copy.at(-1));
    Object.assign(part, { state: 'approval-responded', approval: { ...part.approval, approved } });
    return copy;
  };
  const flip = random.chance(0.5);
  const answers = await Promise.all([send(first, id, answered(flip)), send(second ?? first, id, answered(!flip))]);

  const audit = await first.audit(id);
  const ends = audit.filter(({ kind }) => kind === 'approval.approved' || kind === 'approval.denied');
  const about = () => JSON.stringify({ id, answers, audit }, undefined, 1);
  assert.equal(ends.length, 1, `one answer counts: ${about()}`);
  const approved = ends[0].kind === 'approval.approved';
  const [part] = toolsOf((await first.messages(id)).at(-1));
  assert.equal(part.state, approved ? 'output-available' : 'output-denied', about());
  const paid = fleet.journal().filter(({ event, key }) => event === 'begun' && key === part.toolCallId).length;
  assert.equal(paid, approved ? 1 : 0, `paid ${paid} times: ${about()}`);
  // The other one learns what came of it, and is recorded as refused.
  const other = answers[approved === flip ? 1 : 0];
  assert.equal(other.status, 200, about());
  const outcome = approved ? 'tool-output-available' : 'tool-output-denied';
  assert.ok(
    other.chunks.some(({ type }) => type === outcome),
    `the other does not learn it: ${about()}`,
  );
  const refused = audit.filter(({ kind }) => kind === 'answer.refused').length;
  assert.equal(refused, 1, `the other is not refused: ${about()}`);
  return approved;
}

async function send(api, id, messages) {
  const response = await api.post('/api/chat', { id, messages, trigger: 'submit-message' });
  const text = await response.text();
  return { status: response.status, chunks: response.ok ? chunksOf(text) : [], text: response.ok ? undefined : text };
}

function shuffled(list, random) {
  return list
    .map((it) => [random.next(), it])
    .sort(([a], [b]) => a - b)
    .map(([, it]) => it);
}
