// @vitest-environment jsdom
/** Turns that the server begins, and speech, with a server that sends exactly the frames of the protocol. */

import type { AddressInfo } from 'node:net';

import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { WebSocketServer, type WebSocket as Peer } from 'ws';

import { ChatPage, textOf } from './chat-page.js';
import type { Server } from './server.js';

let server: WebSocketServer;
let peer: Peer;
let received: (string | Buffer)[];
let page: ChatPage;

beforeEach(async () => {
  received = [];
  server = new WebSocketServer({ port: 0, host: '127.0.0.1' });
  await new Promise((resolve) => server.on('listening', resolve));
  const arrived = new Promise<void>((resolve) => {
    server.on('connection', (socket) => {
      peer = socket;
      socket.on('message', (data, isBinary) => received.push(isBinary ? (data as Buffer) : String(data)));
      resolve();
    });
  });
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  page = new ChatPage({ server: { url } as Server, mode: 'live', id: 'c1' });
  await arrived;
  await page.until(() => expect(page.chat.connection.status).toBe('open'));
});
afterEach(() => {
  page.close();
  for (const client of server.clients) client.terminate();
  server.close();
});

const event = (chunk: object) => peer.send(`data: ${JSON.stringify(chunk)}\n\n`);
const control = (frame: object) => peer.send(JSON.stringify(frame));
const done = () => peer.send('data: [DONE]\n\n');
const heard = (text: string, final: boolean) =>
  event({ type: 'data-transcription', data: { messageId: 'u1', text, final }, transient: true });

function tell(turn: number, messageId: string, text: string): void {
  control({ type: 'turn-start', turn });
  event({ type: 'start', messageId });
  event({ type: 'start-step' });
  event({ type: 'text-start', id: 't1' });
  event({ type: 'text-delta', id: 't1', delta: text });
  event({ type: 'text-end', id: 't1' });
  event({ type: 'finish-step' });
  event({ type: 'finish', finishReason: 'stop' });
  done();
  control({ type: 'turn-end', turn });
}

const frames = (type: string) =>
  received
    .filter((data) => typeof data === 'string')
    .map((text) => JSON.parse(text) as { type: string; [field: string]: unknown })
    .filter((frame) => frame.type === type);

const shown = () =>
  page.chat.messages.map((message) => [
    message.role,
    message.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(''),
  ]);

describe('a turn that the server begins', () => {
  it('comes behind what the user said, without any request', async () => {
    heard('what ', false);
    heard('is the', false);
    await page.until(() => expect(shown()).toEqual([['user', 'what is the']]));
    heard('What is the time?', true);
    tell(1, 'a1', 'half past nine');
    await page.until(() => expect(page.text).toBe('half past nine'));
    await page.rest();
    expect(shown()).toEqual([
      ['user', 'What is the time?'],
      ['assistant', 'half past nine'],
    ]);
    expect(frames('message')).toEqual([]);
    expect(frames('audio_config')).toEqual([{ type: 'audio_config', wire: 'binary' }]);
  });

  it('what was said may become known after the answer has begun', async () => {
    tell(1, 'a0', 'good morning');
    await page.until(() => expect(page.text).toBe('good morning'));
    control({ type: 'turn-start', turn: 2 });
    event({ type: 'start', messageId: 'a1' });
    event({ type: 'start-step' });
    event({ type: 'text-start', id: 't1' });
    event({ type: 'text-delta', id: 't1', delta: 'half past ' });
    await page.until(() => expect(page.text).toBe('half past '));
    heard('what is the time', true);
    event({ type: 'text-delta', id: 't1', delta: 'nine' });
    event({ type: 'text-end', id: 't1' });
    event({ type: 'finish-step' });
    event({ type: 'finish' });
    done();
    await page.until(() => expect(page.text).toBe('half past nine'));
    await page.rest();
    expect(shown()).toEqual([
      ['assistant', 'good morning'],
      ['user', 'what is the time'],
      ['assistant', 'half past nine'],
    ]);
  });

  it('what was said comes before an answer that has ended before the page could look at it', async () => {
    control({ type: 'turn-start', turn: 1 });
    event({ type: 'start', messageId: 'a1' });
    event({ type: 'start-step' });
    event({ type: 'text-start', id: 't1' });
    event({ type: 'text-delta', id: 't1', delta: 'nine' });
    heard('the time', true);
    event({ type: 'text-end', id: 't1' });
    event({ type: 'finish-step' });
    event({ type: 'finish' });
    done();
    await page.until(() =>
      expect(shown()).toEqual([
        ['user', 'the time'],
        ['assistant', 'nine'],
      ]),
    );
  });

  it('several in a row come one after the other', async () => {
    for (const turn of [1, 2, 3, 4]) tell(turn, `a${turn}`, `answer ${turn}`);
    await page.until(() => expect(page.chat.messages.map(textOf)).toEqual(['answer 1', 'answer 2', 'answer 3', 'answer 4']));
    await page.rest();
  });

  it('in the way of a request, both arrive', async () => {
    void page.chat.sendMessage({ text: 'hello' });
    await page.until(() => expect(frames('message')).toHaveLength(1));
    tell(1, 'a1', 'something unasked');
    tell(2, 'a2', 'hello to you');
    await page.until(() => expect(page.text).toBe('hello to you'));
    await page.rest();
    expect(shown()).toEqual([
      ['user', 'hello'],
      ['assistant', 'something unasked'],
      ['assistant', 'hello to you'],
    ]);
  });

  it('adds to a message that the page has', async () => {
    control({ type: 'turn-start', turn: 1 });
    event({ type: 'start', messageId: 'a1' });
    event({ type: 'start-step' });
    event({ type: 'tool-input-available', toolCallId: 'c1', toolName: 'pay', input: {} });
    event({ type: 'tool-approval-request', approvalId: 'p1', toolCallId: 'c1' });
    event({ type: 'finish-step' });
    event({ type: 'finish', finishReason: 'tool-calls' });
    done();
    await page.until(() => expect(page.tool('pay').state).toBe('approval-requested'));
    await page.rest();
    control({ type: 'turn-start', turn: 2 });
    event({ type: 'start', messageId: 'a1' });
    event({ type: 'tool-output-error', toolCallId: 'c1', errorText: 'the approval was not given in time' });
    event({ type: 'start-step' });
    event({ type: 'text-start', id: 't3' });
    event({ type: 'text-delta', id: 't3', delta: 'too late' });
    event({ type: 'text-end', id: 't3' });
    event({ type: 'finish-step' });
    event({ type: 'finish' });
    done();
    await page.until(() => expect(page.text).toBe('too late'));
    await page.rest();
    expect(page.chat.status).toBe('ready');
    expect(page.tool('pay').state).toBe('output-error');
    expect(page.chat.messages).toHaveLength(1);
  });

  it('what happened before the connection is not shown twice', async () => {
    tell(1, 'a1', 'hello');
    await page.until(() => expect(page.text).toBe('hello'));
    await page.rest();
    const before = page.chat.messages;
    event({ type: 'start', messageId: 'a1' });
    event({ type: 'start-step' });
    event({ type: 'text-start', id: 't1' });
    event({ type: 'text-delta', id: 't1', delta: 'hel' });
    event({ type: 'text-delta', id: 't1', delta: 'lo' });
    event({ type: 'text-end', id: 't1' });
    event({ type: 'finish-step' });
    event({ type: 'finish' });
    done();
    tell(2, 'a2', 'again');
    await page.until(() => expect(page.text).toBe('again'));
    expect(page.chat.messages.slice(0, 1)).toEqual(before);
  });
});

