/**
 * The chat over `/live`: one socket for many turns, with speech and pictures in addition to text.
 *
 * A `ChatTransport` for `useChat` and `Chat` of AI SDK v6 and v7. Turns that the server begins (an answer to speech, an
 * approval that expired) reach a chat through {@link followServerTurns}.
 */

import type { ChatTransport, UIMessage, UIMessageChunk } from 'ai';

import { fetchTicket, loadMessages, type BridgeAddress, type Dialect } from '../bridge-requests.js';
import { toolsField, type DeclaredTools } from '../declared-tools.js';
import { DEFAULT_SDK, type SdkVersion } from '../sdk-version.js';
import { Value, type Observable } from '../value.js';
import { agentField, type AgentChoice, wireOptions } from '../sse-chat-transport.js';
import { BINARY_KIND, decodePcm, encodeBase64, readBinaryFrame, writeBinaryFrame } from './binary-frames.js';
import type { OutgoingBinaryFrame } from './binary-frames.js';
import { parseServerFrame, type AudioWire, type ClientFrame, type ControlFrame, type Modality } from './frames.js';
import { LiveSocket, type ConnectionState } from './live-socket.js';
import { TurnRouter, type Send } from './turn-router.js';
import { TurnStream } from './turn-stream.js';

/** Options of {@link LiveChatTransport}. */
export interface LiveChatTransportOptions extends BridgeAddress {
  /** The chat; that of the first request if left out. */
  chatId?: string | undefined;
  /** The wire form; `native` if left out. */
  dialect?: Dialect | undefined;
  /** The version of the AI SDK: a newer one lets the bridge send the chunks that only it knows. */
  sdk?: SdkVersion | undefined;
  /** Which of the bridge's agents answers: its id, or a function that is asked each time; the default if left out. */
  agent?: AgentChoice | undefined;
  /** Tools of this page for agents whose tools the bridge runs; they stay those of the chat until others are given. */
  tools?: DeclaredTools | undefined;
  /** Further fields of every request. */
  body?: object | undefined;
  /** Whether a ticket is got for each connection; if left out, where `headers` are given. */
  ticket?: boolean | undefined;
  /** How audio travels; `binary` if left out. */
  audioWire?: AudioWire | undefined;
  /** Replaces the global `WebSocket`. */
  WebSocket?: typeof globalThis.WebSocket | undefined;
  /** The shortest and the longest pause before connecting again. */
  minRetryMs?: number | undefined;
  maxRetryMs?: number | undefined;
  pingIntervalMs?: number | undefined;
}

/** A piece of the model's speech: 16-bit samples, mono. */
export interface ModelAudio {
  readonly turn: number;
  readonly sampleRate: number;
  readonly samples: Int16Array;
}

/** What happens outside of the chat's streams. */
export interface LiveEvents {
  /** A piece of speech to play. */
  audio: ModelAudio;
  /** The model begins to speak, has spoken, or was interrupted: play, drain, or be silent at once. */
  'turn-start': { turn: number };
  'turn-end': { turn: number };
  interrupted: { turn: number };
  /** What the model answers with from here on. */
  modality: { modality: Modality };
  /** A data chunk outside any turn, such as a transcription of the user's speech. */
  data: UIMessageChunk;
  /** A frame was refused, or something failed that nobody asked for; the connection stays. */
  error: { code: string; message: string };
  /** A turn has ended while the connection was lost: the messages have to be loaded again. */
  stale: { chatId: string };
}

/** How long a reconnected server may take to tell what was missed. */
const STALE_AFTER_MS = 5_000;
/** How long a resume without a follower waits for a running turn after the socket is open. */
const RESUME_WAIT_MS = 1_000;
/** More than a second of audio that cannot leave: what is older than that helps nobody. */
const MAX_BUFFERED_AUDIO_BYTES = 64_000;

interface PendingSend extends Send {
  readonly requestId: string;
  readonly frame: ClientFrame;
  /** Whether the frame has left on this connection. */
  isSent: boolean;
  /** Whether it left on a connection that was lost, so that nobody knows if it arrived. */
  isInDoubt: boolean;
  /** The user's message that it brings. */
  readonly userMessageId: string | undefined;
}

/** A `ChatTransport` over `/live`. */
export class LiveChatTransport<Message extends UIMessage = UIMessage> implements ChatTransport<Message> {
  /** Every resume holds the message from its first chunk. */
  readonly resumeStreamIsReplay = true;
  readonly #options: LiveChatTransportOptions;
  readonly #socket: LiveSocket;
  readonly #router: TurnRouter;
  readonly #serverTurns = new Value(0);
  readonly #listeners = new Map<keyof LiveEvents, Set<(event: never) => void>>();
  #chatId: string | undefined;
  #messages: () => readonly UIMessage[] = () => [];
  #isFollowed = false;
  #requests = 0;
  #sequence = 0;
  #turn = 0;
  #owesInterrupt = false;
  #staleTimer: ReturnType<typeof setTimeout> | undefined;

