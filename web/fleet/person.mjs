// Somebody at a page, who holds a conversation and does what people do when a connection breaks: wait, resume, load the page
// again, send again what did not arrive.

import { randomUUID } from 'node:crypto';

import { chunksOf } from '../chat/server.mjs';
import { CONFIRMATION, nameOf, show, toolsOf } from '../chat/session.mjs';
import { endpoints } from './fleet.mjs';
import { CLIENT_TOOLS, openPage } from './pages.mjs';

// So long nobody waits in front of a page on which nothing moves. Longer than a replica is ever paused.
const PATIENCE_MS = 25_000;
// So long it may take to get over everything that happens to one turn.
const TURN_LIMIT_MS = 120_000;
// Pages look again after this time when they could not reach the server.
const AGAIN_MS = 200;
const LOOK_MS = 5;
// So often in a row a chat must be found at rest: what it sends automatically it sends within one turn of the event loop.
const REST_CHECKS = 4;
// More than any conversation has, breaks included: beyond it, a page is going round in circles.
const REQUEST_LIMIT = 200;
// So long it may take to send what was answered.
const SENT_LIMIT_MS = 2_000;
// How long a turn is held for an output at most.
const LONGEST_HOLD_MS = 5_000;
const TERMINAL = /"type":"(finish|error|abort)"/;

/** The conversation did not go as it must. */
export class Violation extends Error {}

export class Person {
  #page;
  #seen = 0;

  /** `happened(moment, person)` hears what happens, for those who choose moments. */
  constructor({ fleet, page, conversation, dialect, user, random, happened = () => {} }) {
    this.fleet = fleet;
    this.page = page;
    this.conversation = conversation;
    this.dialect = dialect;
    this.user = user;
    this.random = random;
    this.tell = happened;
    this.id = `${conversation.name.replaceAll(/[^a-z]+/g, '-')}-${randomUUID().slice(0, 8)}`;
    this.statuses = [];
    this.api = endpoints(fleet.url, user, (status) => this.statuses.push(status));
    const own = { ...(dialect && { dialect }), ...(page.sdk === 7 && { sdk: 7 }) };
    this.body = own;
    this.query = Object.keys(own).length > 0 ? `?${new URLSearchParams(own)}` : '';
    this.trace = [];
    this.requests = [];
    /** What the server has acknowledged: ids of messages, decisions by approval, outputs by call. */
    this.acknowledged = { messages: new Set(), decisions: new Map(), outputs: new Map() };
    this.breaks = 0;
    this.errors = [];
    this.regenerated = 0;
    this.unasked = 0;
    this.twice = 0;
    this.began = Date.now();
  }

  get chat() {
    return this.#page.chat;
  }

  get name() {
    const dialect = this.dialect ? `, ${this.dialect}` : '';
    return `${this.conversation.name} (${this.page.name}${dialect})`;
  }

  get message() {
    return this.chat.messages.at(-1);
  }

  /** Whether this is a call of the message that is shown. */
  has(toolCallId) {
    return this.#page !== undefined && toolsOf(this.message).some((part) => part.toolCallId === toolCallId);
  }

  note(text) {
    this.trace.push(`${String(Date.now() - this.began).padStart(6)} ms  ${text}`);
  }

  /** Holds the whole conversation. */
  async talk() {
    this.#open([]);
    try {
      for (const turn of this.conversation.turns) await this.#turn(turn);
      this.note('done');
    } finally {
      this.#page.close();
    }
  }

