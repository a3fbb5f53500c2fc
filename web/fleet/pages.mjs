// Pages with nothing but stock parts, and pages with our library: each is a `Chat` with its transport, with what it was sent.

import WebSocket from 'ws';

import * as ai600 from 'ai-6.0.0';
import { Chat as Chat300 } from 'ai-sdk-react-3.0.0';

import { KITS } from '../chat/session.mjs';
import { buildUseChatOptions, followServerTurns } from '../client/dist/index.js';

const [v6, v7, v7Socket] = KITS;

/**
 * `resumes`: whether the chat may resume in place. 6.0.0 adds a replay to the message that it has, so that its users reload.
 * `connect` makes the chat; `library` marks those that get over a lost connection on their own.
 */
export const PAGES = [
  { name: 'v6.0.0', sdk: 6, resumes: false, Chat: Chat300, ai: ai600, connect: overHttp },
  { name: 'v6', sdk: 6, resumes: true, Chat: v6.Chat, ai: v6.ai, connect: overHttp },
  { name: 'v7', sdk: 7, resumes: true, Chat: v7.Chat, ai: v7.ai, connect: overHttp },
  { name: 'v7 over a WebSocket', sdk: 7, resumes: true, Chat: v7Socket.Chat, ai: v7Socket.ai, connect: overSocket },
  { name: 'library over /live', sdk: 7, resumes: true, library: true, Chat: v7.Chat, ai: v7.ai, connect: overLive },
  { name: 'library over HTTP, v6', sdk: 6, resumes: true, library: true, Chat: v6.Chat, ai: v6.ai, connect: overLibrary },
  { name: 'library over HTTP', sdk: 7, resumes: true, library: true, Chat: v7.Chat, ai: v7.ai, connect: overLibrary },
];

/** The tools that pages run. */
export const CLIENT_TOOLS = ['pick_color', 'change_bgm'];

/** Makes a chat for `person`, who learns of every request (`person.asked`) and keeps its answer in it. */
export function openPage(page, person, messages) {
  return page.connect(page, person, messages);
}

function init(page, person, messages, transport) {
  const { ai } = page;
  const stock = (state) =>
    ai.lastAssistantMessageIsCompleteWithApprovalResponses(state) || ai.lastAssistantMessageIsCompleteWithToolCalls(state);
  return {
    id: person.id,
    messages,
    transport,
    sendAutomaticallyWhen: stock,
    onError: () => {},
  };
}

function overHttp(page, person, messages) {
  const { api, body } = person;
  const transport = new page.ai.DefaultChatTransport({
    api: `${api.url}/api/chat`,
    prepareReconnectToStreamRequest: ({ id }) => ({ api: `${api.url}/api/chat/${id}/stream${person.query}` }),
    headers: api.headers,
    body,
    fetch: (url, options) => keptFetch(person, url, options),
  });
  return { chat: new page.Chat(init(page, person, messages, transport)), close: () => {} };
}

async function keptFetch(person, url, options) {
  const request = { method: options?.method ?? 'GET', body: options?.body && JSON.parse(options.body), text: '', ended: false };
  person.asked(request);
  try {
    const response = await fetch(url, options);
    request.status = response.status;
    person.statuses.push(response.status);
    if (response.body === null) return response;
    const decoder = new TextDecoder();
    const keep = new TransformStream({
      transform: (piece, control) => {
        request.text += decoder.decode(piece, { stream: true });
        person.received(request);
        control.enqueue(piece);
      },
      flush: () => void (request.ended = true),
    });
    const { status, headers } = response;
    return new Response(response.body.pipeThrough(keep), { status, headers });
  } catch (problem) {
    request.problem = String(problem?.cause ?? problem);
    throw problem;
  }
}

function overSocket(page, person, messages) {
  const requests = new Map();
  const { api } = person;
  class KeptSocket extends WebSocket {
    constructor(url, protocols) {
      super(url, protocols, { headers: api.headers });
      this.on('message', (data) => take(JSON.parse(String(data))));
      this.on('error', () => {});
    }

    send(text) {
      const { type, requestId, body: extras, ...frame } = JSON.parse(text);
      if (type !== 'abort') {
        const request = { method: type === 'send' ? 'POST' : 'GET', body: { ...frame, ...extras }, text: '', ended: false };
        requests.set(requestId, request);
        person.asked(request);
      }
      super.send(text);
    }
  }
  const take = ({ type, requestId, chunk, errorText }) => {
    const request = requests.get(requestId);
    if (request === undefined) return;
    if (type === 'start') request.status = 200;
    if (type === 'no-active') request.status = 204;
    if (type === 'error') Object.assign(request, { status: 400, problem: errorText });
    if (type === 'end' || type === 'no-active' || type === 'error') request.ended = true;
    if (type === 'chunk') {
      request.text += `data: ${JSON.stringify(chunk)}\n\n`;
      person.received(request);
    }
  };
  const transport = new page.ai.WebSocketChatTransport({ url: `${api.url}/api/chat`, body: person.body, webSocket: KeptSocket });
  return { chat: new page.Chat(init(page, person, messages, transport)), close: () => transport.close() };
}

/** As in a browser, where an error that nobody listens to ends nothing. */
class QuietSocket extends WebSocket {
  constructor(...args) {
    super(...args);
    this.on('error', () => {});
  }
}

function overLibrary(page, person, messages) {
  const { api, dialect, id } = person;
  const options = {
    mode: 'sse',
    id,
    messages,
    baseUrl: api.url,
    headers: api.headers,
    dialect,
    sdk: page.sdk,
    clientTools: CLIENT_TOOLS,
  };
  return { chat: new page.Chat({ ...buildUseChatOptions(options), onError: () => {} }), close: () => {} };
}

function overLive(page, person, messages) {
  const { api } = person;
  const options = buildUseChatOptions({
    mode: 'live',
    id: person.id,
    messages,
    baseUrl: api.url,
    headers: api.headers,
    dialect: person.dialect,
    sdk: page.sdk,
    clientTools: CLIENT_TOOLS,
    WebSocket: QuietSocket,
  });
  const chat = new page.Chat({ ...options, onError: () => {} });
  const following = followServerTurns(chat, options.live);
  const stale = options.live.on('stale', () => void person.loadAgain(chat));
  return {
    chat,
    live: options.live,
    close: () => {
      stale();
      following.stop();
      options.live.close();
    },
  };
}
