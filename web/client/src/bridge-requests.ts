/** The requests to adk-bridge that are no chat: stopping a turn, loading a chat, handing in an output, getting a ticket. */

import type { UIMessage } from 'ai';

/** Where the bridge is and how it is asked. */
export interface BridgeAddress {
  /** Origin and path before `/api`; the page's own origin if left out. */
  baseUrl?: string | undefined;
  /** Headers of every request, such as `Authorization`; a function is asked each time. */
  headers?: HeadersSource | undefined;
  /** Replaces `fetch`. */
  fetch?: typeof globalThis.fetch | undefined;
  /** Cookies of other origins; as in `fetch`. */
  credentials?: RequestCredentials | undefined;
}

/** Headers, or a function that makes them for each request. */
export type HeadersSource = HeadersRecord | (() => HeadersRecord | Promise<HeadersRecord>);

type HeadersRecord = Record<string, string>;

/** Which of the two wire forms a chat uses. */
export type Dialect = 'native' | 'adk';

/** A refusal of the bridge. */
export class BridgeError extends Error {
  override readonly name = 'BridgeError';
  readonly status: number;
  /** The bridge's word for it, such as `not_found`. */
  readonly code: string | undefined;

  constructor(status: number, code: string | undefined, message: string) {
    super(message);
    this.status = status;
    this.code = code;
  }
}

/** Stops the running turn of a chat; its streams then end on their own. */
export async function stopTurn(address: BridgeAddress, chatId: string): Promise<void> {
  await request(address, `/api/chat/${encodeURIComponent(chatId)}/stop`, { method: 'POST' });
}

/** Sends the output of a client tool, or its failure, outside of the chat's own requests. */
export async function sendToolOutput(
  address: BridgeAddress,
  chatId: string,
  result: { toolCallId: string } & ({ output: unknown } | { errorText: string }),
): Promise<void> {
  await request(address, `/api/chat/${encodeURIComponent(chatId)}/tool-output`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(result),
  });
}

/** Loads the messages of a chat that have ended or wait for an answer; none for a chat that the bridge does not know. */
export async function loadMessages<Message extends UIMessage = UIMessage>(
  address: BridgeAddress,
  chatId: string,
  dialect: Dialect = 'native',
): Promise<Message[]> {
  try {
    const response = await request(address, `/api/chats/${encodeURIComponent(chatId)}?dialect=${dialect}`);
    return ((await response.json()) as { messages: Message[] }).messages;
  } catch (error) {
    if (error instanceof BridgeError && error.status === 404) return [];
    throw error;
  }
}

/** What an ADK server has shown itself to be. */
export interface AdkServer {
  /** What users see, such as `ADK for Python 2.13.0`. */
  name: string;
  language: 'python' | 'typescript' | 'go' | 'java' | 'unknown';
  version: string | null;
  /** Where its endpoints are below its address. */
  prefix: string | null;
  /** Whether it can be spoken with. */
  voice: boolean;
  /** Whether it tells the tools of its apps. */
  appInfo: boolean;
  /** Whether a new session has the id that the bridge wants. */
  sessionIds: boolean;
  /** How a new session learns what was said before. */
  restoring: 'events' | 'message';
}

/** One of the bridge's agents, as `GET /api/agents` tells of it. */
export interface BridgeAgent {
  id: string;
  /** What users see. */
  name: string;
  kind: string;
  model: string | null;
  liveModel: string | null;
  modalities: string[];
  tools: {
    name: string;
    description: string;
    inputSchema: unknown;
    outputSchema?: unknown;
    runsOn: 'server' | 'client';
    needsApproval: boolean;
  }[];
  /** What it cannot do: each is a phrase that follows "it cannot". */
  limitations: string[];
  /** The ADK server that it is an app of, once that has been found out. */
  server: AdkServer | null;
  /** Whether it answers in chats that name no agent. */
  default: boolean;
  status: 'ready' | 'unreachable';
}

/** Lists the bridge's agents, the default first. */
export async function listAgents(address: BridgeAddress): Promise<BridgeAgent[]> {
  const response = await request(address, '/api/agents');
  return (await response.json()) as BridgeAgent[];
}

/** Gets a one-time ticket for a WebSocket, which cannot carry an `Authorization` header in a browser. */
export async function fetchTicket(address: BridgeAddress): Promise<string> {
  const response = await request(address, '/api/ticket', { method: 'POST' });
  return ((await response.json()) as { ticket: string }).ticket;
}

/** One request to the bridge; a refusal is thrown. */
export async function request(address: BridgeAddress, path: string, init: RequestInit = {}): Promise<Response> {
  const { baseUrl = '', headers, credentials } = address;
  const ask = address.fetch ?? globalThis.fetch;
  const own = typeof headers === 'function' ? await headers() : headers;
  const response = await ask(baseUrl + path, {
    ...init,
    headers: { ...own, ...(init.headers as HeadersRecord | undefined) },
    ...(credentials !== undefined && { credentials }),
  });
  if (!response.ok) throw await refusal(response);
  return response;
}

async function refusal(response: Response): Promise<BridgeError> {
  const text = await response.text();
  try {
    const { error } = JSON.parse(text) as { error?: { code?: string; message?: string } };
    return new BridgeError(response.status, error?.code, error?.message ?? text);
  } catch {
    return new BridgeError(response.status, undefined, text || `the bridge answered ${response.status}`);
  }
}
