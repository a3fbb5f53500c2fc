/** The seeds' own tests with the AI SDK's `Chat` against the real server: the bare predicate, and both answers alike. */

import { Chat } from '@ai-sdk/react';
import { DefaultChatTransport, type UIMessage } from 'ai';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { WebSocket } from 'ws';

import { buildUseChatOptions, sendAutomaticallyWhen } from '../src/index.js';
import { isToolPart, type ToolPart } from '../src/tool-parts.js';
import { startServer, WAIT_LIMIT_MS, type Server } from './server.js';

const PAY = 'call process_payment {"amount":50,"recipient":"Hanako"}';
const COLOR = 'call pick_color {}';

let server: Server;
beforeAll(async () => {
  server = await startServer();
});
afterAll(() => server.stop());

/** A chat that counts its requests. */
function open(dialect: 'native' | 'adk') {
  const requests: UIMessage[][] = [];
  const chat = new Chat({
    transport: new DefaultChatTransport({
      api: `${server.url}/api/chat`,
      body: { dialect },
      fetch: (url, init) => {
        requests.push((JSON.parse(String(init?.body)) as { messages: UIMessage[] }).messages);
        return fetch(url, init);
      },
    }),
    sendAutomaticallyWhen,
  });
  const tools = () => (chat.lastMessage?.parts ?? []).filter((part) => isToolPart(part)) as ToolPart[];
  const answer = (approved: boolean) => {
    const id = tools().find(({ state }) => state === 'approval-requested')?.approval?.id ?? '';
    return chat.addToolApprovalResponse({ id, approved });
  };
  const output = (name: string, output: unknown) => {
    const toolCallId = tools().find(({ type }) => type === `tool-${name}`)?.toolCallId ?? '';
    return chat.addToolOutput({ tool: name, toolCallId, output });
  };
  const answered = () =>
    vi.waitFor(() => expect(chat.lastMessage?.parts.at(-1)).toMatchObject({ type: 'text', state: 'done' }), WAIT_LIMIT_MS);
  const ready = () => vi.waitFor(() => expect(chat.status).toBe('ready'), WAIT_LIMIT_MS);
  return { chat, requests, answer, output, answered, ready };
}

describe.each(['native', 'adk'] as const)('%s', (dialect) => {
  it.each([true, false])('an answer (%s) alone is sent', async (approved) => {
    const { chat, requests, answer, answered } = open(dialect);
    await chat.sendMessage({ text: PAY });
    await answer(approved);
    await answered();
    expect(requests).toHaveLength(2);
  });

  it('an output alone changes the message and is not sent', async () => {
    const { chat, requests, output, ready } = open(dialect);
    await chat.sendMessage({ text: COLOR });
    await output('pick_color', 'teal');
    await ready();
    expect(chat.lastMessage?.parts.at(-1)).toMatchObject({ state: 'output-available', output: 'teal' });
    expect(requests).toHaveLength(1);
  });

  it('output and answer are sent once, together', async () => {
    const { chat, requests, answer, output, answered } = open(dialect);
    await chat.sendMessage({ text: `${PAY} && ${COLOR}` });
    await output('pick_color', 'teal');
    expect(requests).toHaveLength(1);
    await answer(true);
    await answered();
    expect(requests).toHaveLength(2);
    const states = requests[1]?.at(-1)?.parts.flatMap((part) => (isToolPart(part) ? [(part as ToolPart).state] : []));
    expect(states).toContain('output-available');
    expect(states).toContain('approval-responded');
  });

  it.each([true, false])('two confirmations in a row (%s) are three requests, and text comes last', async (approved) => {
    const { chat, requests, answer, answered, ready } = open(dialect);
    await chat.sendMessage({ text: 'search the database and update it' });
    await answer(approved);
    await vi.waitFor(() => expect(requests).toHaveLength(2), WAIT_LIMIT_MS);
    await ready();
    if (dialect === 'adk') expect(chat.lastMessage?.parts.every(({ type }) => type !== 'text')).toBe(true);
    await answer(approved);
    await answered();
    expect(requests).toHaveLength(3);
    expect(chat.messages).toHaveLength(2);
  });
});

describe.each([
  ['sse', 'native'],
  ['sse', 'adk'],
  ['live', 'native'],
  ['live', 'adk'],
] as const)('mode %s, dialect %s', (mode, dialect) => {
  it('approving and denying take the same steps to the same request', async () => {
    const approved = await stepsOf(mode, dialect, true);
    expect(approved.filter((step) => step === 'request')).toHaveLength(1);
    expect(await stepsOf(mode, dialect, false)).toEqual(approved);
  });
});

/** What happens in a chat from an answer to the first word about it: statuses, changes of the messages, requests. */
async function stepsOf(mode: 'sse' | 'live', dialect: 'native' | 'adk', approved: boolean): Promise<string[]> {
  const steps: string[] = [];
  const request = (body: unknown) => {
    if (String(body).includes('"messages":')) steps.push('request');
  };
  const { live, ...init } = buildUseChatOptions({
    mode,
    dialect,
    id: crypto.randomUUID(),
    baseUrl: server.url,
    fetch: (url, init) => {
      request(init?.body);
      return fetch(url, init);
    },
    WebSocket: class extends WebSocket {
      override send(data: string): void {
        request(data);
        super.send(data);
      }
    } as never,
  });
  const chat = new Chat(init);
  await chat.sendMessage({ text: PAY });
  const asked = (chat.lastMessage?.parts ?? []).find(
    (part) => isToolPart(part) && (part as ToolPart).state === 'approval-requested',
  ) as ToolPart;
  steps.length = 0;
  chat['~registerStatusCallback'](() => steps.push(chat.status));
  chat['~registerMessagesCallback'](() => {
    if (chat.status !== 'streaming') steps.push('messages');
  });
  await chat.addToolApprovalResponse({ id: asked.approval?.id ?? '', approved });
  steps.push('answered');
  await vi.waitFor(() => expect(chat.lastMessage?.parts.at(-1)).toMatchObject({ type: 'text', state: 'done' }), WAIT_LIMIT_MS);
  live?.close();
  return steps.slice(0, steps.indexOf('streaming'));
}
