/** What the user has used of the budget for today: a quiet line, if there is a budget. */
import { agent } from '../lib/agents';
import { budget, limitsOf, limitText } from '../lib/budget';
import { amount, moment } from '../lib/format';
import { useTranslate } from '../lib/i18n';
import { useStore } from '../lib/store';

export function BudgetLine() {
  const t = useTranslate();
  const known = useStore(budget);
  const agentId = useStore(agent)?.id;
  if (known === null || !known.counted) return null;
  const limits = limitsOf(known, agentId);
  // What is used up is said elsewhere.
  if (limits.some(({ left }) => left <= 0)) return null;
  const shown = limits.map((limit) => limitText(limit, known.currency));
  const used = shown.length > 0 ? shown.join(' · ') : `${amount(known.used.tokens, 'tokens')} ${t('budgetTokens')}`;
  return (
    <p className="mt-1.5 text-center text-xs text-muted-foreground" data-testid="budget">
      {t('budgetToday', { used, time: moment(known.resetsAt) })}
    </p>
  );
}
