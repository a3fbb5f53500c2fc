/** The socket that stays: pauses, signs of life, and closes that end it. */

import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';

import { BridgeError } from '../src/index.js';
import { LiveSocket, type LiveSocketOptions } from '../src/live/live-socket.js';

/** A WebSocket that does what the test says. */
class StagedSocket {
  static all: StagedSocket[] = [];
  readonly url: string;
  readonly sent: string[] = [];
  closedWith: number | undefined;
  bufferedAmount = 0;
  onopen: () => void = () => {};
  onmessage: (event: { data: unknown }) => void = () => {};
  onclose: (event: { code: number; reason: string }) => void = () => {};

  constructor(url: string) {
    this.url = url;
    StagedSocket.all.push(this);
  }

  send(data: string): void {
    this.sent.push(data);
  }

  close(code: number): void {
    this.closedWith = code;
  }

  static get last(): StagedSocket {
    return StagedSocket.all.at(-1) as StagedSocket;
  }
}

function make(options: Partial<LiveSocketOptions> = {}) {
  const events: string[] = [];
  const socket = new LiveSocket({
    address: async () => `ws://x/${StagedSocket.all.length}`,
    onText: (text) => events.push(text),
    onBinary: () => events.push('binary'),
    onOpen: () => events.push('open'),
    onLost: () => events.push('lost'),
    onClosed: (reason) => events.push(`closed: ${reason}`),
    WebSocket: StagedSocket as unknown as typeof WebSocket,
    ...options,
  });
  return { socket, events };
}