describe('an approval in an older message', () => {
  const ask = () => {
    control({ type: 'turn-start', turn: 1 });
    event({ type: 'start', messageId: 'a1' });
    event({ type: 'start-step' });
    event({ type: 'tool-input-available', toolCallId: 'c1', toolName: 'pay', input: {} });
    event({ type: 'tool-approval-request', approvalId: 'p1', toolCallId: 'c1' });
    event({ type: 'finish-step' });
    event({ type: 'finish', finishReason: 'tool-calls' });
    done();
  };
  const settle = async () => {
    await page.until(() => expect(frames('message')).toHaveLength(1));
    const [request] = frames('message') as unknown as [{ messageId: string; messages: { id: string }[] }];
    expect(request.messageId).toBe('a1');
    expect(request.messages.map(({ id }) => id)).toEqual(['a1']);
    control({ type: 'turn-start', turn: 3 });
    event({ type: 'start', messageId: 'a1' });
    event({ type: 'tool-output-available', toolCallId: 'c1', output: 'paid' });
    event({ type: 'start-step' });
    event({ type: 'text-start', id: 't3' });
    event({ type: 'text-delta', id: 't3', delta: 'it is paid' });
    event({ type: 'text-end', id: 't3' });
    event({ type: 'finish-step' });
    event({ type: 'finish' });
    done();
    await page.until(() =>
      expect(shown()).toEqual([
        ['assistant', 'it is paid'],
        ['user', 'and the time'],
        ['assistant', 'nine'],
      ]),
    );
    await page.rest();
    expect(frames('message')).toHaveLength(1);
  };

  it('is answered when the chat is free', async () => {
    ask();
    await page.until(() => expect(page.tool('pay').state).toBe('approval-requested'));
    heard('and the time', true);
    tell(2, 'a2', 'nine');
    await page.until(() => expect(page.text).toBe('nine'));
    await page.rest();
    await page.chat.addToolApprovalResponse({ id: 'p1', approved: true });
    await settle();
  });

  it('is answered while the model speaks, and sent behind it', async () => {
    ask();
    await page.until(() => expect(page.tool('pay').state).toBe('approval-requested'));
    await page.rest();
    heard('and the time', true);
    control({ type: 'turn-start', turn: 2 });
    event({ type: 'start', messageId: 'a2' });
    event({ type: 'start-step' });
    event({ type: 'text-start', id: 't1' });
    event({ type: 'text-delta', id: 't1', delta: 'nine' });
    await page.until(() => expect(page.text).toBe('nine'));
    await page.chat.addToolApprovalResponse({ id: 'p1', approved: true });
    expect(frames('message')).toHaveLength(0);
    event({ type: 'text-end', id: 't1' });
    event({ type: 'finish-step' });
    event({ type: 'finish' });
    done();
    await settle();
  });
});

