/** Several questions at once: how many wait, and one press for all of them. */
import { Check, ShieldQuestion } from 'lucide-react';

import { useTranslate } from '../lib/i18n';
import { Button } from '../ui/button';
import type { Call } from './calls';
import type { ChatSession } from './session';

export function ApprovalBar({ calls, session }: { calls: Call[]; session: ChatSession }) {
  const t = useTranslate();
  if (calls.length < 2) return null;
  const ids = calls.flatMap(({ approval }) => approval?.id ?? []);
  return (
    <div
      data-testid="approval-bar"
      className="appear mb-2 flex flex-wrap items-center gap-2 rounded-2xl border border-warning/40 bg-warning-soft py-2 pr-2 pl-4 text-sm"
    >
      <ShieldQuestion className="size-4 text-warning" aria-hidden />
      <span className="min-w-[75%] flex-1 sm:min-w-44">{t('allWait', { count: calls.length })}</span>
      <Button className="h-8 flex-1 sm:flex-none" onClick={() => void session.respond(ids, false)} data-testid="deny-all">
        {t('denyAll')}
      </Button>
      <Button
        className="h-8 flex-1 sm:flex-none"
        look="primary"
        onClick={() => void session.respond(ids, true)}
        data-testid="approve-all"
      >
        <Check className="size-4" aria-hidden /> {t('approveAll', { count: calls.length })}
      </Button>
    </div>
  );
}
