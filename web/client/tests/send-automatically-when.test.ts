/** The predicate against the rules of docs/adr/0005, 0007, 0008 and 0009, and next to the AI SDK's own helpers. */

import { lastAssistantMessageIsCompleteWithApprovalResponses as stockApprovals, type UIMessage } from 'ai';
import fc from 'fast-check';
import { describe, expect, it } from 'vitest';

import { createSendAutomaticallyWhen, sendAutomaticallyWhen, type MessageLike, type ToolPart } from '../src/index.js';

type Part = ToolPart & { text?: string; error?: string; errorText?: string };

const text: Part = { type: 'text', text: 'Here are the results' };
const step: Part = { type: 'step-start' };

function confirmation(state: string, more: Partial<Part> = {}): Part {
  return { type: 'tool-adk_request_confirmation', state, ...more };
}

function call(name: string, state: string, more: Partial<Part> = {}): Part {
  return { type: `tool-${name}`, state, ...more };
}

function responded(approved: boolean): Partial<Part> {
  return { approval: { id: 'call-1', approved } };
}

function assistant(...parts: Part[]): MessageLike[] {
  return [
    { id: 'u', role: 'user', parts: [text] },
    { id: 'a', role: 'assistant', parts },
  ];
}

/** Both values of `approved`, which must never matter. */
const BOTH = [true, false];

describe('the confirmation form', () => {
  const cases: [string, boolean, (approved: boolean) => Part[]][] = [
    [
      'frontend execute',
      true,
      (a) => [confirmation('approval-responded', responded(a)), call('search', 'output-available', { output: {} })],
    ],
    [
      'backend already responded',
      false,
      (a) => [confirmation('approval-responded', responded(a)), call('search', 'output-available'), text],
    ],
    [
      'backend error response',
      false,
      (a) => [confirmation('approval-responded', responded(a)), call('search', 'output-error', { error: 'Network timeout' })],
    ],
    [
      'error next to an output',
      false,
      (a) => [
        confirmation('approval-responded', responded(a)),
        call('search', 'output-available'),
        call('other', 'output-error'),
      ],
    ],
    ['text before everything else', false, (a) => [text, confirmation('approval-responded', responded(a))]],
    ['answered', true, (a) => [confirmation('approval-responded', responded(a))]],
    [
      'answered, the call still waits',
      true,
      (a) => [call('search', 'input-available'), confirmation('approval-responded', responded(a))],
    ],
    ['not answered', false, () => [confirmation('approval-requested')]],
    ['not asked yet', false, () => [confirmation('input-available')]],
    [
      'output, but the confirmation is not answered',
      false,
      () => [confirmation('approval-requested'), call('search', 'output-available')],
    ],
    ['one of two answered', false, (a) => [confirmation('approval-responded', responded(a)), confirmation('approval-requested')]],
    [
      'both answered',
      true,
      (a) => [confirmation('approval-responded', responded(a)), confirmation('approval-responded', responded(!a))],
    ],
    [
      'text between two confirmations',
      false,
      (a) => [confirmation('approval-responded', responded(a)), text, confirmation('approval-responded', responded(a))],
    ],
    [
      'a second question in a step of its own',
      true,
      (a) => [step, confirmation('output-available', responded(a)), text, step, confirmation('approval-responded', responded(a))],
    ],
    [
      'everything settled, text in a new step',
      false,
      (a) => [step, confirmation('output-available', responded(a)), call('search', 'output-available'), step, text],
    ],
    [
      'settled and nothing after it',
      false,
      (a) => [confirmation('output-available', responded(a)), call('search', 'output-available')],
    ],
    [
      'run by the provider',
      true,
      (a) => [confirmation('approval-responded', responded(a)), call('web_search', 'output-error', { providerExecuted: true })],
    ],
  ];
  it.each(cases)('%s: %s', (_name, expected, parts) => {
    for (const approved of BOTH) {
      const messages = assistant(...parts(approved));
      expect(sendAutomaticallyWhen({ messages })).toBe(expected);
      expect(createSendAutomaticallyWhen()({ messages })).toBe(expected);
    }
  });
});

