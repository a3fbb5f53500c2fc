/** What the user has used of agents today, and what is left, if the server has budgets. */
import { api } from './api';
import { serverNow } from './clock';
import { chats, connection } from './connection';
import { amount } from './format';
import { translate } from './i18n';
import { createStore } from './store';

export interface BudgetLimit {
  key: string;
  /** The agent that it is for; absent for all of them. */
  agent?: string;
  unit: 'tokens' | 'cost';
  limit: number;
  used: number;
  left: number;
}

export interface Budget {
  counted: boolean;
  resetsAt: number;
  currency: string;
  used: { tokens: number; cost: number };
  limits: BudgetLimit[];
}

/** The longest wait of a timer in browsers, roughly. */
const MAX_WAIT_MS = 24 * 60 * 60 * 1_000;

export const budget = createStore<Budget | null>(null);

let timer: ReturnType<typeof setTimeout> | undefined;

/** Asks again. An answer that does not come leaves what is known. */
export async function learnBudget(): Promise<void> {
  clearTimeout(timer);
  try {
    const found = await api.budget();
    if (JSON.stringify(found) !== JSON.stringify(budget.get())) budget.set(found);
    if (!found.counted) return;
    // Another day begins.
    const wait = Math.min(Math.max(found.resetsAt - serverNow(), 0) + 1_000, MAX_WAIT_MS);
    timer = setTimeout(() => void learnBudget(), wait);
  } catch {
    // Whether the server can be reached is shown elsewhere.
  }
}

/** Keeps it up to date: every turn changes the list of chats. */
export function followBudget(): void {
  let isKnown = false;
  chats.subscribe(() => {
    if (chats.get() === null || (isKnown && budget.get()?.counted === false)) return;
    isKnown = true;
    void learnBudget();
  });
  let phase = connection.get().phase;
  connection.subscribe(() => {
    const before = phase;
    phase = connection.get().phase;
    // Another user, or another configuration.
    if (phase === 'online' && (before === 'locked' || before === 'reconnecting')) void learnBudget();
  });
}

/** How much of a limit is used, such as "1,200 of 5,000 tokens". */
export function limitText({ unit, used, limit }: BudgetLimit, currency: string): string {
  const what = unit === 'tokens' ? translate('budgetTokens') : currency;
  return translate('budgetOf', { used: amount(used, unit), limit: amount(limit, unit), what }).trim();
}

/** The limits that concern an agent. */
export function limitsOf({ limits }: Budget, agentId: string | undefined): BudgetLimit[] {
  return limits.filter(({ agent }) => agent === undefined || agent === agentId);
}
