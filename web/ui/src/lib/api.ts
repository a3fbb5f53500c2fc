/** The server's endpoints, as functions. Every address is relative to the page's own. */
import type { GivenCredential } from '@adk-bridge/client';
import type { UIMessage } from 'ai';

import type { Budget } from './budget';
import { learnServerTime } from './clock';
import type { Session } from './session';
import { createKeptStore } from './store';

export interface AgentTool {
  name: string;
  description: string;
  inputSchema: unknown;
  /** What the front end's answer looks like, where the configuration tells. */
  outputSchema?: unknown;
  runsOn: 'server' | 'client';
  needsApproval: boolean;
}

export interface AgentInfo {
  id: string;
  name: string;
  /** An ADK server does not tell it. */
  model: string | null;
  liveModel: string | null;
  modalities: string[];
  tools: AgentTool[];
  approvalTimeoutMs: number;
  /** Whether it answers where nobody chose another one. */
  default: boolean;
  status: 'ready' | 'unreachable';
  /** Changes when the server is restarted. */
  instance: string;
}

export interface ChatRow {
  id: string;
  title: string | null;
  createdAt: number;
  updatedAt: number;
  /** Who answers; nobody before the first message. */
  agent: string | null;
  pendingApprovals: number;
  /** The client tools whose outputs are awaited. */
  pendingOutputs: string[];
}

/** Some chats, and the address of those behind them. */
export interface ChatPage {
  rows: ChatRow[];
  next: string | undefined;
}

export interface StoredChat extends Omit<ChatRow, 'pendingApprovals' | 'pendingOutputs'> {
  messages: UIMessage[];
}

export interface AuditRow {
  id: number;
  at: number;
  kind: string;
  toolCallId: string | null;
  toolName: string | null;
  approvalId: string | null;
  reason: string | null;
  transport: string | null;
  dialect: string | null;
}

/** A refusal of the server's, with its code and a message that says what to do. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
  ) {
    super(message);
  }
}

/** The key that a server with `auth.api_keys` asks for; empty where it asks for none. */
export const apiKey = createKeptStore('adk-bridge.key', '', (value): value is string => typeof value === 'string');

/** Where a file of the server's is for this page: the server names it from its own root. */
export function localUrl(url: string): string {
  return url.startsWith('/api/') ? url.slice(1) : url;
}

/** `fetch` with the key, for the chat transport too. */
export const authorizedFetch: typeof fetch = (input, init) => {
  const key = apiKey.get();
  if (key === '') return fetch(input, init);
  const headers = new Headers(init?.headers);
  headers.set('authorization', `Bearer ${key}`);
  return fetch(input, { ...init, headers });
};

/** How many pages of an audit are read at once; the next turn brings those behind them. */
const MAX_AUDIT_PAGES = 20;

/** The query of the page behind an answer. */
function nextOf(response: Response): string | undefined {
  return /<([^>]*)>; rel="next"/.exec(response.headers.get('link') ?? '')?.[1];
}

export const api = {
  session: () => json<Session>('api/session'),
  /** Ends the login; where the user can log out of the provider, too. */
  logOut: async (everywhere: boolean): Promise<{ redirect: string | null }> => {
    const path = everywhere ? 'logout?everywhere=true' : 'logout';
    return (await checked(await authorizedFetch(path, { method: 'POST' }))).json();
  },
  agents: () => json<AgentInfo[]>('api/agents'),
  budget: () => json<Budget>('api/budget'),
  chats: async (query = ''): Promise<ChatPage> => {
    const response = await checked(await authorizedFetch(`api/chats${query}`));
    return { rows: (await response.json()) as ChatRow[], next: nextOf(response) };
  },
  /** A chat's messages; `null` for one that the server has not seen. */
  chat: (id: string, dialect: string) =>
    json<StoredChat>(`api/chats/${encodeURIComponent(id)}?dialect=${dialect}`).catch((problem: unknown) => {
      if (problem instanceof Refusal && problem.status === 404) return null;
      throw problem;
    }),
  rename: (id: string, title: string) => send('PATCH', `api/chats/${encodeURIComponent(id)}`, { title }),
  delete: (id: string) => send('DELETE', `api/chats/${encodeURIComponent(id)}`),
  stop: (id: string) => send('POST', `api/chat/${encodeURIComponent(id)}/stop`),
  /** Hands over a key or a password that an agent asked for. */
  grant: (callId: string, given: GivenCredential) => send('POST', `api/credentials/${encodeURIComponent(callId)}`, given),
  /** The audit rows of a chat behind one that is known; none for a chat that the server has not seen. */
  audit: async (id: string, after = 0): Promise<AuditRow[]> => {
    const rows: AuditRow[] = [];
    let query: string | undefined = `?chat=${encodeURIComponent(id)}&after=${after}`;
    try {
      for (let page = 0; query !== undefined && page < MAX_AUDIT_PAGES; page += 1) {
        const response = await checked(await authorizedFetch(`api/audit${query}`));
        rows.push(...((await response.json()) as AuditRow[]));
        query = nextOf(response);
      }
    } catch (problem) {
      if (problem instanceof Refusal && problem.status === 404) return [];
      throw problem;
    }
    return rows;
  },
  upload: async (chat: string, file: Blob): Promise<{ url: string; mediaType: string }> => {
    const path = `api/files?chat=${encodeURIComponent(chat)}`;
    const headers = { 'content-type': file.type || 'application/octet-stream' };
    return (await checked(await authorizedFetch(path, { method: 'POST', body: file, headers }))).json();
  },
};

async function json<T>(path: string): Promise<T> {
  return (await checked(await authorizedFetch(path))).json();
}

async function send(method: string, path: string, body?: unknown): Promise<void> {
  const init: RequestInit = { method };
  if (body !== undefined) {
    init.headers = { 'content-type': 'application/json' };
    init.body = JSON.stringify(body);
  }
  await checked(await authorizedFetch(path, init));
}

async function checked(response: Response): Promise<Response> {
  learnServerTime(response.headers.get('date'));
  if (response.ok) return response;
  throw refusalOf(response.status, await response.text());
}

/** Reads the server's form of a refusal; anything else (a proxy's page) is shortened. */
export function refusalOf(status: number, text: string): Refusal {
  try {
    const { error } = JSON.parse(text) as { error: { code: string; message: string } };
    return new Refusal(status, error.code, error.message);
  } catch {
    return new Refusal(status, 'unknown', text.slice(0, 200) || `HTTP ${status}`);
  }
}