describe('the native form', () => {
  const cases: [string, boolean, (approved: boolean) => Part[]][] = [
    ['scenario 1, one call answered', true, (a) => [call('pay', 'approval-responded', responded(a))]],
    ['scenario 2, output only', false, () => [call('pay', 'output-available')]],
    ['scenario 3, mixed', true, (a) => [call('pay', 'approval-responded', responded(a)), call('search', 'output-available')]],
    ['scenario 4, incomplete', false, () => [call('pay', 'approval-requested'), call('search', 'call')]],
    [
      'one of two answered',
      false,
      (a) => [call('pay', 'approval-responded', responded(a)), call('search', 'approval-requested')],
    ],
    ['an error is complete', true, (a) => [call('pay', 'approval-responded', responded(a)), call('search', 'output-error')]],
    ['a denial is complete', true, (a) => [call('pay', 'approval-responded', responded(a)), call('search', 'output-denied')]],
    [
      'a preliminary output is not',
      false,
      (a) => [call('pay', 'approval-responded', responded(a)), call('search', 'output-available', { preliminary: true })],
    ],
    ['text before the question', true, (a) => [step, text, call('pay', 'approval-responded', responded(a))]],
    ['text after the calls', false, (a) => [step, call('pay', 'approval-responded', responded(a)), text]],
    ['earlier steps do not count', false, (a) => [step, call('pay', 'approval-responded', responded(a)), step, text]],
    [
      'run by the provider',
      true,
      (a) => [call('pay', 'approval-responded', responded(a)), call('web_search', 'input-available', { providerExecuted: true })],
    ],
    ['a dynamic tool', true, (a) => [{ type: 'dynamic-tool', toolName: 'pay', state: 'approval-responded', ...responded(a) }]],
    ['no parts', false, () => []],
  ];
  it.each(cases)('%s: %s', (_name, expected, parts) => {
    for (const approved of BOTH) expect(sendAutomaticallyWhen({ messages: assistant(...parts(approved)) })).toBe(expected);
  });

  it('agrees with the stock helper wherever no text stands behind the calls', () => {
    const state = fc.constantFrom(
      'input-streaming',
      'input-available',
      'approval-requested',
      'approval-responded',
      'output-available',
      'output-error',
      'output-denied',
    );
    const tool = fc.record({ type: fc.constantFrom('tool-a', 'tool-b'), toolCallId: fc.string(), state, input: fc.constant({}) });
    const part = fc.oneof(tool, fc.constant(step));
    fc.assert(
      fc.property(fc.array(part), (parts) => {
        const messages = assistant(...parts);
        // With only provider-executed calls in the step the stock helper has nothing to say either.
        expect(sendAutomaticallyWhen({ messages })).toBe(stockApprovals({ messages: messages as UIMessage[] }));
      }),
    );
  });
});

describe('neither form', () => {
  it.each([null, undefined])('no list of messages (%s)', (messages) => {
    expect(sendAutomaticallyWhen({ messages })).toBe(false);
    const predicate = createSendAutomaticallyWhen({ clientTools: ['pick'], olderMessages: true });
    expect(predicate({ messages })).toBe(false);
    expect(predicate.takeOlderAnswers({ messages })).toBe(false);
  });

  it.each([
    ['no message', []],
    ['a user message', [{ role: 'user', parts: [text] }]],
    ['a message without parts', [{ role: 'assistant' }]],
    [
      'an answered message that is not the last',
      [...assistant(call('pay', 'approval-responded', responded(true))), { role: 'user', parts: [text] }],
    ],
  ] as [string, MessageLike[]][])('%s', (_name, messages) => {
    expect(sendAutomaticallyWhen({ messages })).toBe(false);
    expect(createSendAutomaticallyWhen()({ messages })).toBe(false);
  });
});

