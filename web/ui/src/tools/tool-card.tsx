/** One tool call: what it is, how far it is, what went in and what came out. */
import { CREDENTIAL_TOOL, type ToolProgress } from '@adk-bridge/client';
import clsx from 'clsx';
import {
  Camera,
  ChevronRight,
  CircleAlert,
  CircleCheck,
  CircleSlash,
  CloudSun,
  CreditCard,
  Database,
  Dices,
  Image,
  KeyRound,
  LoaderCircle,
  type LucideIcon,
  MapPin,
  MessageCircleQuestion,
  Music,
  ShieldQuestion,
  Wrench,
} from 'lucide-react';
import { lazy, Suspense, useId, useState } from 'react';

import type { Call } from '../chat/calls';
import type { CallRecord } from '../chat/call-records';
import { span } from '../lib/format';
import { type Key, useTranslate } from '../lib/i18n';
import type { Outcome } from './answer-form';
import { questionOf, shownInput, titleOf } from './asked';
import { ApprovalDecision, ApprovalQuestion } from './approval';
import { clientTools } from './client-tools';
import { appOf } from './mcp-app';
import { ValueView } from './value-view';

interface Props {
  call: Call;
  record: CallRecord | undefined;
  /** How far it is, as it last reported. */
  progress: ToolProgress | undefined;
  place: { index: number; count: number };
  /** It waits for the user's own answer. */
  isAsked: boolean;
  onAnswer: (outcome: Outcome) => void;
  onRespond: (approved: boolean, reason?: string) => void;
  onExpired: () => void;
}

/** Few agents ask for input. */
const AnswerForm = lazy(() => import('./answer-form'));
const CredentialForm = lazy(() => import('./credential-form'));
/** Few tools have an app. */
const McpAppView = lazy(() => import('./mcp-app-view'));

/** Tools that are known by their names get a picture of their own. */
const ICONS: readonly (readonly [RegExp, LucideIcon])[] = [
  [/weather/, CloudSun],
  [/pay|invoice|order|purchase/, CreditCard],
  [/database|sql|query/, Database],
  [/photo|camera/, Camera],
  [/image|picture|draw/, Image],
  [/location|place|map/, MapPin],
  [/bgm|music|track|sound/, Music],
  [/dice|random/, Dices],
  [/request_input/, MessageCircleQuestion],
  [/request_credential/, KeyRound],
];

const STATES: Record<Call['state'] | 'asked', { word: Key; icon: LucideIcon; look: string }> = {
  preparing: { word: 'toolPreparing', icon: LoaderCircle, look: 'text-muted-foreground [&_svg]:animate-spin' },
  running: { word: 'toolRunning', icon: LoaderCircle, look: 'text-primary [&_svg]:animate-spin' },
  approved: { word: 'toolRunning', icon: LoaderCircle, look: 'text-primary [&_svg]:animate-spin' },
  waiting: { word: 'toolWaiting', icon: ShieldQuestion, look: 'text-warning' },
  asked: { word: 'toolAsked', icon: MessageCircleQuestion, look: 'text-warning' },
  denied: { word: 'toolDenied', icon: CircleSlash, look: 'text-muted-foreground' },
  done: { word: 'toolDone', icon: CircleCheck, look: 'text-success' },
  failed: { word: 'toolFailed', icon: CircleAlert, look: 'text-danger' },
};

