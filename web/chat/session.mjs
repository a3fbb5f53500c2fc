// One front end: the AI SDK's `Chat` on its own transport, with every request counted and kept.

import assert from 'node:assert/strict';
import { randomUUID } from 'node:crypto';

import * as ai6 from 'ai-6';
import * as ai7 from 'ai-7';
import { Chat as Chat3 } from 'ai-sdk-react-3';
import { Chat as Chat4 } from 'ai-sdk-react-4';

import { chunksOf } from './server.mjs';
import { socketTransport } from './socket-transport.mjs';

/** The clients that everything is tried with. */
export const KITS = [
  { name: 'v6', sdk: 6, Chat: Chat3, ai: ai6 },
  { name: 'v7', sdk: 7, Chat: Chat4, ai: ai7 },
  { name: 'v7 over a WebSocket', sdk: 7, Chat: Chat4, ai: ai7, overSocket: true },
];

export const CONFIRMATION = 'adk_request_confirmation';
const CLIENT_TOOLS = ['change_bgm', 'get_location', 'take_photo', 'pick_color'];

// No flow takes so long, on a machine that has much else to do either.
const WAIT_LIMIT_MS = 60_000;
// No flow has so many requests: a client that sends more is going round in circles.
const REQUEST_LIMIT = 12;
// So often in a row a chat must be found at rest: what it sends automatically it sends within one turn of the event loop.
const REST_CHECKS = 4;
// How long the server holds a request that lacks an output, and at most; each one without news is held twice as long.
const FIRST_HOLD_MS = 250;
const LONGEST_HOLD_MS = 5_000;
// The server counts whole milliseconds.
const CLOCK_MS = 5;

export class Session {
  /** `options`: id, messages, dialect, sdk (7: ask for v7's own chunks), body (further fields), limit, onToolCall. */
  constructor(server, kit, options = {}) {
    this.server = server;
    this.kit = kit;
    this.options = options;
    this.id = options.id ?? randomUUID();
    this.requests = [];
    this.isAdk = options.dialect === 'adk';
    const extras = { dialect: options.dialect, sdk: options.sdk };
    const body = Object.fromEntries(Object.entries(extras).filter(([, value]) => value !== undefined));
    this.query = Object.keys(body).length > 0 ? `?${new URLSearchParams(body)}` : '';
    this.predicate = this.isAdk ? adkPredicate : stockPredicate(kit.ai);
    this.chat = new kit.Chat({
      id: this.id,
      messages: options.messages,
      transport: (this.transport = this.#transport({ ...body, ...options.body })),
      sendAutomaticallyWhen: this.predicate,
      onToolCall: options.onToolCall && ((event) => options.onToolCall(event, this)),
      // An error is a state that tests look at.
      onError: () => {},
    });
  }

  /**
   * What the end of a connection is; over a socket a stop of the client's is one for the server too. Between two requests
   * there is nothing to stop: a post that the chat sends next does not arrive either.
   */
  async disconnect() {
    this.isCutOff = true;
    if (this.kit.overSocket) this.transport.close();
    else await this.chat.stop();
  }

  #transport(body) {
    const { server, kit } = this;
    if (kit.overSocket) return socketTransport(server, body, (request) => this.#keep(request));
    return new kit.ai.DefaultChatTransport({
      api: `${server.url}/api/chat${this.query}`,
      body,
      fetch: (url, init) => this.#fetch(url, init),
    });
  }

  /** What a reload of the page is: a new instance with the messages that the server lists, then (after `resume`) resume. */
  async reload({ resume = async () => {}, ...options } = {}) {
    const messages = await this.server.messages(this.id, this.query);
    const session = new Session(this.server, this.kit, { ...this.options, ...options, id: this.id, messages });
    session.resumed = resume().then(() => session.chat.resumeStream());
    return session;
  }

  async #fetch(url, init) {
    const method = init?.method ?? 'GET';
    const request = { method, body: init?.body && JSON.parse(init.body), text: '' };
    this.#keep(request);
    const response = await fetch(url, init);
    request.status = response.status;
    if (response.body === null) return response;
    const decoder = new TextDecoder();
    const keep = new TransformStream({
      transform: (piece, control) => {
        request.text += decoder.decode(piece, { stream: true });
        control.enqueue(piece);
      },
    });
    const { status, headers } = response;
    return new Response(response.body.pipeThrough(keep), { status, headers });
  }