describe('with client tools', () => {
  it('knows tools that were named after it was made', () => {
    const names: string[] = [];
    const predicate = createSendAutomaticallyWhen({ clientTools: { names } });
    const messages = assistant(call('pick', 'output-available'));
    expect(predicate({ messages })).toBe(false);
    names.push('pick');
    expect(predicate({ messages })).toBe(true);
  });

  const asked = (id: string, approved: boolean) =>
    confirmation('approval-responded', {
      toolCallId: `ask-${id}`,
      input: { originalFunctionCall: { id } },
      ...responded(approved),
    });
  const photo = (state: string, more: Partial<Part> = {}) => call('take_photo', state, { toolCallId: 'c1', ...more });
  const cases: [string, boolean, Part[]][] = [
    ['native, approved, no output', false, [photo('approval-responded', responded(true))]],
    ['native, denied', true, [photo('approval-responded', responded(false))]],
    ['native, approved, output', true, [photo('output-available', responded(true))]],
    ['native, error of ours', true, [photo('output-error', responded(true))]],
    ['native, no approval, no output', false, [photo('input-available')]],
    ['native, no approval, output', true, [photo('output-available')]],
    ['native, settled as denied by the server', false, [photo('output-denied')]],
    ['native, output next to an open question', false, [photo('output-available'), call('pay', 'approval-requested')]],
    [
      'native, output next to an answered question',
      true,
      [photo('output-available'), call('pay', 'approval-responded', responded(false))],
    ],
    [
      'native, no output next to an answered question',
      false,
      [photo('input-available'), call('pay', 'approval-responded', responded(true))],
    ],
    [
      'native, one of two outputs',
      false,
      [photo('output-available'), call('take_photo', 'input-available', { toolCallId: 'c2' })],
    ],
    ['native, output and text behind it', false, [photo('output-available'), text]],
    ['adk, approved, no output', false, [photo('input-available'), asked('c1', true)]],
    ['adk, approved, output', true, [photo('output-available'), asked('c1', true)]],
    ['adk, denied', true, [photo('input-available'), asked('c1', false)]],
    ['adk, error of ours', true, [photo('output-error'), asked('c1', true)]],
    [
      'adk, another call answered, ours not asked and not done',
      false,
      [photo('input-available'), call('pay', 'input-available', { toolCallId: 'c2' }), asked('c2', true)],
    ],
    [
      'adk, another call answered, ours done',
      true,
      [photo('output-available'), call('pay', 'input-available', { toolCallId: 'c2' }), asked('c2', true)],
    ],
    [
      'adk, a confirmation that names no call, denied',
      true,
      [photo('input-available'), confirmation('approval-responded', responded(false))],
    ],
    ['adk, without a question, output', true, [photo('output-available')]],
    [
      'output next to a call that somebody else still runs',
      false,
      [photo('output-available'), call('weather', 'input-available', { toolCallId: 'c2' })],
    ],
    [
      'output next to a call that the model still writes',
      false,
      [photo('output-available'), call('weather', 'input-streaming', { toolCallId: 'c2' })],
    ],
    [
      'output next to a preliminary one',
      false,
      [photo('output-available'), call('weather', 'output-available', { toolCallId: 'c2', preliminary: true })],
    ],
    [
      'output next to one that is done',
      true,
      [photo('output-available'), call('weather', 'output-available', { toolCallId: 'c2' })],
    ],
    [
      'answered question next to a call that somebody else still runs',
      false,
      [call('pay', 'approval-responded', responded(true)), call('weather', 'input-available', { toolCallId: 'c2' })],
    ],
    ['a preliminary output of ours', false, [photo('output-available', { preliminary: true })]],
    ['adk, approved, a preliminary output', false, [photo('output-available', { preliminary: true }), asked('c1', true)]],
    [
      'adk, answered next to a preliminary output of somebody else',
      false,
      [
        call('weather', 'output-available', { toolCallId: 'c2', preliminary: true }),
        call('pay', 'input-available', { toolCallId: 'c3' }),
        asked('c3', true),
      ],
    ],
    [
      'adk, answered next to a call that the model still writes',
      false,
      [
        call('weather', 'input-streaming', { toolCallId: 'c2' }),
        call('pay', 'input-available', { toolCallId: 'c3' }),
        asked('c3', true),
      ],
    ],
    [
      'adk, answered next to one that is done',
      true,
      [
        call('weather', 'output-available', { toolCallId: 'c2' }),
        call('pay', 'input-available', { toolCallId: 'c3' }),
        asked('c3', true),
      ],
    ],
    // The server shows the output of its own tool with its last answer, and not before the approval is sent.
    [
      'adk, answered next to a call of the server',
      true,
      [
        call('weather', 'input-available', { toolCallId: 'c2' }),
        call('pay', 'input-available', { toolCallId: 'c3' }),
        asked('c3', true),
      ],
    ],
    ['nothing of ours next to a call that somebody else runs', false, [call('weather', 'input-available', { toolCallId: 'c2' })]],
  ];
  it.each(cases)('%s: %s', (_name, expected, parts) => {
    const predicate = createSendAutomaticallyWhen({ clientTools: ['take_photo'] });
    const messages = assistant(...parts);
    expect(predicate({ messages })).toBe(expected);
    expect(predicate({ messages }), 'the same state again').toBe(false);
    predicate.sendFailed();
    expect(predicate({ messages }), 'after a failed send').toBe(expected);
  });

  describe('answers in older messages', () => {
    const asked = call('pay', 'approval-requested', { toolCallId: 'c1', approval: { id: 'p' } });
    const answered = call('pay', 'approval-responded', { toolCallId: 'c1', ...responded(true) });
    const last: MessageLike = { id: 'a2', role: 'assistant', parts: [step, text] };
    const history = (part: Part, end = last) => [...assistant(part), { id: 'u2', role: 'user', parts: [text] }, end];

    it('are not sent where the conversation has superseded them', () => {
      const predicate = createSendAutomaticallyWhen();
      predicate({ messages: history(asked) });
      expect(predicate({ messages: history(answered) })).toBe(false);
      expect(predicate.takeOlderAnswers({ messages: history(answered) })).toBe(false);
    });

    it('are sent when they are given, once', () => {
      const predicate = createSendAutomaticallyWhen({ olderMessages: true });
      expect(predicate({ messages: history(asked) })).toBe(false);
      expect(predicate({ messages: history(answered) })).toBe(true);
      expect(predicate({ messages: history(answered) })).toBe(false);
      expect(predicate.takeOlderAnswers({ messages: history(answered) })).toBe(false);
    });

    it('given while another turn was streamed, they are left to be sent in the name of their own message', () => {
      const predicate = createSendAutomaticallyWhen({ olderMessages: true });
      predicate({ messages: history(asked) });
      const messages = history(answered, { ...last, parts: [step, text, text] });
      expect(predicate({ messages })).toBe(false);
      expect(predicate.takeOlderAnswers({ messages })).toBe(true);
      expect(predicate.takeOlderAnswers({ messages })).toBe(false);
      expect(predicate({ messages })).toBe(false);
    });
  });
});