export function ToolCard({ call, record, progress, place, isAsked, onAnswer, onRespond, onExpired }: Props) {
  const t = useTranslate();
  const details = useId();
  const [choice, setChoice] = useState<boolean>();
  const isWaiting = call.state === 'waiting';
  const shown = isAsked ? 'asked' : call.state;
  const isQuestion = isWaiting || isAsked;
  const wantsAccess = call.name === CREDENTIAL_TOOL;
  // A question shows what it is about; a result speaks for itself in the answer.
  const isOpen = choice ?? (isQuestion || call.state === 'failed');
  const Icon = ICONS.find(([pattern]) => pattern.test(call.name.toLowerCase()))?.[1] ?? Wrench;
  const state = STATES[shown];
  const runsHere = clientTools.names.has(call.name);
  const took = tookOf(record);
  const app = appOf(call.part);
  return (
    <section
      aria-label={`${titleOf(call.name, t)}: ${t(state.word)}`}
      data-testid="tool-card"
      data-tool={call.name}
      data-state={shown}
      className={clsx('appear my-2.5 rounded-xl border bg-raised text-sm', isQuestion && 'border-warning/50 shadow-float')}
    >
      <button
        type="button"
        aria-expanded={isOpen}
        aria-controls={details}
        onClick={() => setChoice(!isOpen)}
        className="flex w-full items-center gap-2.5 rounded-xl px-3 py-2.5 text-left"
      >
        <span className="grid size-7 shrink-0 place-items-center rounded-lg bg-muted text-muted-foreground">
          <Icon className="size-4" aria-hidden />
        </span>
        <span className="min-w-0 flex-1 truncate">
          <span className="font-medium">{titleOf(call.name, t)}</span>
          {!isOpen && <span className="ml-2 text-muted-foreground">{summaryOf(shownInput(call))}</span>}
        </span>
        {took !== undefined && (
          <span className="text-xs text-muted-foreground tabular-nums" data-testid="tool-duration">
            {took}
          </span>
        )}
        <span className={`flex items-center gap-1.5 text-xs font-medium ${state.look}`} data-testid="tool-state">
          <state.icon className="size-4" aria-hidden />
          {t(state.word)}
        </span>
        <ChevronRight className={`size-4 text-muted-foreground transition-transform ${isOpen ? 'rotate-90' : ''}`} aria-hidden />
      </button>
      {progress !== undefined && (shown === 'running' || shown === 'approved') && <Progress {...progress} />}
      {isOpen && (
        <div id={details} className="border-t px-3.5 pt-2.5 pb-3.5">
          {/* A question in words is the title of its form. */}
          {!(isAsked && (questionOf(call).message || wantsAccess)) && <Details call={call} runsHere={runsHere} />}
          {isWaiting && (
            <ApprovalQuestion
              call={call}
              record={record}
              place={place}
              runsHere={runsHere}
              onRespond={onRespond}
              onExpired={onExpired}
            />
          )}
          {isAsked && (
            <Suspense>
              {wantsAccess ? <CredentialForm call={call} onDone={onExpired} /> : <AnswerForm call={call} onAnswer={onAnswer} />}
            </Suspense>
          )}
          <ApprovalDecision call={call} record={record} />
        </div>
      )}
      {app !== undefined && (
        <Suspense>
          <McpAppView part={call.part} app={app} />
        </Suspense>
      )}
    </section>
  );
}

/** A bar where the end is known, and what the tool says. */
function Progress({ progress, total, message }: ToolProgress) {
  const t = useTranslate();
  const done = Math.min(Math.max(progress, 0), total ?? progress);
  return (
    <div className="px-3.5 pb-2.5 text-xs text-muted-foreground" data-testid="tool-progress">
      {total !== undefined && total > 0 && (
        <div
          role="progressbar"
          aria-label={t('toolProgress')}
          aria-valuemin={0}
          aria-valuemax={total}
          aria-valuenow={done}
          className="h-1.5 overflow-hidden rounded-full bg-muted"
        >
          <div className="h-full bg-primary transition-[width]" style={{ width: `${(100 * done) / total}%` }} />
        </div>
      )}
      <p className="mt-1 truncate tabular-nums">{message ?? (total === undefined ? progress : `${progress} / ${total}`)}</p>
    </div>
  );
}

function Details({ call, runsHere }: { call: Call; runsHere: boolean }) {
  const t = useTranslate();
  const [isRaw, setRaw] = useState(false);
  const { part } = call;
  const output = part.state === 'output-available' ? part.output : undefined;
  const hasOutput = part.state === 'output-available';
  const error = part.state === 'output-error' ? part.errorText : undefined;
  return (
    <>
      <div className="mb-1 flex items-center justify-between text-xs text-muted-foreground">
        <span>
          {t('toolInput')}
          {runsHere && ` · ${t('runsHere')}`}
        </span>
        <button
          type="button"
          aria-pressed={isRaw}
          onClick={() => setRaw(!isRaw)}
          className="rounded px-1.5 py-0.5 font-mono hover:bg-muted aria-pressed:bg-accent aria-pressed:text-foreground"
        >
          {t('toolRaw')}
        </button>
      </div>
      <div data-testid="tool-input">{isRaw ? <Json value={part.input} /> : <ValueView value={shownInput(call)} />}</div>
      {hasOutput && (
        <>
          <p className="mt-3 mb-1 text-xs text-muted-foreground">{t('toolOutput')}</p>
          <div data-testid="tool-output">{isRaw ? <Json value={output} /> : <ValueView value={output} />}</div>
        </>
      )}
      {error !== undefined && (
        <p className="mt-3 rounded-lg bg-danger-soft px-3 py-2 text-danger" data-testid="tool-error">
          {error}
        </p>
      )}
    </>
  );
}

const MAX_JSON = 4_000;

function Json({ value }: { value: unknown }) {
  const text = JSON.stringify(value, null, 2) ?? '';
  return (
    <pre className="scroll-quiet max-h-72 overflow-auto rounded-lg bg-muted p-3 font-mono text-xs" tabIndex={0}>
      {text.length > MAX_JSON ? `${text.slice(0, MAX_JSON)}…` : text}
    </pre>
  );
}

/** A few of the arguments in one line. */
function summaryOf(input: unknown): string {
  if (typeof input !== 'object' || input === null) return '';
  return Object.values(input)
    .filter((value) => typeof value === 'string' || typeof value === 'number')
    .join(', ')
    .slice(0, 80);
}

function tookOf(record: CallRecord | undefined): string | undefined {
  if (record?.startedAt === undefined || record.endedAt === undefined) return undefined;
  return span(record.endedAt - record.startedAt);
}
