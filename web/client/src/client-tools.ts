/**
 * Runs the tools that live in the front end: once per call, after the approval where one is asked for.
 *
 * ```
 *   input-available, turn over, nobody asked ─┐
 *   approved ─────────────────────────────────┴▶ started ─▶ output | error | timed out | cancelled ─▶ reported
 *   denied, or settled by the server: never started; a running one is aborted and not reported
 * ```
 *
 * `started` and the outcome are written to a journal first. A page that is loaded again finds there what it may not run
 * a second time: an outcome is reported as it was, a run without one as an error that says so.
 */

import { CallJournal, defaultStorage, type CallOutcome, type JournalStorage } from './call-journal.js';
import type { DeclaredTool } from './declared-tools.js';
import { decisionOn, isSettled, isToolPart, toolNameOf } from './tool-parts.js';
import type { MessageLike, ToolPart } from './tool-parts.js';
import { Value, type Observable } from './value.js';

/** What a client tool gets in addition to its input. */
export interface ClientToolContext {
  readonly toolCallId: string;
  readonly toolName: string;
  /** Aborts when the call times out, is cancelled, or was settled without it. */
  readonly signal: AbortSignal;
}

/** A tool of the front end; what it returns is the output, what it throws the error. The input is the model's. */
export type ClientToolFunction = (
  // biome-ignore lint/suspicious/noExplicitAny: whoever writes the tool knows the type that its schema asks for
  input: any,
  context: ClientToolContext,
) => unknown;

/** A tool with settings of its own. */
export interface ClientToolDefinition {
  execute: ClientToolFunction;
  /**
   * What the model learns about the tool. A tool with a description or an `inputSchema` is declared in every request;
   * one without them must be known to the agent (`agent.client_tools`, or a long-running tool of an ADK agent).
   */
  description?: string;
  /** The JSON schema of its input, which is an object. */
  inputSchema?: object;
  /** Whether the user is asked before each call, if the tool is declared here. */
  approval?: boolean;
  /** Overrides {@link ClientToolsOptions.timeoutMs}. */
  timeoutMs?: number;
}

/** Options of {@link defineClientTools}. */
export interface ClientToolsOptions {
  /** How long a tool may take; below the server's own limit, so that the model learns the reason from here. */
  timeoutMs?: number;
  /** Where calls are remembered across reloads; `null` keeps them in memory. */
  storage?: JournalStorage | null;
}

/** What is asked of a chat; the AI SDK's `Chat` and the result of `useChat` both fit. */
export interface ToolChat {
  readonly id: string;
  readonly messages: readonly MessageLike[];
  readonly status: string;
  // biome-ignore lint/suspicious/noExplicitAny: both versions of the SDK have types of their own here
  addToolOutput(result: any): void | PromiseLike<void>;
}

/** Below the server's default of two minutes. */
const DEFAULT_TIMEOUT_MS = 110_000;

/** Makes a collection of tools that this front end runs. */
export function defineClientTools(
  tools: Record<string, ClientToolFunction | ClientToolDefinition>,
  options: ClientToolsOptions = {},
): ClientTools {
  return new ClientTools(tools, options);
}

/** The tools that a front end runs; see {@link defineClientTools}. */
export class ClientTools {
  /** The names of the tools. */
  readonly names: ReadonlySet<string>;
  readonly #tools: ReadonlyMap<string, ClientToolDefinition>;
  readonly #timeoutMs: number;
  readonly #journal: CallJournal;
  /** Calls that were taken, with the outcome once it was reported. */
  readonly #handled = new Map<string, CallOutcome | undefined>();
  readonly #running = new Map<string, AbortController>();
  readonly #runningIds = new Value<readonly string[]>([]);

