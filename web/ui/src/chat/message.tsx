/** One message: the user's as a bubble, the agent's as text with cards, pictures and sources. */
import { isToolUIPart, type UIMessage } from 'ai';
import { memo, useRef } from 'react';

import { agent } from '../lib/agents';
import { useTranslate } from '../lib/i18n';
import { useStore } from '../lib/store';
import { askedCalls } from '../tools/asked';
import { ToolCard } from '../tools/tool-card';
import { AnswerText } from './answer-text';
import type { CallRecord } from './call-records';
import { type Call, callOf } from './calls';
import { MediaPart } from './media';
import { MessageActions } from './message-actions';
import { EndedNote } from './notices';
import { Reasoning } from './reasoning';
import type { ChatSession } from './session';
import { type Source, Sources } from './sources';
import { UserMessage } from './user-message';

interface Props {
  message: UIMessage;
  session: ChatSession;
  records: ReadonlyMap<string, CallRecord>;
  isStreaming: boolean;
  isLast: boolean;
  /** Nothing runs: what this message waits for is the user's to give. */
  isAtRest: boolean;
}

/** Renders only when something of it changed: a finished message is left alone while the next one streams. */
export const Message = memo(function Message(props: Props) {
  const t = useTranslate();
  const { message } = props;
  const isUser = message.role === 'user';
  const renders = useRef(0);
  renders.current += 1;
  return (
    <article
      aria-label={isUser ? t('you') : t('assistant')}
      data-testid={`message-${message.role}`}
      data-message-id={message.id}
      data-renders={renders.current}
      className="turn group/message py-2.5"
    >
      {isUser ? <UserMessage message={message} session={props.session} /> : <AssistantMessage {...props} />}
    </article>
  );
}, areSame);

/** Times of calls come in a new map each time; only those of this message's calls count. */
function areSame(before: Props, after: Props): boolean {
  return (
    before.message === after.message &&
    before.isStreaming === after.isStreaming &&
    before.isLast === after.isLast &&
    before.isAtRest === after.isAtRest &&
    before.session === after.session &&
    (before.records === after.records || !after.message.parts.some(isToolUIPart))
  );
}

function AssistantMessage({ message, session, records, isStreaming, isLast, isAtRest }: Props) {
  // It is known where a tool runs only when the server has listed its tools.
  useStore(agent);
  const calls = message.parts.filter(isToolUIPart).flatMap((part) => callOf(part, message) ?? []);
  const asked = new Set(isLast && isAtRest ? askedCalls(message).map(({ id }) => id) : []);
  const sources = message.parts.filter((part): part is Source => part.type === 'source-url' || part.type === 'source-document');
  return (
    <>
      {message.parts.map((part, index) => (
        <Part
          key={isToolUIPart(part) ? part.toolCallId : index}
          part={part}
          calls={calls}
          asked={asked}
          session={session}
          records={records}
          isStreaming={isStreaming}
        />
      ))}
      <Sources sources={sources} />
      <EndedNote metadata={message.metadata} />
      {!isStreaming && <MessageActions message={message} session={session} isLast={isLast} />}
    </>
  );
}

interface PartProps {
  part: UIMessage['parts'][number];
  calls: Call[];
  /** The calls that ask the user. */
  asked: ReadonlySet<string>;
  session: ChatSession;
  records: ReadonlyMap<string, CallRecord>;
  isStreaming: boolean;
}

function Part({ part, calls, asked, session, records, isStreaming }: PartProps) {
  if (isToolUIPart(part)) {
    const call = calls.find((other) => other.part === part);
    const isAsked = call !== undefined && asked.has(call.id);
    return call && <CallCard call={call} calls={calls} isAsked={isAsked} session={session} record={records.get(call.id)} />;
  }
  switch (part.type) {
    case 'text':
      return <AnswerText text={part.text} isStreaming={isStreaming && part.state !== 'done'} />;
    case 'reasoning':
      return part.text === '' ? null : <Reasoning text={part.text} isStreaming={isStreaming && part.state !== 'done'} />;
    case 'file':
      return (
        <MediaPart url={part.url} mediaType={part.mediaType} filename={part.filename ?? fileNameOf(part.providerMetadata)} />
      );
    case 'data-image':
      return <DataImage data={part.data} />;
    case 'data-executable-code':
    case 'data-code-execution-result':
      return <RanCode data={part.data} />;
    default:
      return null;
  }
}

/** The name that an agent gave to a file: the SDK's chunk has no field for it. */
function fileNameOf(metadata: unknown): string | undefined {
  const name = (metadata as { adk?: { filename?: unknown } } | undefined)?.adk?.filename;
  return typeof name === 'string' ? name : undefined;
}

function CallCard({
  call,
  calls,
  isAsked,
  session,
  record,
}: {
  call: Call;
  calls: Call[];
  isAsked: boolean;
  session: ChatSession;
  record: CallRecord | undefined;
}) {
  // Settled questions are no longer among those that wait together.
  const asked = calls.filter((other) => other.approval !== undefined && !other.part.state.startsWith('output-'));
  const place = { index: asked.indexOf(call) + 1, count: asked.length };
  const id = call.approval?.id;
  const progress = useStore(session.progress).get(call.id);
  return (
    <ToolCard
      call={call}
      record={record}
      progress={progress}
      place={place}
      isAsked={isAsked}
      onAnswer={(outcome) => void session.answer(call, outcome)}
      onRespond={(approved, reason) => id !== undefined && void session.respond([id], approved, reason)}
      onExpired={session.expired}
    />
  );
}

/** Dialect `adk` has images as data. */
function DataImage({ data }: { data: unknown }) {
  const { mediaType = 'image/png', data: base64, url } = data as { mediaType?: string; data?: string; url?: string };
  return <MediaPart url={url ?? `data:${mediaType};base64,${base64 ?? ''}`} mediaType={mediaType} />;
}

function RanCode({ data }: { data: unknown }) {
  const t = useTranslate();
  const { code, output } = data as { code?: string; output?: string };
  return (
    <pre
      role="group"
      aria-label={t('codeRan')}
      tabIndex={0}
      className="scroll-quiet my-2 overflow-x-auto rounded-lg bg-muted p-3 font-mono text-xs"
    >
      {code ?? output ?? ''}
    </pre>
  );
}