  constructor(options: LiveChatTransportOptions = {}) {
    this.#options = options;
    this.#chatId = options.chatId;
    this.#router = new TurnRouter({
      sdk: options.sdk ?? DEFAULT_SDK,
      messageOf: (id) => this.#messages().find((message) => message.id === id),
      onServerTurn: () => this.#serverTurns.set(this.#router.serverTurns),
      onStale: () => this.#emit('stale', { chatId: this.#chatId ?? '' }),
    });
    this.#socket = new LiveSocket({
      ...options,
      address: () => this.#address(),
      onText: (text) => this.#receive(text),
      onBinary: (bytes) => this.#receiveBinary(bytes),
      onOpen: () => this.#opened(),
      onLost: () => this.#lost(),
      onClosed: (reason) => this.#router.fail(new Error(reason)),
    });
  }

  /** How the connection is. */
  get connection(): Observable<ConnectionState> {
    return this.#socket.state;
  }

  /** The time that the last ping took, in milliseconds. */
  get roundTripMs(): Observable<number | undefined> {
    return this.#socket.roundTripMs;
  }

  /** How many turns that the server began wait for `resumeStream`; see {@link followServerTurns}. */
  get serverTurns(): Observable<number> {
    return this.#serverTurns;
  }

  /** The message that is being streamed. */
  get currentMessageId(): string | undefined {
    return this.#router.currentMessageId;
  }

  /** Connects, which the first request does otherwise. */
  connect(): void {
    this.#socket.connect();
  }

  /** Closes the connection in order. Turns go on at the server; `connect` comes back to them. */
  close(): void {
    clearTimeout(this.#staleTimer);
    this.#owesInterrupt = false;
    this.#socket.close();
    this.#router.fail(new DOMException('the connection was closed', 'AbortError'));
    this.#serverTurns.set(0);
  }

  /** Calls `listener` for each event of this kind, until the returned function is called. */
  on<Kind extends keyof LiveEvents>(kind: Kind, listener: (event: LiveEvents[Kind]) => void): () => void {
    const listeners = this.#listeners.get(kind) ?? new Set();
    this.#listeners.set(kind, listeners.add(listener));
    return () => listeners.delete(listener);
  }

  /** Stops what the model says, and the turn with it; without a connection, as soon as there is one. */
  interrupt(reason?: string): void {
    const isSent = this.#socket.send({ type: 'interrupt', ...(reason !== undefined && { reason }) });
    this.#owesInterrupt = !isSent && this.#socket.state.get().status !== 'idle';
  }

  /** Asks for spoken or written answers. */
  setModality(modality: Modality): void {
    this.#socket.send({ type: 'modality', modality });
  }

  /** The user begins or ends an utterance by hand. */
  audioControl(action: 'start' | 'stop'): void {
    if (action === 'start') this.#turn += 1;
    this.#socket.send({ type: 'audio_control', action });
  }

  /** Sends microphone audio, 16-bit samples at 16 kHz; false where it could not leave and was dropped. */
  sendAudio(samples: Int16Array, { preRoll = false, last = false } = {}): boolean {
    const bytes = new Uint8Array(samples.buffer, samples.byteOffset, samples.byteLength);
    return this.#sendMedia({ kind: BINARY_KIND.microphone, preRoll, last, payload: bytes }, (chunk) => ({
      type: 'audio_chunk',
      chunk,
      sampleRate: 16_000,
      channels: 1,
      bitDepth: 16,
    }));
  }

  /** Sends a picture of the camera or the screen; false where it could not leave and was dropped. */
  sendPicture(jpeg: Uint8Array): boolean {
    return this.#sendMedia({ kind: BINARY_KIND.jpeg, payload: jpeg }, (data) => ({
      type: 'video_frame',
      data,
      mediaType: 'image/jpeg',
    }));
  }

  /** Answers an approval or hands in the output of a client tool without a chat request. */
  sendToolResult(result: { toolCallId: string; result?: unknown; status?: 'approved' | 'rejected' }): boolean {
    return this.#socket.send({ type: 'tool_result', ...result });
  }

  /** Sends a chat request; see the AI SDK's `ChatTransport`. */
  readonly sendMessages: ChatTransport<Message>['sendMessages'] = async (request) => {
    const { chatId, messageId, abortSignal, trigger } = request;
    this.#adopt(chatId);
    const target = request.messages.find((message) => message.id === messageId);
    const continues = target ?? request.messages.at(-1);
    const isAnswer = trigger === 'submit-message' && continues?.role === 'assistant';
    // The bridge takes the last message: for an answer that is the one which was answered.
    const messages = isAnswer ? request.messages.slice(0, request.messages.indexOf(continues) + 1) : request.messages;
    const stream = new TurnStream(isAnswer ? continues : undefined, this.#options.sdk ?? DEFAULT_SDK);
    const requestId = `${++this.#requests}`;
    const send: PendingSend = {
      requestId,
      continues: isAnswer ? continues : undefined,
      knownIds: new Set(messages.map((message) => message.id)),
      stream,
      frame: {
        ...this.#options.body,
        ...request.body,
        ...wireOptions(this.#options),
        ...agentField(this.#options.agent),
        ...toolsField(this.#options.tools),
        type: 'message',
        requestId,
        id: chatId,
        messages,
        trigger,
        ...(messageId !== undefined && { messageId }),
      },
      isSent: false,
      isInDoubt: false,
      userMessageId: isAnswer ? undefined : messages.at(-1)?.id,
    };
    if (abortSignal?.aborted === true) throw abortSignal.reason;
    abortSignal?.addEventListener('abort', () => this.#cancelled(send), { once: true });
    this.#router.expect(send);
    this.#socket.connect();
    this.#flush();
    return stream.readable;
  };

  /** Gives a chat the turn that runs on the server, if there is one; see the AI SDK's `ChatTransport`. */
  readonly reconnectToStream: ChatTransport<Message>['reconnectToStream'] = async ({ chatId, abortSignal }) => {
    this.#adopt(chatId);
    this.#socket.connect();
    // A follower is notified when a turn comes.
    if (!this.#isFollowed && this.#router.serverTurns === 0) await this.#firstTurn(abortSignal);
    const turn = this.#router.takeServerTurn();
    this.#serverTurns.set(this.#router.serverTurns);
    if (turn === undefined) return null;
    if (abortSignal?.aborted === true) {
      this.#router.putBack(turn);
      return null;
    }
    abortSignal?.addEventListener('abort', () => turn.stream.isOpen && this.interrupt(), { once: true });
    return turn.stream.readable;
  };

  /** Used by {@link followServerTurns}: whether older messages have answers to send; set by `buildUseChatOptions`. */
  takeOlderAnswers: (messages: readonly UIMessage[]) => boolean = () => false;

  /** Used by {@link followServerTurns}: tells what messages the chat has, and that it takes turns as they come. */
  attach(messages: () => readonly UIMessage[]): () => void {
    this.#messages = messages;
    this.#isFollowed = true;
    return () => {
      this.#isFollowed = false;
      this.#messages = () => [];
    };
  }

  get #waiting(): readonly PendingSend[] {
    return this.#router.waiting as readonly PendingSend[];
  }

  /** What may have arrived on a connection that was lost. */
  get #inDoubt(): readonly PendingSend[] {
    return this.#waiting.filter((send) => send.isInDoubt);
  }

  get #wire(): AudioWire {
    return this.#options.audioWire ?? 'binary';
  }

  #sendMedia(frame: Omit<OutgoingBinaryFrame, 'turn' | 'sequence'>, jsonOf: (base64: string) => ClientFrame): boolean {
    if (this.#socket.bufferedBytes > MAX_BUFFERED_AUDIO_BYTES) return false;
    return this.#socket.send(
      this.#wire === 'json'
        ? jsonOf(encodeBase64(frame.payload))
        : writeBinaryFrame({ ...frame, turn: this.#turn, sequence: this.#sequence++ }),
    );
  }

  #adopt(chatId: string): void {
    this.#chatId ??= chatId;
    if (this.#chatId !== chatId) {
      throw new Error(`this transport serves the chat ${this.#chatId}; create another one for ${chatId}`);
    }
  }

  async #address(): Promise<string> {
    const { baseUrl = '', headers, ticket = headers !== undefined } = this.#options;
    const url = new URL(`${baseUrl}/live`, globalThis.location?.href);
    url.protocol = url.protocol.replace('http', 'ws');
    if (this.#chatId !== undefined) url.searchParams.set('chat', this.#chatId);
    const query = { ...wireOptions(this.#options), ...agentField(this.#options.agent) };
    for (const [name, value] of Object.entries(query)) url.searchParams.set(name, String(value));
    if (ticket) url.searchParams.set('ticket', await fetchTicket(this.#options));
    return url.href;
  }

  #opened(): void {
    this.#socket.send({ type: 'audio_config', wire: this.#wire });
    if (this.#owesInterrupt) this.interrupt();
    this.#flush();
    if (!this.#router.isTorn && this.#inDoubt.length === 0) return;
    // If the server has sent nothing of it by then, it has ended.
    this.#staleTimer = setTimeout(() => this.#router.giveUp(this.#inDoubt), STALE_AFTER_MS);
    for (const send of this.#inDoubt) void this.#resend(send);
  }

  #lost(): void {
    clearTimeout(this.#staleTimer);
    this.#router.lost();
    for (const send of this.#waiting) {
      send.isInDoubt ||= send.isSent;
      send.isSent = false;
    }
  }

  /** Sends what waits, but for what may have arrived already. */
  #flush(): void {
    for (const send of this.#waiting) {
      if (!send.isSent && !send.isInDoubt) send.isSent = this.#socket.send(send.frame);
    }
  }

  /** Answers may be sent again. A user's message may not: it would cut its own answer, so the bridge is asked first. */
  async #resend(send: PendingSend): Promise<void> {
    if (send.userMessageId !== undefined) {
      const known = await loadMessages(this.#options, this.#chatId as string).catch(() => undefined);
      const arrived = known === undefined || known.some((message) => message.id === send.userMessageId);
      if (arrived) return;
    }
    if (!this.#router.waiting.includes(send)) return;
    send.isInDoubt = false;
    this.#flush();
  }

  /** The chat reads no more: the turn is stopped, and what it still tells has no reader. */
  #cancelled(send: PendingSend): void {
    const isWaiting = this.#router.waiting.includes(send);
    if (!send.stream.isOpen && !isWaiting) return;
    if (isWaiting && !send.isSent) this.#router.drop(send);
    if (send.isSent || send.isInDoubt) this.interrupt();
    send.stream.fail(new DOMException('the request was stopped', 'AbortError'));
  }

  #receive(text: string): void {
    const frame = parseServerFrame(text);
    switch (frame?.kind) {
      case 'chunk':
        this.#takeChunk(frame.chunk);
        break;
      case 'done':
        this.#router.done();
        break;
      case 'control':
        this.#takeControl(frame.control);
        break;
    }
  }

  #takeChunk(chunk: UIMessageChunk): void {
    if (chunk.type === 'data-pcm') {
      const { chunk: base64, sampleRate, turn } = chunk.data as { chunk: string; sampleRate: number; turn: number };
      this.#emit('audio', { turn, sampleRate, samples: decodePcm(base64) });
    } else if (!this.#router.chunk(this.#withAnswer(chunk))) {
      this.#emit('data', chunk);
    }
  }

  /** A chat reads a stream later than it comes, and has no other way to know which answer a transcription belongs to. */
  #withAnswer(chunk: UIMessageChunk): UIMessageChunk {
    const answerId = this.#router.currentMessageId;
    if (chunk.type !== 'data-transcription' || answerId === undefined) return chunk;
    return { ...chunk, data: { ...(chunk.data as object), answerId } };
  }

  #takeControl(control: ControlFrame): void {
    switch (control.type) {
      case 'pong':
        this.#socket.pong(control.timestamp);
        break;
      case 'reconnect':
        this.#socket.retryAfter(control.afterMs);
        break;
      case 'error':
        this.#refused(control);
        break;
      case 'turn-start':
        this.#router.turnStart();
        this.#emit('turn-start', control);
        break;
      case 'turn-end':
      case 'interrupted':
      case 'modality':
        this.#emit(control.type, control as never);
        break;
    }
  }

  #refused({ code, message, requestId }: { code: string; message: string; requestId?: string }): void {
    this.#emit('error', { code, message });
    const send = this.#waiting.find((send) => send.requestId === requestId);
    if (send === undefined) return;
    this.#router.drop(send);
    send.stream.fail(new Error(message));
  }

  #receiveBinary(bytes: ArrayBuffer): void {
    const frame = readBinaryFrame(bytes);
    if (frame?.kind !== BINARY_KIND.model) return;
    this.#emit('audio', { turn: frame.turn, sampleRate: 24_000, samples: frame.samples });
  }

  /** Waits until a turn is there, or long enough after the socket is open that there is none. */
  #firstTurn(signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve) => {
      let timer: ReturnType<typeof setTimeout> | undefined;
      const check = () => {
        const { status } = this.#socket.state.get();
        if (status === 'open') timer ??= setTimeout(finish, RESUME_WAIT_MS);
        if (this.#router.serverTurns > 0 || status === 'closed' || status === 'idle') finish();
      };
      const finish = () => {
        clearTimeout(timer);
        for (const stop of stops) stop();
        resolve();
      };
      const stops = [this.#socket.state.subscribe(check), this.#serverTurns.subscribe(check)];
      signal?.addEventListener('abort', finish, { once: true });
      check();
    });
  }

  #emit<Kind extends keyof LiveEvents>(kind: Kind, event: LiveEvents[Kind]): void {
    for (const listener of this.#listeners.get(kind) ?? []) listener(event as never);
  }
}