beforeEach(() => {
  vi.useFakeTimers();
  StagedSocket.all = [];
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const settle = () => vi.advanceTimersByTimeAsync(0);

describe('LiveSocket', () => {
  it.each([0, 0.5, 0.999])(
    'waits longer each time, spread by chance (%s), and from the start after it was open',
    async (chance) => {
      vi.spyOn(Math, 'random').mockReturnValue(chance);
      const { socket } = make();
      socket.connect();
      const waits: number[] = [];
      for (let attempt = 0; attempt < 9; attempt += 1) {
        await settle();
        StagedSocket.last.onclose({ code: 1006, reason: '' });
        const state = socket.state.get();
        if (state.status !== 'waiting') throw new Error(state.status);
        waits.push(state.retryInMs);
        await vi.advanceTimersByTimeAsync(state.retryInMs);
      }
      const spread = 0.5 + chance / 2;
      expect(waits).toEqual(
        [1, 2, 4, 8, 16, 32, 60, 60, 60].map((factor) => factor * 500 * 2 * spread).map((ms) => Math.min(ms, 30_000 * spread)),
      );
      await settle();
      StagedSocket.last.onopen();
      StagedSocket.last.onclose({ code: 1001, reason: '' });
      expect(socket.state.get()).toMatchObject({ status: 'waiting', retryInMs: 500 * spread });
      socket.close();
    },
  );

  it.each([1009, 4401, 4404, 4409, 4429])('does not come back after %s', async (code) => {
    const { socket, events } = make();
    socket.connect();
    await settle();
    StagedSocket.last.onopen();
    StagedSocket.last.onclose({ code, reason: 'why' });
    await vi.advanceTimersByTimeAsync(120_000);
    expect(StagedSocket.all).toHaveLength(1);
    expect(socket.state.get()).toEqual({ status: 'closed', code, reason: 'why' });
    expect(events).toEqual(['open', 'closed: why']);
  });

  it.each([1000, 1001, 1005, 1006, 1011, 1012, 4408])('comes back after %s', async (code) => {
    const { socket, events } = make();
    socket.connect();
    await settle();
    StagedSocket.last.onopen();
    StagedSocket.last.onclose({ code, reason: '' });
    await vi.advanceTimersByTimeAsync(1000);
    expect(StagedSocket.all).toHaveLength(2);
    expect(events).toEqual(['open', 'lost']);
    socket.close();
  });

  it('comes back when the server said', async () => {
    const { socket } = make();
    socket.connect();
    await settle();
    StagedSocket.last.onopen();
    socket.retryAfter(4321);
    StagedSocket.last.onclose({ code: 1001, reason: '' });
    expect(socket.state.get()).toMatchObject({ status: 'waiting', retryInMs: 4321 });
    socket.close();
  });

  it('comes back at once when the machine is online again', async () => {
    const listeners = new Map<string, () => void>();
    vi.stubGlobal('addEventListener', (name: string, listener: () => void) => listeners.set(name, listener));
    vi.stubGlobal('removeEventListener', (name: string) => listeners.delete(name));
    const { socket } = make({ minRetryMs: 10_000 });
    socket.connect();
    await settle();
    StagedSocket.last.onclose({ code: 1006, reason: '' });
    listeners.get('online')?.();
    await settle();
    expect(StagedSocket.all).toHaveLength(2);
    socket.close();
    expect(listeners.size).toBe(0);
    vi.unstubAllGlobals();
  });

  it('pings, measures, and gives up on a server that is silent', async () => {
    const { socket, events } = make({ pingIntervalMs: 1000 });
    socket.connect();
    await settle();
    const first = StagedSocket.last;
    first.onopen();
    const pings = () => first.sent.map((text) => JSON.parse(text) as { type: string; timestamp: number });
    expect(pings()).toEqual([{ type: 'ping', timestamp: expect.any(Number) }]);
    await vi.advanceTimersByTimeAsync(40);
    socket.pong(pings()[0]?.timestamp);
    expect(socket.roundTripMs.get()).toBe(40);
    first.onmessage({ data: 'x' });
    await vi.advanceTimersByTimeAsync(2000);
    expect(pings()).toHaveLength(3);
    expect(socket.isOpen).toBe(true);
    await vi.advanceTimersByTimeAsync(1000);
    expect(socket.state.get().status).toBe('waiting');
    expect(first.closedWith).toBe(1000);
    expect(events).toEqual(['open', 'x', 'lost']);
    socket.close();
  });

  it('closes in order, stays closed, and connects again when asked', async () => {
    const { socket, events } = make();
    socket.connect();
    socket.connect();
    await settle();
    expect(StagedSocket.all).toHaveLength(1);
    const first = StagedSocket.last;
    first.onopen();
    socket.close();
    expect(first.closedWith).toBe(1000);
    first.onclose({ code: 1000, reason: '' });
    first.onmessage({ data: 'late' });
    await vi.advanceTimersByTimeAsync(60_000);
    expect(socket.state.get()).toEqual({ status: 'idle' });
    expect(socket.send({ type: 'ping', timestamp: 1 })).toBe(false);
    expect(events).toEqual(['open']);
    socket.connect();
    await settle();
    expect(StagedSocket.all).toHaveLength(2);
    socket.close();
  });

  it('closed while its address is asked for, it opens nothing', async () => {
    const { socket } = make({ address: () => new Promise((resolve) => setTimeout(() => resolve('ws://x'), 100)) });
    socket.connect();
    socket.close();
    await vi.advanceTimersByTimeAsync(1000);
    expect(StagedSocket.all).toHaveLength(0);
  });

  it('a ticket that is refused ends it, one that cannot be asked for does not', async () => {
    const refused = make({ address: () => Promise.reject(new BridgeError(401, 'unauthorized', 'no valid key')) });
    refused.socket.connect();
    await settle();
    expect(refused.socket.state.get()).toMatchObject({ status: 'closed', reason: 'no valid key' });
    const away = make({ address: () => Promise.reject(new TypeError('fetch failed')) });
    away.socket.connect();
    await settle();
    expect(away.socket.state.get().status).toBe('waiting');
    away.socket.close();
  });
});

it.each([
  ['no WebSocket', undefined, /pass one as the option WebSocket/],
  [
    'an address that it does not take',
    class {
      constructor() {
        throw new SyntaxError('invalid address');
      }
    },
    /invalid address/,
  ],
])('is closed, and says why, where there is %s', async (_name, WebSocket, reason) => {
  vi.stubGlobal('WebSocket', undefined);
  const { socket, events } = make({ WebSocket: WebSocket as unknown as typeof globalThis.WebSocket });
  socket.connect();
  await vi.advanceTimersByTimeAsync(60_000);
  expect(socket.state.get()).toMatchObject({ status: 'closed', reason: expect.stringMatching(reason) });
  expect(events).toEqual([expect.stringMatching(reason)]);
  vi.unstubAllGlobals();
});
