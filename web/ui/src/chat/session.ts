/**
 * One open chat: the AI SDK's `Chat`, what waits to be sent, and how it finds back to what the server has.
 *
 * ```text
 *   loading ──▶ ready ◀──▶ busy (submitted, streaming)
 *                 ▲            │ the network fails
 *                 └── recover ─┘   the server's messages, and what it never got is sent again
 * ```
 *
 * A session outlives the component that shows it, so that a chat goes on while another one is open.
 */
import { Chat } from '@ai-sdk/react';
import {
  followServerTurns,
  type LiveChatTransport,
  progressOf,
  type ToolProgress,
  transcriptionOf,
  withTranscription,
} from '@adk-bridge/client';
import type { FileUIPart, UIMessage } from 'ai';

import { api, type AuditRow } from '../lib/api';
import { chats, connection, listOpened, recoveries, refresh } from '../lib/connection';
import { keepQueue, keptQueue, type Waiting } from '../lib/kept';
import { newId } from '../lib/new-id';
import { dialect, type Mode } from '../lib/settings';
import { createStore } from '../lib/store';
import { onTabsChange, tellTabs } from '../lib/tabs';
import type { Outcome } from '../tools/answer-form';
import { askedCalls, learnTool } from '../tools/asked';
import { clientTools } from '../tools/client-tools';
import { type CallRecord, recordsOf } from './call-records';
import { type Call, hasOpenCalls, waitingCalls } from './calls';
import { chatOptions, decisionSender } from './chat-options';
import { textOf } from './message-actions';
import { hasUnsentAnswers, isComplete, isNetworkFailure, lastUserMessage, reconciled } from './reconcile';

export interface SessionState {
  loading: 'loading' | 'ready' | 'failed';
  /** Written while the agent was busy, or while the server was away. */
  queue: Waiting[];
  audit: AuditRow[];
  records: ReadonlyMap<string, CallRecord>;
}

/** A message that is being edited. */
interface Edit {
  text: string;
  files: FileUIPart[];
  messageId: string;
}

/** So often a request is repeated while the server seems to be there; then the user decides. */
const MAX_RECOVERIES = 3;
const RECOVERY_PAUSE_MS = 1_000;

export class ChatSession {
  readonly chat: Chat<UIMessage>;
  readonly state;
  /** How far running tools are, by the id of their call. */
  readonly progress = createStore<ReadonlyMap<string, ToolProgress>>(new Map());
  /** The connection of mode `live`. */
  readonly live: LiveChatTransport | undefined;
  readonly #subscriptions: (() => void)[];
  readonly #decisions;
  /** How many decisions are being sent in addition to the chat's own requests. */
  #deciding = 0;
  #known = 0;
  #sending: string | undefined;
  /** As long as the server does not have it. */
  #edit: Edit | undefined;
  #isSyncing = false;
  /** Whether the chat changed while its messages were being loaded. */
  #isStale = false;
  #isOwnChange = false;
  #hasSent = false;
  #recoveriesLeft = MAX_RECOVERIES;