  #keep(request) {
    if (this.isCutOff && request.method === 'POST') throw new Error('the connection is lost');
    this.requests.push(Object.assign(request, { sentAt: performance.now() }));
    if (this.posts.length > (this.options.limit ?? REQUEST_LIMIT)) {
      this.looped = true;
      throw new Error('too many requests: the client is going round in circles');
    }
  }

  get posts() {
    return this.requests.filter((request) => request.method === 'POST');
  }

  /** The chunks that each request brought. */
  get streams() {
    return this.posts.map((request) => chunksOf(request.text));
  }

  get message() {
    return this.chat.messages.at(-1);
  }

  get tools() {
    return toolsOf(this.message);
  }

  /** What the assistant has said in its last message. */
  get text() {
    return this.message?.role === 'assistant' ? textOf(this.message) : '';
  }

  tool(name) {
    const found = this.tools.filter((part) => nameOf(part) === name);
    assert.equal(found.length, 1, `${found.length} parts of ${name} in ${show(this.message)}`);
    return found[0];
  }

  /** The questions that wait: the tool's name and the approval's id. */
  get questions() {
    return this.tools
      .filter((part) => part.state === 'approval-requested')
      .map((part) => ({
        tool: nameOf(part) === CONFIRMATION ? part.input.originalFunctionCall.name : nameOf(part),
        id: part.approval.id,
      }));
  }

  /** Sends what the user wrote and waits until the chat is at rest. */
  async say(text, options) {
    void this.chat.sendMessage({ text, ...options });
    await this.rest();
  }

  /** Answers one question without waiting for what comes of it. */
  answer(tool, verdict) {
    const question = this.questions.find((question) => question.tool === tool);
    assert.ok(question, `no question about ${tool} in ${show(this.message)}`);
    const answer = typeof verdict === 'object' ? verdict : { approved: verdict };
    return this.chat.addToolApprovalResponse({ id: question.id, ...answer });
  }

  output(tool, output) {
    return this.chat.addToolOutput({ tool, toolCallId: this.tool(tool).toolCallId, output });
  }

  /** Waits until nothing runs and the client has nothing to send automatically. */
  async rest(limit) {
    // A resume shows no status before its answer has come.
    await this.resumed;
    let seen = 0;
    await this.until(
      () => {
        const { status } = this.chat;
        seen = status === 'ready' || status === 'error' ? seen + 1 : 0;
        return seen >= REST_CHECKS;
      },
      'the chat to come to rest',
      limit,
    );
    assert.ok(!this.looped, `the client went round in circles:\n${show(this.message)}`);
  }

  async until(condition, what, limit = WAIT_LIMIT_MS) {
    for (const end = Date.now() + limit; !(await condition()); ) {
      if (Date.now() > end) {
        const { status, error } = this.chat;
        throw new Error(`waited too long for ${what}: ${status} ${error ?? ''}\n${show(this.chat.messages)}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 5));
    }
  }

  /** What holds for every chat at rest: nothing doubled, nothing left to send, and the server shows the same. */
  async check({ posts, sameAsServer = true } = {}) {
    assert.equal(this.chat.status, 'ready', `${this.chat.error}`);
    const ids = this.chat.messages.map((message) => message.id);
    assert.equal(new Set(ids).size, ids.length, `a message twice: ${ids}`);
    for (const message of this.chat.messages) {
      const calls = toolsOf(message).map((part) => part.toolCallId);
      assert.equal(new Set(calls).size, calls.length, `a call twice in ${show(message)}`);
      const unfinished = message.parts.find((part) => part.state === 'streaming' || part.state === 'input-streaming');
      assert.equal(unfinished, undefined, show(unfinished));
    }
    assert.equal(this.predicate({ messages: this.chat.messages }), false, 'the client would send again');
    if (posts !== undefined) assert.equal(this.posts.length, posts, `requests:\n${this.#summary()}`);
    if (sameAsServer) {
      const stored = await this.server.messages(this.id, this.query);
      assert.deepEqual(comparable(this.chat.messages), comparable(stored));
    }
  }

  /** Between two posts from `first` on the server held the earlier one, which keeps the client from going round in circles. */
  checkHolds(first, { doubled = true } = {}) {
    const sent = this.posts.slice(first).map(({ sentAt }) => sentAt);
    for (const [index, at] of sent.slice(1).entries()) {
      const hold = doubled ? Math.min(FIRST_HOLD_MS * 2 ** index, LONGEST_HOLD_MS) : FIRST_HOLD_MS;
      const passed = at - sent[index];
      assert.ok(passed >= hold - CLOCK_MS, `held for ${passed} ms, not ${hold} ms:\n${this.#summary()}`);
    }
  }

  #summary() {
    return this.posts
      .map(({ body, text }) => {
        const states = toolsOf(body.messages.at(-1)).map((part) => `${nameOf(part)} ${part.state}`);
        return `  ${body.trigger} [${states}] -> ${chunksOf(text).map((chunk) => chunk.type)}`;
      })
      .join('\n');
  }
}

/** Both of the SDK's helpers, as its documentation joins them. */
function stockPredicate(ai) {
  return (state) =>
    ai.lastAssistantMessageIsCompleteWithApprovalResponses(state) || ai.lastAssistantMessageIsCompleteWithToolCalls(state);
}

/** The checks of docs/adr/0009 in their order, on the last step; an approved client tool waits for its output. */
function adkPredicate({ messages }) {
  const message = messages.at(-1);
  if (message?.role !== 'assistant') return false;
  const parts = message.parts.slice(message.parts.findLastIndex((part) => part.type === 'step-start') + 1);
  if (parts.some((part) => part.type === 'text')) return false;
  const tools = toolsOf({ parts });
  const confirmations = tools.filter((part) => nameOf(part) === CONFIRMATION);
  const others = tools.filter((part) => nameOf(part) !== CONFIRMATION);
  if (!confirmations.some((part) => part.state === 'approval-responded')) return false;
  if (confirmations.some((part) => part.state === 'approval-requested')) return false;
  if (others.some((part) => part.state === 'output-error')) return false;
  const approved = (call) =>
    confirmations.some((part) => part.input.originalFunctionCall.id === call.toolCallId && part.approval?.approved);
  return !others.some((part) => CLIENT_TOOLS.includes(nameOf(part)) && approved(part) && part.state !== 'output-available');
}

export function toolsOf(message) {
  return (message?.parts ?? []).filter((part) => part.type.startsWith('tool-') || part.type === 'dynamic-tool');
}

export function nameOf(part) {
  return part.toolName ?? part.type.slice('tool-'.length);
}

export function textOf(message) {
  return (message?.parts ?? [])
    .filter((part) => part.type === 'text')
    .map((part) => part.text)
    .join(' ');
}

export function show(value) {
  return JSON.stringify(value, undefined, 1);
}

/** Messages as JSON, without what has no meaning: the words in which "nothing" is written. */
export function comparable(messages) {
  return JSON.parse(JSON.stringify(messages), (_key, value) => {
    if (value !== null && typeof value === 'object' && !Array.isArray(value)) {
      const { metadata, ...rest } = value;
      const empty = metadata === null || metadata === undefined || Object.keys(metadata).length === 0;
      return Array.isArray(value.parts) && empty ? rest : value;
    }
    return value;
  });
}
