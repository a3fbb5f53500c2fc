// @vitest-environment jsdom
/** Granting what an agent asks for: windows that open, close and tell, and requests that carry nothing else. */
import { afterEach, describe, expect, test, vi } from 'vitest';

import { authorize, sendCredential } from '../src/index.js';

const URL_OF_LOGIN = 'http://bridge.test/api/oauth/authorize?request=x';

/** A window that the browser opens, or `null` where it prevents that. */
function opens(popup: { closed: boolean; focus: () => void } | null) {
  return vi.spyOn(window, 'open').mockReturnValue(popup as Window | null);
}

function tell(data: unknown): void {
  window.dispatchEvent(new MessageEvent('message', { data }));
}

afterEach(() => {
  vi.restoreAllMocks();
  sessionStorage.clear();
});

describe('authorize', () => {
  test.each([
    ['granted', 'granted'],
    ['denied', 'denied'],
    ['expired', 'failed'],
    ['answered', 'failed'],
    [undefined, 'failed'],
  ])('the last page tells %s', async (end, expected) => {
    const open = opens({ closed: false, focus: () => {} });
    const ended = authorize(URL_OF_LOGIN, { toolCallId: 'call-1' });
    expect(open.mock.calls[0]?.[0]).toBe(URL_OF_LOGIN);
    // Others are not taken for it.
    for (const other of [null, 'granted', {}, { type: 'x', toolCallId: 'call-1', end: 'granted' }]) tell(other);
    tell({ type: 'adk-bridge/credential', toolCallId: 'call-2', end: 'granted' });
    tell({ type: 'adk-bridge/credential', toolCallId: 'call-1', end });
    expect(await ended).toBe(expected);
  });

  test('a window that is closed says nothing, and is noticed', async () => {
    const popup = { closed: false, focus: () => {} };
    opens(popup);
    const ended = authorize(URL_OF_LOGIN, { toolCallId: 'call-1' });
    popup.closed = true;
    expect(await ended).toBe('closed');
  });

  test('whoever gives up waiting is answered', async () => {
    opens({ closed: false, focus: () => {} });
    const giveUp = new AbortController();
    const ended = authorize(URL_OF_LOGIN, { toolCallId: 'call-1', signal: giveUp.signal });
    giveUp.abort();
    expect(await ended).toBe('closed');
  });

  test('without a window the page leaves, and leaves its own address', async () => {
    opens(null);
    // jsdom does not navigate, and says so.
    vi.spyOn(console, 'error').mockImplementation(() => {});
    expect(await authorize('#login', { toolCallId: 'call-1' })).toBe('left');
    expect(sessionStorage.getItem('adk-bridge/return')).toBe(location.href.replace(/#.*/, ''));
    expect(location.hash).toBe('#login');
  });
});

test('what is handed over goes to the question, and a refusal of the bridge is thrown', async () => {
  const seen: [string, RequestInit | undefined][] = [];
  const fetch = (async (url: string, init?: RequestInit) => {
    seen.push([url, init]);
    return seen.length === 1
      ? new Response(null, { status: 204 })
      : Response.json({ error: { code: 'answered', message: 'before' } }, { status: 409 });
  }) as typeof globalThis.fetch;
  const address = { baseUrl: 'http://bridge.test', headers: { authorization: 'Bearer k' }, fetch };
  await sendCredential(address, 'call/1', { apiKey: 'secret' });
  const [url, init] = seen[0] ?? [];
  expect(url).toBe('http://bridge.test/api/credentials/call%2F1');
  expect(init?.method).toBe('POST');
  expect(JSON.parse(String(init?.body))).toEqual({ apiKey: 'secret' });
  await expect(sendCredential(address, 'call-1', { granted: false })).rejects.toMatchObject({ code: 'answered', status: 409 });
});