  constructor(
    readonly id: string,
    readonly mode: Mode,
  ) {
    this.state = createStore<SessionState>({
      loading: 'loading',
      queue: keptQueue(id),
      audit: [],
      records: new Map(),
    });
    const { live, ...options } = chatOptions(id, mode, () => {
      this.#hasSent = true;
      this.#accepted();
    });
    this.live = live;
    this.#decisions = decisionSender(id);
    this.chat = new Chat<UIMessage>({
      ...options,
      onData: (part) => this.#heard(part),
      onError: (problem) => this.#failed(problem),
    });
    this.#subscriptions = [
      this.chat['~registerStatusCallback'](() => this.#statusChanged()),
      onTabsChange((chat) => {
        if (chat === id) void this.sync();
      }),
      chats.subscribe(() => this.#listChanged()),
      recoveries.subscribe(() => void this.recover()),
      connection.subscribe(() => {
        // A page that was opened before it had a key, or a server.
        if (connection.get().phase === 'online' && this.state.get().loading === 'failed') void this.load();
      }),
      ...(live === undefined ? [] : this.#follow(live)),
    ];
    void this.load();
  }

  get isBusy(): boolean {
    return this.chat.status === 'submitted' || this.chat.status === 'streaming';
  }

  /** Leaves the chat; what runs at the server goes on. */
  close(): void {
    this.#subscriptions.forEach((unsubscribe) => unsubscribe());
    if (this.live === undefined) void this.chat.stop();
    else this.live.close();
  }

  async load(): Promise<void> {
    this.#change({ loading: 'loading' });
    try {
      await this.#fetchMessages();
      this.#change({ loading: 'ready' });
    } catch {
      this.#change({ loading: 'failed' });
      this.#sendNext({ evenWhileAsked: true });
      return;
    }
    await this.#resume();
  }

  /** Brings in what happened elsewhere: in another tab or browser, or by time. */
  async sync(): Promise<void> {
    // What changed meanwhile may not be in the list that is on its way.
    if (this.#isSyncing) this.#isStale = true;
    if (
      this.isBusy ||
      this.#isSyncing ||
      this.#deciding > 0 ||
      this.state.get().loading !== 'ready' ||
      this.#sending !== undefined
    )
      return;
    const { error } = this.chat;
    // What the network lost is found again by `recover`.
    if (error !== undefined && isNetworkFailure(error)) return;
    this.#isSyncing = true;
    try {
      do {
        this.#isStale = false;
        await this.#fetchMessages();
      } while (this.#isStale && !this.isBusy);
    } catch {
      void refresh();
      return;
    } finally {
      this.#isSyncing = false;
    }
    if (this.chat.status === 'error') {
      // A failure stays until something else has come of the question: a resume would take it off the page unread.
      if (!isComplete(this.chat.messages.at(-1))) return;
      this.chat.clearError();
    }
    // Not waited for: a resume that a message of the user's overtakes never comes to an end.
    void this.#resume();
  }

  /** Sends a message, now or when the agent has finished. Rejects when its files could not be handed in. */
  async send(text: string, blobs: readonly File[]): Promise<void> {
    const files = await Promise.all(blobs.map((blob) => this.#upload(blob)));
    const queue = [...this.state.get().queue, { id: `user-${newId()}`, text, files }];
    this.#setQueue(queue);
    this.#leaveFailure();
    // What the user sends while a question is open is meant to go: it withdraws the question.
    this.#sendNext({ evenWhileAsked: this.state.get().queue.length === 1 });
  }

  removeQueued(id: string): void {
    this.#setQueue(this.state.get().queue.filter((item) => item.id !== id));
  }

  /** Ends the running turn; the stream then ends on its own, with what was said so far. */
  async stop(): Promise<void> {
    this.live?.interrupt();
    try {
      await api.stop(this.id);
    } catch {
      await this.chat.stop();
    }
  }

  /**
   * Answers questions: the one handler for yes and no. Each answer goes out at once, whatever else is still asked.
   *
   * Both values take the same path at the same time, and the server decides what each of them means (docs/adr/0005): a
   * page that handled a denial on its own would leave the agent waiting.
   */
  async respond(approvalIds: readonly string[], approved: boolean, reason?: string): Promise<void> {
    const decisions = approvalIds.map((id) => ({ id, approved, ...(reason !== undefined && { reason }) }));
    const { shown } = await this.#decisions.respond(this.chat, ...decisions);
    if (!this.isBusy) void this.#runTools();
    await this.#decided(shown);
  }

  /** Gives what a call waits for in the place of a program: an output, or an error that says why there is none. */
  async answer({ id, name }: Call, outcome: Outcome): Promise<void> {
    learnTool(name);
    const call = { tool: name, toolCallId: id };
    await this.chat.addToolOutput(
      'errorText' in outcome ? { ...call, state: 'output-error', ...outcome } : { ...call, output: outcome.output },
    );
    await this.#decided(this.#decisions.flush(this.chat));
  }

  /** A question ran out of time: the server has gone on without an answer. */
  readonly expired = (): void => void this.sync();

  async edit({ id, parts }: UIMessage, text: string): Promise<void> {
    const files = parts.filter((part): part is FileUIPart => part.type === 'file');
    await this.#sendEdit({ text, files, messageId: id });
  }

  async regenerate(messageId?: string): Promise<void> {
    await this.chat.regenerate(messageId === undefined ? {} : { messageId });
  }

  /** Tries again what failed, in the way that fits how far it came. */
  async retry(): Promise<void> {
    this.#recoveriesLeft = MAX_RECOVERIES;
    const { error } = this.chat;
    if (error !== undefined && isNetworkFailure(error)) {
      await this.recover();
      return;
    }
    const edit = this.#edit;
    this.chat.clearError();
    if (edit !== undefined) await this.#sendEdit(edit);
    else if (this.chat.messages.at(-1)?.role === 'assistant') await this.chat.regenerate();
    else await this.chat.sendMessage();
  }

  /** After the network failed: takes the server's messages, and sends again what it never got. */
  async recover(): Promise<void> {
    const { error } = this.chat;
    if (error === undefined || !isNetworkFailure(error)) {
      await this.sync();
      return;
    }
    const local = this.chat.messages;
    const stored = await api.chat(this.id, dialect).catch(() => undefined);
    if (stored === undefined) return;
    const edit = this.#edit;
    this.chat.clearError();
    const typed = lastUserMessage(local);
    const known = stored?.messages ?? [];
    if (edit !== undefined && !known.some((message) => message.id === edit.messageId && textOf(message) === edit.text)) {
      await this.#sendEdit(edit);
      return;
    }
    const isLost = typed !== undefined && !known.some((message) => message.id === typed.id);
    if (isLost || hasUnsentAnswers(local.at(-1), known.at(-1))) {
      const last = isLost ? typed : local.at(-1);
      const before = isLost ? known : known.slice(0, -1);
      if (last !== undefined) this.chat.messages = [...reconciled(local, before), last];
      // While a message is being streamed by the server it is not listed: a request for it is answered by its stream.
      await this.chat.sendMessage();
      return;
    }
    this.chat.messages = reconciled(local, known);
    await this.#resume();
  }

  async loadAudit(): Promise<void> {
    try {
      // Rows are only ever added: what is known need not be read again.
      const fresh = await api.audit(this.id, this.state.get().audit.at(-1)?.id);
      const known = this.state.get().audit;
      const last = known.at(-1)?.id ?? 0;
      const audit = [...known, ...fresh.filter((row) => row.id > last)];
      this.#change({ audit, records: recordsOf(audit) });
    } catch {
      // Times are missing then; the next turn brings them.
    }
  }

  async #runTools(): Promise<void> {
    await clientTools.run(this.chat);
    await this.#decided(this.#decisions.flush(this.chat));
  }

  /** While a decision is being sent, the server does not list its message. */
  async #decided(shown: Promise<boolean>): Promise<void> {
    this.#deciding += 1;
    const wasShown = await shown;
    this.#deciding -= 1;
    if (!wasShown) return;
    tellTabs(this.id);
    void this.loadAudit();
    void refresh();
  }

  /** Takes what the server begins on its own: answers to speech, and expired questions. */
  #follow(live: LiveChatTransport): (() => void)[] {
    const following = followServerTurns(this.chat, live);
    live.connect();
    return [following.stop, live.on('data', (part) => this.#heard(part)), live.on('stale', () => void this.sync())];
  }

  /** What the user said, as the server understood it, becomes the user's message. What tools tell is shown on their cards. */
  #heard(part: { type: string; data?: unknown }): void {
    const progress = progressOf(part);
    if (progress !== undefined) {
      this.progress.set(new Map(this.progress.get()).set(progress.toolCallId, progress));
      return;
    }
    const spoken = transcriptionOf(part);
    if (spoken === undefined) return;
    this.chat.messages = withTranscription(this.chat.messages, spoken, this.live?.currentMessageId);
  }

  async #fetchMessages(): Promise<void> {
    const stored = await api.chat(this.id, dialect);
    if (stored !== null) listOpened(stored);
    if (stored === null || this.isBusy) return;
    this.#known = stored.updatedAt;
    const messages = reconciled(this.chat.messages, stored.messages);
    if (messages !== this.chat.messages) this.chat.messages = messages;
    this.#dropArrived(messages);
    if (messages.some((message) => message.parts.some((part) => part.type.startsWith('tool-')))) void this.loadAudit();
  }

  /** A turn that began elsewhere may be found before its question was: the list was loaded a moment too early. */
  async #bringQuestion(): Promise<void> {
    // The answer comes behind what is there.
    if (this.chat.messages.at(-1)?.role === 'user') return;
    const stored = await api.chat(this.id, dialect).catch(() => null);
    const answer = this.chat.messages.at(-1);
    if (stored === null || !this.isBusy || this.#hasSent || answer?.role !== 'assistant') return;
    if (this.chat.messages.at(-2)?.role === 'user') return;
    const before = stored.messages.filter((message) => message.id !== answer.id);
    this.chat.messages = [...reconciled(this.chat.messages.slice(0, -1), before), answer];
  }

  async #resume(): Promise<void> {
    // A live connection delivers what runs automatically, and one that was given up must not be opened unasked.
    if (this.live === undefined) await this.chat.resumeStream();
    this.#settled();
  }

  async #upload(blob: File): Promise<FileUIPart> {
    const { url, mediaType } = await api.upload(this.id, blob);
    return { type: 'file', url, mediaType, filename: blob.name };
  }

  #sendNext({ evenWhileAsked = false } = {}): void {
    const { queue, loading } = this.state.get();
    const [next] = queue;
    // A message that overtakes the history would keep it from being shown.
    if (next === undefined || loading === 'loading' || this.isBusy || this.#sending !== undefined || this.chat.status === 'error')
      return;
    const last = this.chat.messages.at(-1);
    if (!evenWhileAsked && (waitingCalls(last).length > 0 || askedCalls(last).length > 0)) return;
    this.#sending = next.id;
    const text = next.text === '' ? [] : [{ type: 'text' as const, text: next.text }];
    void this.chat.sendMessage({ id: next.id, role: 'user', parts: [...next.files, ...text] });
  }

  async #sendEdit(edit: Edit): Promise<void> {
    this.#edit = edit;
    await this.chat.sendMessage(edit);
  }