  async #turn(turn) {
    this.turn = turn;
    this.deadline = Date.now() + TURN_LIMIT_MS;
    const before = this.chat.messages.length;
    this.#begin(turn);
    for (;;) {
      await this.#rest();
      if (Date.now() > this.deadline) throw this.violation('the turn does not come to its end');
      if (this.#isBroken()) {
        await this.#getOver(before);
        continue;
      }
      if (turn.regenerate === undefined && !this.#hasAsked(before)) {
        if (this.chat.messages.length > before) {
          // It arrived between the two requests of a page that loads.
          this.note('an answer is shown without its question');
          this.unasked += 1;
          await this.#getOver(before);
          continue;
        }
        this.note('the message never arrived: sending it again');
        this.#begin(turn);
        continue;
      }
      if (this.message?.role !== 'assistant') {
        this.note('no answer is shown');
        await this.#getOver(before);
        continue;
      }
      if (this.message.metadata?.ended === 'interrupted') {
        // The server gave up; what remains is the button that every chat has.
        this.note('the answer was broken off: asking for it again');
        this.regenerated += 1;
        if (this.regenerated > 3) throw this.violation('the answer is broken off again and again');
        this.#start(() => this.chat.regenerate());
        continue;
      }
      const open = this.#openCalls();
      if (turn.ignore && open.length > 0) {
        await this.#untilSettled();
        continue;
      }
      if (open.length === 0) {
        if (!this.#isSettled()) {
          this.note('a call has no outcome, and nothing runs');
          await this.#getOver(before);
          continue;
        }
        this.tell('ended', this);
        return;
      }
      this.tell('asked', this);
      await this.#answer(turn, open);
    }
  }

  #begin(turn) {
    if (turn.regenerate) {
      this.note('regenerate');
      this.#start(() => this.chat.regenerate());
    } else {
      this.note(`say ${turn.say}`);
      this.#start(() => this.chat.sendMessage({ text: turn.say }));
    }
    this.tell('sent', this);
  }

  /** Starts something that the page does; that it failed is seen in the chat's status. */
  #start(act) {
    this.#seen = this.requests.length;
    this.pending = Promise.resolve(act()).catch((problem) => this.note(`failed: ${problem}`));
  }

  /** Answers what is open, all of it or one after the other, in any order. */
  async #answer(turn, open) {
    this.#seen = this.requests.length;
    const order = [...open];
    if (this.random.chance(0.5)) order.reverse();
    for (const call of order) {
      if (call.kind === 'question') {
        const approved = (turn.decide?.[call.tool] ?? [])[call.index];
        if (approved === undefined) throw this.violation(`an unexpected question about ${call.tool}`);
        this.note(`${approved ? 'approve' : 'deny'} ${call.tool} ${call.index} ${call.approval}`);
        this.tell('deciding', this);
        void this.chat.addToolApprovalResponse({ id: call.approval, approved });
        if (approved && CLIENT_TOOLS.includes(call.tool)) this.#output(turn, call.tool, call.toolCallId);
      } else {
        this.#output(turn, call.tool, call.toolCallId);
      }
    }
    // The page sends what was answered within one turn of the event loop, or has nothing to send yet.
    const isSent = () => this.requests.length > this.#seen || this.page.library || this.chat.status === 'error';
    await this.#until(isSent, 'the answer to be sent', SENT_LIMIT_MS).catch(() => this.note('the page sends nothing'));
  }

  #output(turn, tool, toolCallId) {
    const output = turn.outputs[tool];
    this.note(`output of ${tool}`);
    void this.chat.addToolOutput({ tool, toolCallId, output });
  }

  /** A page that was loaded again runs the tools that were approved before; until then its chat sends the approval again. */
  #supplyOwed() {
    if (this.message?.role !== 'assistant' || this.turn?.outputs === undefined) return;
    const owed = this.#openCalls().filter(({ kind, isApproved }) => kind === 'output' && isApproved);
    for (const { tool, toolCallId } of owed) {
      if (this.supplied.has(toolCallId)) continue;
      this.supplied.add(toolCallId);
      this.#output(this.turn, tool, toolCallId);
    }
  }

  /** Waits, as somebody who has gone away would not, until the server has settled everything on its own. */
  async #untilSettled() {
    const limit = this.fleet.approvalMs + PATIENCE_MS + 20_000;
    this.note('leave the question alone');
    await this.#until(
      async () => {
        const messages = await this.api.messages(this.id, this.query).catch(() => []);
        const last = messages.at(-1);
        return last?.role === 'assistant' && !toolsOf(last).some(isOpen);
      },
      'the question to expire',
      limit,
    );
    while (!(await this.#load())) if (Date.now() > this.deadline) throw this.violation('the chat cannot be loaded');
  }

  /** Whether the page shows that something went wrong, or an answer without its end. */
  #isBroken() {
    if (this.chat.status === 'error') return true;
    const last = this.requests.at(-1);
    if (this.page.library || last === undefined || last.status !== 200) return false;
    if (TERMINAL.test(last.text)) return false;
    throw this.violation('the stream ended without an end, and the page shows no error');
  }

  /** Gets over a break: resumes where the page can, or loads it again, until the server shows where it is. */
  async #getOver(before) {
    this.breaks += 1;
    const shown = this.chat.error?.message;
    this.note(`broken: ${shown ?? 'no error'} [${this.requests.at(-1)?.problem ?? this.requests.at(-1)?.status ?? ''}]`);
    if (shown !== undefined) this.errors.push(shown.slice(0, 160).replaceAll(/[0-9a-f-]{8,}|\d+/g, '…'));
    this.tell('broken', this);
    if (this.page.library) await this.#rest();
    if (this.page.resumes && this.random.chance(0.6)) {
      this.note('resume in place');
      this.#start(() => this.chat.resumeStream());
      await this.#rest();
      const last = this.requests.at(-1);
      if (!this.page.library && last.status === 200 && this.chat.status === 'ready' && TERMINAL.test(last.text)) return;
    }
    for (;;) {
      if (Date.now() > this.deadline) throw this.violation('the break is not got over');
      if (!(await this.#load())) continue;
      await this.#rest();
      if (this.chat.status === 'error') {
        this.note(`resume: ${this.chat.error?.message}`);
        await this.#pause();
        continue;
      }
      if (this.#isShownTwice()) {
        this.note('the page shows the message twice');
        await this.#pause();
        continue;
      }
      const last = this.message;
      // What is asked and not answered runs somewhere, or is about to be taken over.
      const waits = last?.role === 'user' && this.chat.messages.length > before;
      const decided = last?.role === 'assistant' && !this.#openCalls().length && !this.#isSettled();
      if (!waits && !decided) return;
      this.note(waits ? 'asked, and nothing runs' : 'decided, and nothing runs');
      await this.#pause();
    }
  }

  /**
   * Whether a chat that cannot resume in place was sent a message again that it had just loaded: while an answer without its
   * output is held, that message is listed and its turn is open. Whoever sees everything twice loads the page again.
   */
  #isShownTwice() {
    const { method, status, text } = this.requests.at(-1) ?? {};
    if (this.page.resumes || method !== 'GET' || status !== 200) return false;
    const [start] = chunksOf(text);
    if (!this.loaded.has(start?.messageId)) return false;
    this.twice += 1;
    if (this.twice * AGAIN_MS > LONGEST_HOLD_MS * 2) throw this.violation('what was loaded is sent again and again');
    return true;
  }

  /** Loads the page again: a new chat with the stored messages, which then resumes. */
  async #load() {
    let messages;
    try {
      messages = await this.api.messages(this.id, this.dialect ? `?dialect=${this.dialect}` : '');
    } catch (problem) {
      this.note(`load: ${problem.cause ?? problem.message}`);
      await this.#pause();
      return false;
    }
    this.#checkAcknowledged(messages);
    this.note(`loaded ${messages.map(({ role, parts }) => `${role[0]}${parts.length}`).join(' ')}`);
    this.#page.close();
    this.#open(messages);
    this.loaded = new Set(messages.map(({ id }) => id));
    if (!this.page.library) this.#start(() => this.chat.resumeStream());
    return true;
  }

  /** What the library's hook does when a turn has ended unseen. */
  async loadAgain(chat) {
    this.note('stale');
    const messages = await this.api.messages(this.id, this.dialect ? `?dialect=${this.dialect}` : '').catch(() => []);
    if (messages.length === 0 || chat !== this.chat) return;
    chat.messages = messages;
    chat.clearError();
  }

  #open(messages) {
    this.pending = undefined;
    this.supplied = new Set();
    this.#page = openPage(this.page, this, messages);
    this.#page.live?.connect();
  }

  /** A message that the server has begun to answer is there for good. */
  #checkAcknowledged(messages) {
    const ids = new Set(messages.map(({ id }) => id));
    for (const id of this.acknowledged.messages) {
      if (!ids.has(id)) throw this.violation(`message ${id} was acknowledged and is lost`);
    }
  }

  /** Called by the page for every request. */
  asked(request) {
    this.requests.push(request);
    if (this.requests.length > REQUEST_LIMIT) {
      this.loops = true;
      throw new Error('too many requests');
    }
    request.sentAt = Date.now();
    const last = request.body?.messages?.at(-1);
    if (last?.role === 'assistant') this.tell('decided', this);
  }

  /** Called by the page for every piece of an answer. */
  received(request) {
    if (request.status !== 200) return;
    if (request.heard) return void (request.text.length > 2_000 && this.tell('text', this));
    request.heard = true;
    this.tell('text', this);
    if (request.method !== 'POST' || request.body.trigger === 'regenerate-message') return;
    const last = request.body.messages.at(-1);
    if (last.role === 'user') this.acknowledged.messages.add(last.id);
    for (const part of last.role === 'assistant' ? toolsOf(last) : []) {
      if (part.approval?.approved !== undefined) this.acknowledged.decisions.set(part.approval.id, part.approval.approved);
      const isOurs = CLIENT_TOOLS.includes(nameOf(part)) && part.state === 'output-available';
      if (isOurs) this.acknowledged.outputs.set(part.toolCallId, part.output);
    }
  }

  #hasAsked(before) {
    return this.chat.messages.slice(before).some(({ role }) => role === 'user');
  }

  /** Questions, and client tools whose outputs are missing; `index` counts the calls of one tool. */
  #openCalls() {
    const tools = toolsOf(this.message);
    const counts = new Map();
    const open = [];
    for (const part of tools) {
      const name = nameOf(part);
      const tool = name === CONFIRMATION ? part.input?.originalFunctionCall?.name : name;
      const index = counts.get(name + tool) ?? 0;
      counts.set(name + tool, index + 1);
      const toolCallId = name === CONFIRMATION ? part.input.originalFunctionCall.id : part.toolCallId;
      if (part.state === 'approval-requested') {
        open.push({ kind: 'question', tool, index, toolCallId, approval: part.approval.id });
      } else if (CLIENT_TOOLS.includes(name) && this.#lacksOutput(part, tools)) {
        open.push({ kind: 'output', tool, toolCallId, isApproved: part.state === 'approval-responded' });
      }
    }
    return open;
  }

  #lacksOutput(part, tools) {
    if (part.state === 'approval-responded') return part.approval.approved;
    if (part.state !== 'input-available') return false;
    const asked = tools.find(
      (other) => nameOf(other) === CONFIRMATION && other.input.originalFunctionCall.id === part.toolCallId,
    );
    return asked === undefined || asked.approval?.approved === true;
  }

  #isSettled() {
    return toolsOf(this.message).every((part) => /^output-/.test(part.state));
  }

  async #rest() {
    let seen = 0;
    let moved = Date.now();
    let before = '';
    // What a chat sends automatically belongs to what it was told to do; it sends it again and again while it lacks an output.
    const sendsAgain = () => this.requests.length > this.#seen + 1;
    let isPending = true;
    void Promise.resolve(this.pending).then(() => (isPending = false));
    for (;;) {
      const { status } = this.chat;
      const live = this.#page.live?.connection.get().status;
      // A chat over /live is at rest when its connection is.
      const rests = !isPending && (status === 'ready' || status === 'error') && (live === undefined || live === 'open');
      seen = rests ? seen + 1 : 0;
      if (seen >= REST_CHECKS && (live === undefined || Date.now() - moved > 100)) return;
      const now = this.#picture();
      if (now !== before) [before, moved] = [now, Date.now()];
      if (!isPending || sendsAgain()) this.#supplyOwed();
      if (this.loops) throw this.violation('the page goes round in circles');
      if (Date.now() - moved > PATIENCE_MS) {
        this.note(`nothing moves: ${status} ${live ?? ''}`);
        this.stalls = (this.stalls ?? 0) + 1;
        if (this.stalls > 3) throw this.violation('nothing moves');
        this.#page.close();
        await Promise.race([this.chat.stop(), this.#pause()]);
        while (!(await this.#load()) && Date.now() < this.deadline);
        moved = Date.now();
      }
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  /** What of the page moves. */
  #picture() {
    const { parts = [] } = this.message ?? {};
    const last = JSON.stringify(parts.at(-1) ?? '').length;
    return [this.chat.status, this.requests.length, this.requests.at(-1)?.text.length, parts.length, last].join();
  }

  async #until(condition, what, limit) {
    for (const end = Date.now() + limit; !(await condition()); ) {
      if (Date.now() > end) throw this.violation(`waited too long for ${what}`);
      await new Promise((resolve) => setTimeout(resolve, LOOK_MS));
    }
  }

  #pause() {
    return new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }

  violation(text) {
    return new Violation(`${this.name}, ${this.user.user}/${this.id}: ${text}`);
  }

  /** All that is known of the conversation, for whoever looks for the reason. */
  story() {
    const requests = this.requests.slice(-12).map((request) => {
      const last = request.body?.messages?.at(-1);
      const parts = last && `${last.role} [${toolsOf(last).map((part) => `${nameOf(part)} ${part.state}`)}]`;
      const chunks = request.text.startsWith('data:') ? safeChunks(request.text) : request.text.slice(0, 200);
      return `  +${request.sentAt - this.began} ${request.method} ${parts ?? ''} -> ${request.status ?? request.problem} ${chunks}`;
    });
    const messages = this.#page ? show(this.chat.messages) : '';
    return [this.name, `chat ${this.id}`, ...this.trace, 'requests:', ...requests, 'messages of the page:', messages].join('\n');
  }
}

function safeChunks(text) {
  const whole = text.slice(0, text.lastIndexOf('\n\n') + 2);
  const types = chunksOf(whole).map(({ type }) => type);
  return types.join(' ').replaceAll(/(text-delta )+/g, 'text-delta… ');
}

function isOpen(part) {
  return part.state === 'approval-requested' || part.state === 'input-available' || part.state === 'approval-responded';
}
