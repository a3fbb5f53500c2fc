/** A question about a tool call, in its card: what is asked, how long there is to decide, and the two answers. */
import { Check, Clock, MessageSquareText, X } from 'lucide-react';
import { type KeyboardEvent, useEffect, useRef, useState } from 'react';

import type { Call } from '../chat/calls';
import type { CallRecord } from '../chat/call-records';
import { isComposing } from '../lib/composing';
import { agent } from '../lib/agents';
import { serverNow, useSecond } from '../lib/clock';
import { clock, countdown } from '../lib/format';
import { humanName } from '../lib/human-name';
import { useTranslate } from '../lib/i18n';
import { useStore } from '../lib/store';
import { Button } from '../ui/button';
import { focusNextQuestion, useFocusAfter } from './focus-next';
import { ReasonInput } from './reason-input';

interface Props {
  call: Call;
  record: CallRecord | undefined;
  place: { index: number; count: number };
  runsHere: boolean;
  onRespond: (approved: boolean, reason?: string) => void;
  onExpired: () => void;
}

export function ApprovalQuestion({ call, record, place, runsHere, onRespond, onExpired }: Props) {
  const t = useTranslate();
  const [reason, setReason] = useState<string>();
  const tool = humanName(call.name);
  const box = useRef<HTMLDivElement>(null);
  useFocusAfter(box);
  const respond = (approved: boolean) => {
    if (box.current) focusNextQuestion(box.current);
    onRespond(approved, reason?.trim() || undefined);
  };

  const onKeyDown = (event: KeyboardEvent) => {
    // In the field for a reason.
    if (isComposing(event.nativeEvent)) return;
    const isOwn = event.target === event.currentTarget;
    if (event.key === 'Enter' && isOwn) respond(true);
    else if (event.key === 'Escape') respond(false);
    else return;
    event.preventDefault();
    event.stopPropagation();
  };

  return (
    <div
      ref={box}
      role="group"
      tabIndex={0}
      data-question
      aria-label={t('approvalQuestion', { tool })}
      onKeyDown={onKeyDown}
      data-testid="approval"
      className="mt-3 rounded-lg border border-warning/30 bg-warning-soft p-3"
    >
      <div className="flex flex-wrap items-baseline justify-between gap-x-4 gap-y-1">
        <p className="font-medium">{t('approvalQuestion', { tool })}</p>
        <p className="flex items-center gap-3 text-xs text-muted-foreground">
          {place.count > 1 && <span data-testid="approval-place">{t('approvalOf', place)}</span>}
          <TimeLeft askedAt={record?.askedAt} onExpired={onExpired} />
        </p>
      </div>
      <p className="text-sm text-muted-foreground">
        {call.approval?.hint ?? t(runsHere ? 'approvalHintClient' : 'approvalHint')}
      </p>
      {reason !== undefined && <ReasonInput value={reason} onChange={setReason} testId="approval-reason" className="mt-2" />}
      <div className="mt-3 flex flex-wrap items-center gap-2">
        <Button look="primary" onClick={() => respond(true)} data-testid="approve" aria-keyshortcuts="Enter">
          <Check className="size-4" aria-hidden /> {t('approve')}
        </Button>
        <Button look="danger" onClick={() => respond(false)} data-testid="deny" aria-keyshortcuts="Escape">
          <X className="size-4" aria-hidden /> {t('deny')}
        </Button>
        {reason === undefined && (
          <Button look="ghost" onClick={() => setReason('')} data-testid="give-reason">
            <MessageSquareText className="size-4" aria-hidden /> {t('addReason')}
          </Button>
        )}
      </div>
    </div>
  );
}

/** What was decided, and when. */
export function ApprovalDecision({ call, record }: { call: Call; record: CallRecord | undefined }) {
  const t = useTranslate();
  const { approval } = call;
  if (approval?.approved === undefined) return null;
  const at = record?.decidedAt;
  const reason = approval.reason ?? record?.reason;
  const plain = approval.approved ? t('approvedPlain') : t('deniedPlain');
  const timed = at === undefined ? plain : t(approval.approved ? 'approvedAt' : 'deniedAt', { time: clock(at) });
  return (
    <p className="mt-2 flex flex-wrap items-center gap-1.5 text-xs text-muted-foreground" data-testid="decision">
      {approval.approved ? <Check className="size-3.5 text-success" aria-hidden /> : <X className="size-3.5" aria-hidden />}
      {timed}
      {reason !== undefined && reason !== '' && <span>· {t('deniedBecause', { reason })}</span>}
    </p>
  );
}

function TimeLeft({ askedAt, onExpired }: { askedAt: number | undefined; onExpired: () => void }) {
  const t = useTranslate();
  const timeout = useStore(agent)?.approvalTimeoutMs;
  useSecond();
  const left = askedAt === undefined || timeout === undefined ? undefined : askedAt + timeout - serverNow();
  const isOver = left !== undefined && left <= 0;
  useEffect(() => {
    if (isOver) onExpired();
  }, [isOver, onExpired]);
  if (left === undefined) return null;
  return (
    <span className="flex items-center gap-1 tabular-nums" data-testid="approval-countdown">
      <Clock className="size-3.5" aria-hidden /> {t('approvalTimeLeft', { left: countdown(left) })}
    </span>
  );
}