  constructor(tools: Record<string, ClientToolFunction | ClientToolDefinition>, options: ClientToolsOptions = {}) {
    const entries = Object.entries(tools);
    this.#tools = new Map(entries.map(([name, tool]) => [name, typeof tool === 'function' ? { execute: tool } : tool]));
    this.names = new Set(this.#tools.keys());
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#journal = new CallJournal(options.storage === undefined ? defaultStorage() : options.storage);
  }

  /** The tools that this page declares; `undefined` if the agent knows all of them. */
  get declared(): readonly DeclaredTool[] | undefined {
    const isDeclared = ({ description, inputSchema }: ClientToolDefinition) =>
      description !== undefined || inputSchema !== undefined;
    const declared = [...this.#tools].filter(([, tool]) => isDeclared(tool));
    if (declared.length === 0) return undefined;
    return declared.map(([name, { description, inputSchema, approval }]) => ({
      name,
      ...(description !== undefined && { description }),
      ...(inputSchema !== undefined && { inputSchema }),
      ...(approval !== undefined && { approval }),
    }));
  }

  /** The ids of the calls that run. */
  get running(): Observable<readonly string[]> {
    return this.#runningIds;
  }

  /**
   * Looks at the chat and runs what may run. Call it whenever messages or status have changed; it is cheap, and starts
   * no call twice. Resolves when the calls that it started have been reported.
   */
  async run(chat: ToolChat): Promise<void> {
    const calls = chat.messages.flatMap((message, index) => {
      const tools = (message.parts ?? []).filter(isToolPart);
      const isLast = index === chat.messages.length - 1;
      return message.role === 'assistant' ? tools.map((part) => ({ part, tools, isLast })) : [];
    });
    this.#abortSettled(calls.map(({ part }) => part));
    const started = calls
      .filter(({ part, tools, isLast }) => this.#mayRun(part, tools, isLast && chat.status === 'ready'))
      .map(({ part }) => this.#runOnce(chat, part));
    await Promise.all(started);
  }

  /** Aborts a running call and reports it as cancelled, or every running call. */
  cancel(toolCallId?: string, reason = 'cancelled by the user'): void {
    for (const [id, controller] of [...this.#running]) {
      if (toolCallId === undefined || id === toolCallId) controller.abort(new Reported(reason));
    }
  }

  /**
   * Without an approval a call runs only after its turn: the question, if there is one, comes behind the input. In an
   * older message it stays, because the conversation has gone on without it. A call that is open again after its report
   * (a replayed turn does not hold what was not sent yet) is reported again.
   */
  #mayRun(part: ToolPart, siblings: readonly ToolPart[], isWaitedFor: boolean): boolean {
    const id = part.toolCallId;
    if (id === undefined || (this.#handled.has(id) && !(isWaitedFor && this.#handled.get(id)))) return false;
    if (!this.names.has(toolNameOf(part)) || part.providerExecuted === true || isSettled(part)) return false;
    const decision = decisionOn(part, siblings);
    return decision === 'approved' || (decision === 'none' && part.state === 'input-available' && isWaitedFor);
  }

  #abortSettled(parts: readonly ToolPart[]): void {
    if (this.#running.size === 0) return;
    const open = new Set(parts.filter((part) => !isSettled(part)).map((part) => part.toolCallId));
    for (const [id, controller] of [...this.#running]) {
      if (!open.has(id)) controller.abort(new DOMException('the call was settled without its output', 'AbortError'));
    }
  }

  async #runOnce(chat: ToolChat, part: ToolPart): Promise<void> {
    const toolCallId = part.toolCallId as string;
    const tool = toolNameOf(part);
    const reported = this.#handled.get(toolCallId);
    this.#handled.set(toolCallId, undefined);
    const key = `${chat.id}/${toolCallId}`;
    await this.#journal.alone(key, async () => {
      const outcome = reported ?? this.#journal.outcome(key) ?? (await this.#execute(key, tool, part));
      if (outcome === undefined) return;
      await chat.addToolOutput(
        'errorText' in outcome
          ? { tool, toolCallId, state: 'output-error', errorText: outcome.errorText }
          : { tool, toolCallId, output: outcome.output },
      );
      this.#handled.set(toolCallId, outcome);
    });
  }

  async #execute(key: string, toolName: string, part: ToolPart) {
    const toolCallId = part.toolCallId as string;
    const { execute, timeoutMs = this.#timeoutMs } = this.#tools.get(toolName) as ClientToolDefinition;
    const controller = new AbortController();
    this.#journal.started(key);
    this.#setRunning(() => this.#running.set(toolCallId, controller));
    const timer = setTimeout(
      () => controller.abort(new Reported(`${toolName} returned nothing within ${timeoutMs} ms`)),
      timeoutMs,
    );
    try {
      const context = { toolCallId, toolName, signal: controller.signal };
      const output = await orAborted(async () => execute(part.input ?? {}, context), controller.signal);
      return this.#journal.finished(key, { output: asJson(output) });
    } catch (error) {
      // Settled by the server: nobody waits for an outcome.
      if (controller.signal.aborted && !(controller.signal.reason instanceof Reported)) return undefined;
      return this.#journal.finished(key, { errorText: messageOf(error) });
    } finally {
      clearTimeout(timer);
      this.#setRunning(() => this.#running.delete(toolCallId));
    }
  }

  #setRunning(change: () => void): void {
    change();
    this.#runningIds.set([...this.#running.keys()]);
  }
}

/** Why a call was aborted, if that is to be reported to the model. */
class Reported extends Error {}

function orAborted<T>(run: () => Promise<T>, signal: AbortSignal): Promise<T> {
  return new Promise((resolve, reject) => {
    signal.addEventListener('abort', () => reject(signal.reason as Error), { once: true });
    run().then(resolve, reject);
  });
}

/** What of a value travels as JSON; nothing is `null`, and what cannot travel throws. */
function asJson(value: unknown): unknown {
  const text = JSON.stringify(value) as string | undefined;
  return text === undefined ? null : (JSON.parse(text) as unknown);
}

function messageOf(error: unknown): string {
  const message = error instanceof Error ? error.message : String(error);
  return message === '' ? 'the tool failed without saying why' : message;
}
