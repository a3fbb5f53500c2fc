/** The predicate and the client tools never loop: requests are bounded, whatever was asked, answered, and in which order. */

import { Chat } from '@ai-sdk/react';
import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { createSendAutomaticallyWhen, defineClientTools, sendAutomaticallyWhen, CONFIRMATION_TOOL } from '../src/index.js';
import { isToolPart, type ToolPart } from '../src/tool-parts.js';

/** One call that the model makes. */
interface Call {
  where: 'server' | 'client';
  asks: boolean;
  approve: boolean;
  fails: boolean;
}

interface Plan {
  dialect: 'native' | 'adk';
  /** The calls of each step, and whether there is text next to them. */
  steps: { calls: Call[]; says: boolean }[];
  /** In which order questions are answered. */
  order: number[];
}

const plan: fc.Arbitrary<Plan> = fc.record({
  dialect: fc.constantFrom('native', 'adk'),
  steps: fc.array(
    fc.record({
      calls: fc.array(
        fc.record({ where: fc.constantFrom('server', 'client'), asks: fc.boolean(), approve: fc.boolean(), fails: fc.boolean() }),
        { minLength: 1, maxLength: 4 },
      ),
      says: fc.boolean(),
    }),
    { minLength: 1, maxLength: 3 },
  ),
  order: fc.array(fc.nat(), { minLength: 4, maxLength: 4 }),
}) as fc.Arbitrary<Plan>;

/** More requests than any plan needs: past it the client goes round in circles. */
const FAR_TOO_MANY = 40;

/** A server that keeps the rules of turns: settle what was answered, or ask the next thing; a step of its own for each. */
class RuleServer implements ChatTransport<UIMessage> {
  requests = 0;
  #step = 0;
  readonly #held: UIMessageChunk[] = [];
  readonly plan: Plan;

  constructor(plan: Plan) {
    this.plan = plan;
  }