describe('audio', () => {
  it('comes as binary frames and as JSON, next to the words', async () => {
    const pieces: { turn: number; sampleRate: number; samples: number[] }[] = [];
    const marks: string[] = [];
    const { live } = page.chat;
    live?.on('audio', ({ turn, sampleRate, samples }) => pieces.push({ turn, sampleRate, samples: [...samples] }));
    for (const kind of ['turn-start', 'turn-end', 'interrupted'] as const)
      live?.on(kind, ({ turn }) => marks.push(`${kind} ${turn}`));
    control({ type: 'turn-start', turn: 7 });
    event({ type: 'start', messageId: 'a1' });
    peer.send(Buffer.from([2, 0, 7, 0, 1, 0, 0, 0, 0x01, 0x00, 0xff, 0xff]));
    event({
      type: 'data-pcm',
      data: { chunk: Buffer.from([0x00, 0x80, 0xff, 0x7f]).toString('base64'), sampleRate: 16000, turn: 7 },
      transient: true,
    });
    peer.send(Buffer.from([2, 0]));
    control({ type: 'interrupted', turn: 7 });
    event({ type: 'abort' });
    done();
    control({ type: 'turn-end', turn: 7 });
    await page.until(() => expect(marks).toEqual(['turn-start 7', 'interrupted 7', 'turn-end 7']));
    expect(pieces).toEqual([
      { turn: 7, sampleRate: 24000, samples: [1, -1] },
      { turn: 7, sampleRate: 16000, samples: [-32768, 32767] },
    ]);
  });

  it('goes out as binary frames with flags, turn and sequence', async () => {
    const { live } = page.chat;
    live?.audioControl('start');
    live?.sendAudio(Int16Array.of(1, -2), { preRoll: true });
    live?.sendAudio(Int16Array.of(3), { last: true });
    live?.sendPicture(Uint8Array.of(0xff, 0xd8));
    live?.audioControl('stop');
    await page.until(() => expect(frames('audio_control')).toHaveLength(2));
    expect(received.filter((data) => typeof data !== 'string').map((data) => [...data])).toEqual([
      [1, 1, 1, 0, 0, 0, 0, 0, 1, 0, 0xfe, 0xff],
      [1, 2, 1, 0, 1, 0, 0, 0, 3, 0],
      [3, 0, 1, 0, 2, 0, 0, 0, 0xff, 0xd8],
    ]);
  });
});

describe('audio as JSON', () => {
  it('is asked for, and goes out as base64', async () => {
    page.close();
    received.length = 0;
    page = new ChatPage({ server: page.server, mode: 'live', id: 'c1', audioWire: 'json' } as never);
    await page.until(() => expect(page.chat.connection.status).toBe('open'));
    const { live } = page.chat;
    expect(live?.sendAudio(Int16Array.of(1, -2), { preRoll: true })).toBe(true);
    expect(live?.sendPicture(Uint8Array.of(0xff, 0xd8))).toBe(true);
    await page.until(() => expect(frames('video_frame')).toHaveLength(1));
    expect(frames('audio_config')).toEqual([{ type: 'audio_config', wire: 'json' }]);
    expect(frames('audio_chunk')).toEqual([
      { type: 'audio_chunk', chunk: 'AQD+/w==', sampleRate: 16_000, channels: 1, bitDepth: 16 },
    ]);
    expect(frames('video_frame')).toEqual([{ type: 'video_frame', data: '/9g=', mediaType: 'image/jpeg' }]);
    expect(received.every((data) => typeof data === 'string')).toBe(true);
  });
});

describe('what goes wrong', () => {
  it('a refused request is an error of the chat, and the socket stays', async () => {
    void page.chat.sendMessage({ text: 'hello' });
    await page.until(() => expect(frames('message')).toHaveLength(1));
    const requestId = frames('message')[0]?.['requestId'] as string;
    control({ type: 'error', code: 'live_unsupported', message: 'this agent cannot hear' });
    control({ type: 'error', code: 'conflict', message: 'another request', requestId: `${requestId}0` });
    control({ type: 'error', code: 'bad_message', message: 'the last message is empty', requestId });
    await page.until(() => expect(page.chat.error?.message).toBe('the last message is empty'));
    expect(page.chat.connection.status).toBe('open');
    void page.chat.sendMessage({ text: 'once more' });
    await page.until(() => expect(frames('message')).toHaveLength(2));
    tell(1, 'a1', 'fine');
    await page.until(() => expect(page.text).toBe('fine'));
  });

  it('frames that nobody knows are passed over', async () => {
    peer.send('not json');
    peer.send('data: {broken\n\n');
    control({ type: 'from-the-future', turn: 1 });
    control([1, 2]);
    peer.send('null');
    tell(1, 'a1', 'still here');
    await page.until(() => expect(page.text).toBe('still here'));
  });
});
