/** One chat on the screen: its messages, what waits, and where the user writes. */
import { useChat } from '@ai-sdk/react';
import { ArrowDown } from 'lucide-react';
import { lazy, Suspense, useEffect, useMemo } from 'react';

import { useTranslate } from '../lib/i18n';
import { humanName } from '../lib/human-name';
import { agent } from '../lib/agents';
import { useStore } from '../lib/store';
import { askedCalls, questionOf, titleOf } from '../tools/asked';
import { MiniPlayer } from '../tools/mini-player';
import { Button, IconButton } from '../ui/button';
import { voiceWanted } from '../voice/voice-wanted';
import { prepareMarkdown } from './answer-text';
import { ApprovalBar } from './approval-bar';
import { BudgetLine } from './budget-line';
import { BudgetNotice } from './budget-notice';
import { type Call, waitingCalls } from './calls';
import { Composer } from './composer';
import { LiveNotice } from './live-notice';
import { MessageList } from './message-list';
import { ErrorNotice } from './notices';
import { Queue } from './queue';
import type { ChatSession } from './session';
import { Suggestions } from './suggestions';
import { useStickToEnd } from './use-stick-to-end';

/** Speech is large, and many never speak. */
const VoiceBar = lazy(() => import('../voice/voice-bar'));

/** Often enough to look smooth, and seldom enough that drawing does not hold up reading. */
const DRAW_EVERY_MS = 50;

export function ChatView({ session }: { session: ChatSession }) {
  const t = useTranslate();
  const { messages, status, error } = useChat({ chat: session.chat, throttle: DRAW_EVERY_MS });
  const { loading, queue, records } = useStore(session.state);
  const isEmpty = loading === 'ready' && messages.length === 0;
  const { scroller, content, isAtEnd, toEnd } = useStickToEnd(session.id, messages.length > 0);
  const isVoiceOn = useStore(voiceWanted);
  const isBusy = status === 'submitted' || status === 'streaming';
  const last = messages.at(-1);
  const waiting = useMemo(() => waitingCalls(last), [last]);
  const isAtRest = status === 'ready';
  const tools = useStore(agent)?.tools;
  const asked = useMemo(() => (isAtRest ? askedCalls(last) : []), [last, isAtRest, tools]);
  // What failed on its way is shown as a message, and stays in the queue until the server has it.
  // biome-ignore lint/correctness/useExhaustiveDependencies: only another message can be one of the queue
  const waitingItems = useMemo(
    () => queue.filter(({ id }) => !messages.some((message) => message.id === id)),
    [queue, messages.length],
  );

  useEffect(() => {
    if (messages.length > 0) prepareMarkdown();
  }, [messages.length]);

  return (
    <div className="relative flex min-h-0 flex-1 flex-col">
      <div
        ref={scroller}
        className="scroll-quiet min-h-0 flex-1 overflow-y-auto overscroll-contain"
        tabIndex={-1}
        data-testid="scroller"
      >
        <div ref={content} className="mx-auto min-h-full w-full max-w-[46rem] px-4 pt-4 pb-8 sm:px-6">
          {loading === 'loading' && messages.length === 0 && (
            <p className="breathe py-20 text-center text-muted-foreground">{t('loading')}</p>
          )}
          {loading === 'failed' && (
            <div className="py-20 text-center text-muted-foreground" role="alert">
              <p className="mb-3">{t('loadFailed')}</p>
              <Button onClick={() => void session.load()}>{t('retry')}</Button>
            </div>
          )}
          {isEmpty && <Suggestions onChoose={(text) => void session.send(text, [])} />}
          {loading === 'ready' && (
            <MessageList messages={messages} session={session} records={records} isBusy={isBusy} isAtRest={isAtRest} />
          )}
          {isBusy && !isSpeaking(last) && <Working />}
          {error !== undefined && <ErrorNotice error={error} session={session} />}
        </div>
      </div>
      <div className="relative mx-auto w-full max-w-[46rem] px-3 pb-[max(0.75rem,env(safe-area-inset-bottom))] sm:px-5">
        {!isAtEnd && (
          <IconButton
            look="outline"
            label={t('toEnd')}
            onClick={toEnd}
            className="absolute -top-12 left-1/2 -translate-x-1/2 shadow-float"
            round
            data-testid="to-end"
          >
            <ArrowDown />
          </IconButton>
        )}
        <MiniPlayer />
        {session.live !== undefined && <LiveNotice live={session.live} />}
        {session.live !== undefined && isVoiceOn && (
          <Suspense>
            <VoiceBar live={session.live} />
          </Suspense>
        )}
        <Queue queue={waitingItems} onRemove={(id) => session.removeQueued(id)} />
        <ApprovalBar calls={waiting} session={session} />
        <BudgetNotice failure={error} />
        <Composer key={session.id} session={session} isBusy={isBusy} isAsked={waiting.length + asked.length > 0} onSent={toEnd} />
        <BudgetLine />
      </div>
      <Announcer isBusy={isBusy} waiting={waiting} asked={asked} />
    </div>
  );
}

/** Whether the answer has begun to show something. */
function isSpeaking(last: { role: string; parts: { type: string }[] } | undefined): boolean {
  return last?.role === 'assistant' && last.parts.some((part) => part.type !== 'step-start');
}

function Working() {
  const t = useTranslate();
  return (
    <div className="flex gap-1.5 py-4" data-testid="working" aria-label={t('answering')} role="img">
      {[0, 1, 2].map((dot) => (
        <span
          key={dot}
          className={`breathe size-2 rounded-full bg-muted-foreground ${['', '[animation-delay:.2s]', '[animation-delay:.4s]'][dot]}`}
        />
      ))}
    </div>
  );
}

/** Tells screen readers what changed, without reading out every piece of a growing answer. */
function Announcer({ isBusy, waiting, asked }: { isBusy: boolean; waiting: Call[]; asked: Call[] }) {
  const t = useTranslate();
  const news = [
    ...waiting.map(({ name }) => t('approvalAnnounce', { tool: humanName(name) })),
    ...asked.map((call) => t('formAnnounce', { tool: questionOf(call).message ?? titleOf(call.name, t) })),
  ];
  return (
    <>
      <div role="status" aria-live="polite" className="sr-only">
        {isBusy ? t('answering') : t('answered')}
      </div>
      <div role="alert" aria-live="assertive" className="sr-only" data-testid="announcer">
        {news.join('. ')}
      </div>
    </>
  );
}