  /** Whoever writes on after a failure does not want to wait for another try of what failed. */
  #leaveFailure(): void {
    const { error } = this.chat;
    if (error === undefined || this.chat.status !== 'error') return;
    if (isNetworkFailure(error)) {
      // What failed on its way goes first.
      if (connection.get().phase === 'online') void this.retry();
      return;
    }
    this.#edit = undefined;
    this.#dropArrived(this.chat.messages);
    this.chat.clearError();
  }

  #accepted(): void {
    this.#recoveriesLeft = MAX_RECOVERIES;
    this.#sending = undefined;
    this.#edit = undefined;
    this.#dropArrived(this.chat.messages);
  }

  /** What is among the messages that the server has waits no longer. */
  #dropArrived(messages: readonly UIMessage[]): void {
    const { queue } = this.state.get();
    const left = queue.filter((item) => !messages.some((message) => message.id === item.id));
    if (left.length !== queue.length) this.#setQueue(left);
  }

  #statusChanged(): void {
    if (this.chat.status === 'submitted' || this.chat.status === 'ready') tellTabs(this.id);
    if (this.live !== undefined && (this.chat.status === 'streaming' || this.chat.status === 'ready')) this.#accepted();
    if (this.live === undefined && this.chat.status === 'streaming' && !this.#hasSent) void this.#bringQuestion();
    if (this.chat.status === 'ready') {
      // The SDK decides first whether it sends automatically, within this turn of the event loop.
      setTimeout(() => this.#settled());
    }
  }

  #settled(): void {
    if (this.chat.status !== 'ready' || this.state.get().loading !== 'ready') return;
    void this.#runTools();
    // The change that the list tells next is this page's own turn, and need not be loaded; but for older questions that
    // it has settled. A turn that began elsewhere, or by speech, left more on the server than its stream contained.
    this.#isOwnChange = this.#hasSent && !this.chat.messages.slice(0, -1).some(hasOpenCalls);
    this.#hasSent = false;
    void refresh().finally(() => {
      this.#isOwnChange = false;
    });
    if (this.chat.messages.at(-1)?.parts.some((part) => part.type.startsWith('tool-')) === true) void this.loadAudit();
    this.#sendNext();
  }

  #failed(problem: Error): void {
    this.#sending = undefined;
    if (!isNetworkFailure(problem)) return;
    void refresh().then(() => {
      if (connection.get().phase !== 'online' || this.#recoveriesLeft === 0) return;
      // The server is there: only this request was lost.
      this.#recoveriesLeft -= 1;
      setTimeout(() => void this.recover(), RECOVERY_PAUSE_MS);
    });
  }

  #listChanged(): void {
    const at = this.#listedAt();
    if (at === undefined || at === this.#known || this.isBusy) return;
    if (this.#isOwnChange) this.#known = at;
    else void this.sync();
  }

  #listedAt(): number | undefined {
    return chats.get()?.find((row) => row.id === this.id)?.updatedAt;
  }

  #setQueue(queue: Waiting[]): void {
    keepQueue(this.id, queue);
    this.#change({ queue });
  }

  #change(change: Partial<SessionState>): void {
    this.state.set((before) => ({ ...before, ...change }));
  }
}