  sendMessages: ChatTransport<UIMessage>['sendMessages'] = async ({ messages }) => {
    this.requests += 1;
    if (this.requests > FAR_TOO_MANY) throw new Error('round in circles');
    const chunks: object[] = [{ type: 'start', messageId: 'reply' }];
    if (messages.at(-1)?.role === 'assistant') chunks.push(...this.#settle(messages.at(-1) as UIMessage));
    chunks.push(...this.#goOn(), { type: 'finish' });
    return streamOf(chunks as UIMessageChunk[]);
  };

  reconnectToStream = async () => null;

  /** Outcomes of the answered step: at once in `native`, with the last answer in `adk`. */
  #settle(message: UIMessage): object[] {
    const parts = message.parts.filter(isToolPart) as ToolPart[];
    const calls = this.plan.steps[this.#step - 1]?.calls ?? [];
    const settled = calls.flatMap((call, index): object[] => {
      const toolCallId = `s${this.#step - 1}c${index}`;
      const own = parts.find((part) => part.toolCallId === toolCallId);
      const outcomes: object[] = [];
      if (call.asks && !call.approve) outcomes.push({ type: 'tool-output-denied', toolCallId });
      else if (call.where === 'client') {
        if (own?.state !== 'output-available' && own?.state !== 'output-error') throw new Error('sent without the output');
      } else if (call.asks) {
        outcomes.push(
          call.fails
            ? { type: 'tool-output-error', toolCallId, errorText: 'no' }
            : { type: 'tool-output-available', toolCallId, output: 1 },
        );
      }
      if (call.asks && this.plan.dialect === 'adk') {
        outcomes.push({ type: 'tool-output-available', toolCallId: `ask-${toolCallId}`, output: { confirmed: call.approve } });
      }
      return outcomes;
    });
    if (this.plan.dialect === 'native') return settled;
    this.#held.push(...(settled as UIMessageChunk[]));
    return [];
  }

  /** The next step that waits for the client, after those that do not; in the end the answer. */
  #goOn(): object[] {
    const chunks: object[] = [];
    while (this.#step < this.plan.steps.length) {
      const { calls, says } = this.plan.steps[this.#step] as Plan['steps'][number];
      chunks.push({ type: 'start-step' });
      if (says && this.plan.dialect === 'native') chunks.push(...said(`t${this.#step}`));
      // What is left to the client alone is shown in both dialects: it sends when it has every output of the step.
      const isShown = this.plan.dialect === 'native' || !calls.some((call) => call.asks);
      calls.forEach((call, index) => chunks.push(...this.#ask(call, `s${this.#step}c${index}`, isShown)));
      chunks.push({ type: 'finish-step' });
      this.#step += 1;
      if (calls.some((call) => call.asks || call.where === 'client')) return chunks;
    }
    return [...chunks, ...this.#held.splice(0), { type: 'start-step' }, ...said('end'), { type: 'finish-step' }];
  }

  #ask(call: Call, toolCallId: string, isShown: boolean): object[] {
    const toolName = call.where === 'client' ? 'pick' : 'pay';
    const chunks: object[] = [{ type: 'tool-input-available', toolCallId, toolName, input: { fails: call.fails } }];
    if (!call.asks) {
      const output = { type: 'tool-output-available', toolCallId, output: 1 };
      if (call.where === 'server') {
        if (isShown) chunks.push(output);
        else this.#held.push(output as UIMessageChunk);
      }
    } else if (this.plan.dialect === 'native') {
      chunks.push({ type: 'tool-approval-request', approvalId: `ask-${toolCallId}`, toolCallId });
    } else {
      const input = { originalFunctionCall: { id: toolCallId, name: toolName } };
      chunks.push(
        { type: 'tool-input-available', toolCallId: `ask-${toolCallId}`, toolName: CONFIRMATION_TOOL, input },
        { type: 'tool-approval-request', approvalId: `ask-${toolCallId}`, toolCallId: `ask-${toolCallId}` },
      );
    }
    return chunks;
  }
}

describe('requests are bounded', () => {
  it('a server that keeps the rules gets one request for each step that waits, and one to begin', async () => {
    await fc.assert(
      fc.asyncProperty(plan, async (plan) => {
        const server = new RuleServer(plan);
        const tools = defineClientTools(
          {
            pick: async ({ fails }: { fails: boolean }) => {
              if (fails) throw new Error('no');
              return 1;
            },
          },
          { storage: null },
        );
        const chat = new Chat({
          id: 'chat',
          transport: server,
          sendAutomaticallyWhen: createSendAutomaticallyWhen({ clientTools: tools }),
        });
        await chat.sendMessage({ text: 'go' });
        await converse(chat, tools, server);
        expect(chat.error).toBeUndefined();
        const waits = plan.steps.filter(({ calls }) => calls.some((call) => call.asks || call.where === 'client')).length;
        expect(server.requests).toBe(waits + 1);
        expect(chat.messages).toHaveLength(2);
        expect(chat.lastMessage?.parts.at(-1)).toMatchObject({ type: 'text', text: 'said' });
      }),
      { numRuns: 150 },
    );
  });

  it('a server that answers with anything at all gets each state once', async () => {
    const state = fc.constantFrom(
      'input-available',
      'approval-requested',
      'approval-responded',
      'output-available',
      'output-error',
      'output-denied',
    );
    const part = fc.oneof(
      fc.record({
        type: fc.constantFrom('tool-pick', 'tool-pay', `tool-${CONFIRMATION_TOOL}`),
        toolCallId: fc.constantFrom('a', 'b', 'c'),
        state,
      }),
      fc.constantFrom({ type: 'step-start' }, { type: 'text', text: 'x' }),
    );
    const history = fc.array(
      fc.record({
        id: fc.constantFrom('m', 'n'),
        role: fc.constantFrom('assistant', 'user'),
        parts: fc.array(part, { maxLength: 6 }),
      }),
      { maxLength: 4 },
    );
    fc.assert(
      fc.property(fc.array(history, { maxLength: 30 }), fc.boolean(), (histories, olderMessages) => {
        const predicate = createSendAutomaticallyWhen({ clientTools: ['pick'], olderMessages });
        const sends = [...histories, ...histories, ...histories].filter((messages) => predicate({ messages })).length;
        expect(sends).toBeLessThanOrEqual(histories.flat().length);
        // Nothing is left to send, however often it is asked.
        while (histories.some((messages) => predicate({ messages })));
        expect(histories.some((messages) => predicate({ messages }))).toBe(false);
      }),
    );
  });

  it('the bare predicate is pure', () => {
    const messages = [{ role: 'assistant', parts: [{ type: 'tool-pay', state: 'approval-responded' }] }];
    expect([1, 2, 3].map(() => sendAutomaticallyWhen({ messages }))).toEqual([true, true, true]);
  });
});

/** Plays the user and the page until nothing changes. */
async function converse(chat: Chat<UIMessage>, tools: ReturnType<typeof defineClientTools>, server: RuleServer): Promise<void> {
  const { steps, order } = server.plan;
  let requests = 0;
  for (let quiet = 0, round = 0; quiet < 3; round += 1) {
    await new Promise((resolve) => setTimeout(resolve, 0));
    quiet = chat.status === 'ready' && server.requests === requests ? quiet + 1 : 0;
    requests = server.requests;
    if (chat.status !== 'ready') continue;
    await tools.run(chat);
    const open = (chat.lastMessage?.parts ?? []).filter(
      (part) => isToolPart(part) && (part as ToolPart).state === 'approval-requested',
    ) as ToolPart[];
    const next = open[(order[round % order.length] ?? 0) % Math.max(open.length, 1)];
    if (next?.approval?.id === undefined) continue;
    quiet = 0;
    const [, step, call] = /s(\d+)c(\d+)$/.exec(next.approval.id) ?? [];
    const approved = steps[Number(step)]?.calls[Number(call)]?.approve === true;
    await chat.addToolApprovalResponse({ id: next.approval.id, approved });
  }
}

function said(id: string): object[] {
  return [
    { type: 'text-start', id },
    { type: 'text-delta', id, delta: 'said' },
    { type: 'text-end', id },
  ];
}

function streamOf(chunks: UIMessageChunk[]): ReadableStream<UIMessageChunk> {
  return new ReadableStream({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });
}
