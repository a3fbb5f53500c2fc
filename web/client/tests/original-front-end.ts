/**
 * A front end as adk-stream-protocol has it: its two transports, its predicate and the one before that, and what it
 * makes of speech. Written from a description of how it behaves.
 */

import { Chat } from '@ai-sdk/react';
import { DefaultChatTransport, type ChatTransport, type UIMessage, type UIMessageChunk } from 'ai';
import { expect, vi } from 'vitest';
import { WebSocket } from 'ws';

import { PREDICATES } from '../../conformance/original-predicates.mjs';
import { isToolPart, type ToolPart } from '../src/tool-parts.js';
import { WAIT_LIMIT_MS, type Server } from './server.js';

export type Mode = 'sse' | 'bidi';

/** So often in a row a chat must be found at rest: what it sends automatically it sends within one turn of the event loop. */
const REST_CHECKS = 8;

const toolsOf = (message: UIMessage | undefined) =>
  (message?.role === 'assistant' ? message.parts : []).filter(isToolPart) as ToolPart[];
const nameOf = ({ type }: ToolPart) => type.slice('tool-'.length);

export interface OriginalOptions {
  server: Server;
  mode: Mode;
  predicate?: keyof typeof PREDICATES;
  /** How its frames carry what they say: next to `type`, or under `data`, as its older version. */
  payload?: 'flat' | 'nested';
  /** Without it, as its older version, requests name no chat. */
  sendsId?: boolean;
  apiKey?: string;
  id?: string;
  messages?: UIMessage[];
}

/** A page of it. */
export class OriginalFrontEnd {
  readonly chat: Chat<UIMessage>;
  requests = 0;
  /** Every chunk, in its order. */
  readonly chunks: UIMessageChunk[] = [];
  readonly #options: OriginalOptions;
  #socket: WebSocket | undefined;
  #isDone = true;
  #controller: ReadableStreamDefaultController<UIMessageChunk> | undefined;
  /** The model's speech in this turn, as it collects it for a recording. */
  speech: { content: string; sampleRate: number; channels: number; bitDepth: number }[] = [];

  constructor(options: OriginalOptions) {
    this.#options = options;
    const { id, mode, messages, predicate = 'later' } = options;
    this.chat = new Chat<UIMessage>({
      ...(id !== undefined && { id }),
      ...(messages !== undefined && { messages }),
      transport: mode === 'sse' ? this.#overHttp() : this.#overSocket(),
      sendAutomaticallyWhen: PREDICATES[predicate](),
    });
  }

  get message(): UIMessage | undefined {
    return this.chat.lastMessage;
  }

  get text(): string {
    return (this.message?.parts ?? []).flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(' ');
  }

  get tools(): ToolPart[] {
    return toolsOf(this.message);
  }

  tool(name: string): ToolPart {
    return this.tools.find((tool) => nameOf(tool) === name) as ToolPart;
  }

  async say(text: string, files: { type: 'file'; mediaType: string; url: string }[] = []): Promise<void> {
    void this.chat.sendMessage({ text, files });
    await this.rest();
  }

  /** Answers the oldest open question. */
  async answer(approved: boolean): Promise<void> {
    const question = this.tools.find(({ state }) => state === 'approval-requested');
    expect(question, JSON.stringify(this.message)).toBeDefined();
    await this.chat.addToolApprovalResponse({ id: question?.approval?.id ?? '', approved, reason: 'pressed' });
    await this.rest();
  }

  async output(tool: string, output: unknown): Promise<void> {
    await this.chat.addToolOutput({ tool, toolCallId: this.tool(tool).toolCallId, output } as never);
    await this.rest();
  }

  async rest(): Promise<void> {
    let seen = 0;
    await vi.waitFor(
      () => {
        const { status } = this.chat;
        seen = status === 'ready' || status === 'error' ? seen + 1 : 0;
        expect(seen).toBeGreaterThanOrEqual(REST_CHECKS);
      },
      { timeout: WAIT_LIMIT_MS, interval: 5 },
    );
    expect(this.chat.error).toBeUndefined();
  }

  /** A frame of its socket, in the form of its version. */
  send(type: string, payload: object): void {
    const { payload: form = 'flat' } = this.#options;
    const said = form === 'flat' ? payload : { data: payload };
    this.#socket?.send(JSON.stringify({ type, version: '1.0', timestamp: Date.now(), ...said }));
  }

  close(): void {
    void this.chat.stop();
    this.#socket?.close();
  }

  #overHttp(): ChatTransport<UIMessage> {
    const { server, apiKey, sendsId = true } = this.#options;
    const transport = new DefaultChatTransport<UIMessage>({
      api: `${server.url}/stream`,
      ...(apiKey !== undefined && { headers: { 'X-API-Key': apiKey } }),
      ...(!sendsId && { prepareSendMessagesRequest: ({ messages }) => ({ body: { messages } }) }),
      fetch: (url, init) => {
        this.requests += 1;
        return fetch(url, init);
      },
    });
    return {
      sendMessages: async (options) => this.#noted(await transport.sendMessages(options)),
      reconnectToStream: (options) => transport.reconnectToStream(options),
    };
  }

  #noted(stream: ReadableStream<UIMessageChunk>): ReadableStream<UIMessageChunk> {
    const { chunks } = this;
    return stream.pipeThrough(
      new TransformStream({
        transform(chunk, controller) {
          chunks.push(chunk);
          controller.enqueue(chunk);
        },
      }),
    );
  }

  #overSocket(): ChatTransport<UIMessage> {
    return {
      sendMessages: async ({ chatId, messages, trigger, messageId }) => {
        this.requests += 1;
        await this.connect();
        // What follows a question that was answered before its stream ended belongs to the same stream.
        const stream = new ReadableStream<UIMessageChunk>({
          start: (controller) => {
            if (!this.#isDone) return;
            this.#controller = controller;
            this.#isDone = false;
            this.speech = [];
          },
        });
        this.send('message', { id: chatId, messages, trigger, messageId });
        return stream;
      },
      reconnectToStream: async () => null,
    };
  }

  /** Opens its socket: no query, no ticket. */
  async connect(): Promise<void> {
    if (this.#socket !== undefined) return;
    const socket = new WebSocket(`${this.#options.server.url.replace('http', 'ws')}/live`);
    this.#socket = socket;
    socket.on('message', (data) => this.#receive(String(data)));
    await new Promise((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
    });
  }

  #receive(frame: string): void {
    if (!frame.startsWith('data: ')) return;
    const text = frame.slice('data: '.length).trim();
    if (text === '[DONE]') {
      this.#isDone = true;
      try {
        this.#controller?.close();
      } catch {
        // An error has closed it.
      }
      this.#controller = undefined;
      return;
    }
    const chunk = JSON.parse(text) as UIMessageChunk;
    this.chunks.push(chunk);
    if (chunk.type === 'data-pcm') this.speech.push(chunk.data as never);
    else this.#controller?.enqueue(chunk);
  }
}
