/** A page as a test sees it: `useBridgeChat` rendered for real, with its requests counted. */

import { renderHook, waitFor, type RenderHookResult } from '@testing-library/react';
import type { UIMessage } from 'ai';
import { expect } from 'vitest';

import { CONFIRMATION_TOOL, type ToolPart } from '../src/index.js';
import { useBridgeChat, type BridgeChat, type UseBridgeChatOptions } from '../src/react/index.js';
import { isToolPart, toolNameOf } from '../src/tool-parts.js';
import { WAIT_LIMIT_MS, type Server } from './server.js';

/** So often in a row a chat must be found at rest: what it sends automatically it sends within one turn of the event loop. */
const REST_CHECKS = 4;

export type PageOptions = Partial<UseBridgeChatOptions> & { server: Server; strict?: boolean };

export interface SentRequest {
  messages: UIMessage[];
  messageId?: string;
  trigger: string;
}

export class ChatPage {
  readonly id: string;
  readonly sent: SentRequest[] = [];
  /** Decisions that went out in addition to the chat's own requests. */
  readonly decisions: SentRequest[] = [];
  readonly server: Server;
  readonly #options: PageOptions;
  readonly #hook: RenderHookResult<BridgeChat, UseBridgeChatOptions>;

  constructor({ server, strict = false, ...options }: PageOptions) {
    this.server = server;
    this.#options = { server, ...options };
    this.id = options.id ?? crypto.randomUUID();
    const all = {
      mode: 'sse',
      baseUrl: server.url,
      fetch: this.#fetch,
      WebSocket: this.#countingSocket(),
      onError: () => {},
      ...options,
      id: this.id,
    } as UseBridgeChatOptions;
    this.#hook = renderHook((props) => useBridgeChat(props), { initialProps: all, reactStrictMode: strict });
  }

  /** What a reload is: this page goes, another one comes with the messages that the server lists. */
  async reload(options: Partial<PageOptions> = {}): Promise<ChatPage> {
    this.close();
    const query = this.#options.dialect === 'adk' ? '?dialect=adk' : '';
    const messages = await this.server.messages(this.id, query);
    return new ChatPage({ ...this.#options, ...options, id: this.id, messages });
  }

  close(): void {
    this.#hook.unmount();
  }

  get chat(): BridgeChat {
    return this.#hook.result.current;
  }

  get message(): UIMessage | undefined {
    return this.chat.messages.at(-1);
  }

  get text(): string {
    return textOf(this.message);
  }

  get tools(): ToolPart[] {
    return (this.message?.parts ?? []).filter(isToolPart) as ToolPart[];
  }

  tool(name: string): ToolPart {
    const found = this.tools.filter((part) => toolNameOf(part) === name);
    expect(found, `parts of ${name} in ${JSON.stringify(this.message)}`).toHaveLength(1);
    return found[0] as ToolPart;
  }

  /** The approval that waits for this tool, in either dialect. */
  question(tool: string): string {
    const found = this.tools.find((part) => part.state === 'approval-requested' && askedTool(part) === tool);
    expect(found, `a question about ${tool} in ${JSON.stringify(this.message)}`).toBeDefined();
    return found?.approval?.id as string;
  }

  async say(text: string): Promise<void> {
    void this.chat.sendMessage({ text });
    await this.until(() => expect(this.chat.messages.length).toBeGreaterThan(0));
    await this.rest();
  }

  async answer(tool: string, approved: boolean, reason?: string): Promise<void> {
    const id = this.question(tool);
    await this.chat.addToolApprovalResponse({ id, approved, ...(reason !== undefined && { reason }) });
    await this.until(() =>
      expect(this.tools.some((part) => part.state === 'approval-requested' && part.approval?.id === id)).toBe(false),
    );
  }

  /** Waits until nothing runs and the chat has nothing to send automatically. */
  async rest(): Promise<void> {
    let seen = 0;
    await this.until(() => {
      const { status, runningTools } = this.chat;
      seen = (status === 'ready' || status === 'error') && runningTools.length === 0 ? seen + 1 : 0;
      expect(seen).toBeGreaterThanOrEqual(REST_CHECKS);
    });
  }

  async until(condition: () => void): Promise<void> {
    await waitFor(condition, { timeout: WAIT_LIMIT_MS, interval: 5 });
  }

  #countingSocket(): typeof WebSocket {
    const { sent } = this;
    return class extends WebSocket {
      override send(data: string | Blob | BufferSource): void {
        const frame = typeof data === 'string' ? (JSON.parse(data) as SentRequest & { type: string }) : undefined;
        if (frame?.type === 'message') sent.push(frame);
        super.send(data);
      }
    };
  }

  readonly #fetch: typeof fetch = (url, init) => {
    if (init?.method === 'POST' && String(url).includes('/api/chat') && typeof init.body === 'string') {
      const request = JSON.parse(init.body) as SentRequest;
      const isDecision = request.messages.length === 1 && request.messages[0]?.role === 'assistant';
      (isDecision ? this.decisions : this.sent).push(request);
    }
    return fetch(url, init);
  };
}

export function textOf(message: UIMessage | undefined): string {
  const parts = message?.role === 'assistant' ? message.parts : [];
  return parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join(' ');
}

function askedTool(part: ToolPart): string {
  if (toolNameOf(part) !== CONFIRMATION_TOOL) return toolNameOf(part);
  return (part.input as { originalFunctionCall: { name: string } }).originalFunctionCall.name;
}
