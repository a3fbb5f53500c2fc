// The scripted agent of python/adk_agents for Google's server in TypeScript: real tools, and a model that does what the
// user's last text says.

import { BaseLlm, FunctionTool, LlmAgent, LongRunningFunctionTool } from '@google/adk';
import { z } from 'zod';

const PIXEL = 'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR4nGP4z8DwHwAFAAH/iZk9HQAAAABJRU5ErkJggg==';

export class ScriptedModel extends BaseLlm {
  constructor() {
    super({ model: 'scripted' });
  }

  async *generateContentAsync({ contents }, stream = false) {
    const at = contents.findLastIndex(({ role, parts }) => role === 'user' && parts?.some((part) => part.text));
    const script = at < 0 ? 'say nothing' : contents[at].parts.filter((part) => part.text).at(-1).text;
    const steps = script.split(' then ');
    const after = contents.slice(at + 1);
    const done = after.filter(({ role, parts }) => role === 'model' && parts?.some((part) => part.functionCall)).length;
    const step = steps[done];
    if (step === undefined) return yield* say(resultsOf(after), stream);
    const [word, ...rest] = step.split(' ');
    const words = rest.join(' ');
    if (word === 'call') return yield final(step.split(' && ').map(callOf));
    if (word === 'think') {
      const [thought, answer] = words.split(' | ');
      if (stream) yield { content: { role: 'model', parts: [{ text: thought, thought: true }] }, partial: true };
      return yield final([{ text: thought, thought: true }, { text: answer }]);
    }
    if (word === 'fail') throw new Error('the scripted model fails');
    if (word === 'history') return yield* say(historyOf(contents), stream);
    yield* say(word === 'say' ? words : `You said: ${step}`, stream);
  }

  async connect() {
    throw new Error('nobody speaks with it');
  }
}

async function* say(words, stream) {
  if (stream) {
    for (const word of words.split(' ')) yield { content: { role: 'model', parts: [{ text: `${word} ` }] }, partial: true };
  }
  yield final([{ text: stream ? `${words} ` : words }]);
}

function final(parts) {
  const usageMetadata = { promptTokenCount: 7, candidatesTokenCount: 3, totalTokenCount: 10 };
  return { content: { role: 'model', parts }, partial: false, finishReason: 'STOP', usageMetadata };
}

function callOf(text) {
  const [, name, args] = /^(?:call )?(\w+)\s*(\{.*\})?\s*$/s.exec(text.trim());
  return { functionCall: { name, args: JSON.parse(args ?? '{}') } };
}

function resultsOf(contents) {
  const results = contents.flatMap(({ parts }) => (parts ?? []).filter((part) => part.functionResponse));
  const lines = results.map(({ functionResponse: { name, response } }) => `${name}=${JSON.stringify(response)}`);
  return `Results: ${lines.join('; ')}`;
}

function historyOf(contents) {
  const lines = contents.slice(0, -1).flatMap(({ role, parts }) => parts.map((part) => `${role}:${shortOf(part)}`));
  // A conversation that was told in the message itself is before its last text.
  const told = contents
    .at(-1)
    .parts.slice(0, -1)
    .map((part) => `told:${shortOf(part)}`);
  return [...lines, ...told].join(' | ') || 'nothing';
}

function shortOf({ text, functionCall, functionResponse, inlineData }) {
  if (text) return text.trim();
  if (functionCall) return `call ${functionCall.name}`;
  if (functionResponse) return `${functionResponse.name}=${JSON.stringify(functionResponse.response)}`;
  return inlineData?.mimeType ?? 'nothing';
}

export const tool = (name, description, parameters, execute, more = {}) =>
  new FunctionTool({ name, description, parameters: z.object(parameters), execute, ...more });

const getWeather = tool('get_weather', 'The weather of a city.', { city: z.string() }, ({ city }) => ({
  city,
  weather: 'sunny',
}));

export const rootAgent = new LlmAgent({
  name: 'scripted',
  model: new ScriptedModel(),
  description: 'Plays by the script that the user writes.',
  instruction: 'Play by the script.',
  subAgents: [new LlmAgent({ name: 'helper', model: new ScriptedModel(), description: 'Helps.', tools: [getWeather] })],
  tools: [
    getWeather,
    tool(
      'pay',
      'Pays somebody; a human confirms first.',
      { amount: z.number(), recipient: z.string().optional() },
      ({ amount, recipient = 'nobody' }) => ({ paid: amount, recipient }),
      { requireConfirmation: true },
    ),
    tool('search', 'Searches; a human confirms first.', { query: z.string() }, ({ query }) => ({ found: query }), {
      requireConfirmation: true,
    }),
    new LongRunningFunctionTool({
      name: 'pick_color',
      description: 'Lets the user pick a color; the front end answers.',
      parameters: z.object({ question: z.string().optional() }),
      execute: () => undefined,
    }),
    tool('explode', 'Raises.', { reason: z.string().optional() }, ({ reason = 'boom' }) => {
      throw new Error(`the tool exploded: ${reason}`);
    }),
    tool('save_note', 'Saves a picture and a text as artifacts.', { note: z.string() }, async ({ note }, context) => {
      await context.saveArtifact('picture.png', { inlineData: { data: PIXEL, mimeType: 'image/png' } });
      const data = Buffer.from(note).toString('base64');
      return { version: await context.saveArtifact('note.txt', { inlineData: { data, mimeType: 'text/plain' } }) };
    }),
  ],
});
