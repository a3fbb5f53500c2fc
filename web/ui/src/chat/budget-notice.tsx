/** Says that the user's budget for today is used up, and when it begins again. */
import { Hourglass } from 'lucide-react';
import { useEffect } from 'react';

import { agent } from '../lib/agents';
import { budget, learnBudget, limitsOf, limitText } from '../lib/budget';
import { moment } from '../lib/format';
import { useTranslate } from '../lib/i18n';
import { useStore } from '../lib/store';

/** `failure`: what the chat was refused with last, if anything. */
export function BudgetNotice({ failure }: { failure: Error | undefined }) {
  const t = useTranslate();
  const known = useStore(budget);
  const agentId = useStore(agent)?.id;
  useEffect(() => {
    if (failure !== undefined && budget.get()?.counted === true) void learnBudget();
  }, [failure]);
  const usedUp = known === null ? undefined : limitsOf(known, agentId).find(({ left }) => left <= 0);
  if (known === null || usedUp === undefined) return null;
  return (
    <div
      role="status"
      data-testid="budget-used-up"
      className="appear mb-2 flex items-center gap-2.5 rounded-2xl border border-warning/30 bg-warning-soft px-4 py-2 text-sm text-warning"
    >
      <Hourglass className="size-4 shrink-0" aria-hidden />
      <span className="min-w-0 flex-1">
        {t('budgetUsedUp', { used: limitText(usedUp, known.currency), time: moment(known.resetsAt) })}
      </span>
    </div>
  );
}
