/**
 * What an ADK agent asks its user to grant: a login at a provider, or a key or password.
 *
 * ```
 *   kind oauth2, oidc             authorize(part.input): a window of the provider ─┐
 *   kind apiKey, basic, bearer    sendCredential(address, toolCallId, what)        ├▶ the bridge tells the agent, which goes on
 *   any, not granted              sendCredential(address, toolCallId, {granted: false}) ┘
 * ```
 *
 * No secret passes through the chat. To show how the agent goes on, resume the chat's stream, or add an output to the
 * call: the bridge puts the real one in its place.
 */

import { request, type BridgeAddress } from './bridge-requests.js';

/** The input of such a call. */
export interface CredentialRequest {
  kind?: 'oauth2' | 'oidc' | 'apiKey' | 'basic' | 'bearer' | 'http';
  /** The host of the provider, where the agent tells it. */
  provider?: string;
  scopes?: string[];
  /** Where a login begins; only for `oauth2` and `oidc`. */
  authorizeUrl?: string;
  /** Until when it can be granted, in milliseconds since 1970. */
  expiresAt?: number;
  /** The call that waits for it, if it is one of this chat. */
  functionCallId?: string;
}

/** What a user types in, or a refusal. */
export type GivenCredential =
  | { apiKey: string }
  | { username: string; password: string }
  | { token: string }
  | { granted: false };

/**
 * How a login ended. `closed` says that its window is gone, or cannot be seen any more: it may still be granted.
 * `left` says that the page itself goes to the provider, because the browser opened no window.
 */
export type AuthorizationEnd = 'granted' | 'denied' | 'closed' | 'left' | 'failed';

/** Options of {@link authorize}. */
export interface AuthorizeOptions {
  /** The call that is granted; ends of other logins are not taken for its own. */
  toolCallId: string;
  /** Gives up waiting; the window stays. */
  signal?: AbortSignal;
}

/** The channel on which the last page of a login tells how it ended. */
const CHANNEL = 'adk-bridge/credential';
/** Where that page finds the way back, if the login took the place of the page. */
const RETURN = 'adk-bridge/return';
/** Browsers tell nobody that a window was closed. */
const CLOSED_CHECK_MS = 500;

/** Hands over a key or a password, or refuses. */
export async function sendCredential(address: BridgeAddress, toolCallId: string, given: GivenCredential): Promise<void> {
  await request(address, `/api/credentials/${encodeURIComponent(toolCallId)}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify(given),
  });
}

/** Opens the window of a login; to be called in a click, or the browser prevents it. Resolves when it has ended. */
export function authorize(authorizeUrl: string, { toolCallId, signal }: AuthorizeOptions): Promise<AuthorizationEnd> {
  const opened = window.open(authorizeUrl, `adk-bridge-${toolCallId}`, 'popup,width=560,height=720');
  if (opened === null) {
    leave(authorizeUrl);
    return Promise.resolve('left');
  }
  opened.focus();
  return new Promise((resolve) => {
    const channel = typeof BroadcastChannel === 'undefined' ? undefined : new BroadcastChannel(CHANNEL);
    const finish = (end: AuthorizationEnd) => {
      clearInterval(timer);
      channel?.close();
      window.removeEventListener('message', hear);
      resolve(end);
    };
    const hear = ({ data }: MessageEvent<unknown>) => {
      const { type, toolCallId: call, end } = (data ?? {}) as { type?: unknown; toolCallId?: unknown; end?: unknown };
      if (type !== CHANNEL || call !== toolCallId) return;
      finish(end === 'granted' || end === 'denied' ? end : 'failed');
    };
    channel?.addEventListener('message', hear);
    // For a bridge of another origin. Whoever forges it makes a front end look at the chat, no more.
    window.addEventListener('message', hear);
    const timer = setInterval(() => {
      if (opened.closed) finish('closed');
    }, CLOSED_CHECK_MS);
    signal?.addEventListener('abort', () => finish('closed'), { once: true });
  });
}

function leave(authorizeUrl: string): void {
  try {
    sessionStorage.setItem(RETURN, location.href);
  } catch {
    // Then the last page of the login has a link.
  }
  location.assign(authorizeUrl);
}
