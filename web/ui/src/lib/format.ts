/** Times and spans as people read them. */
import { language } from './i18n';

export function span(ms: number): string {
  if (ms < 1_000) return `${Math.max(1, Math.round(ms))} ms`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(ms < 10_000 ? 1 : 0)} s`;
  return `${Math.floor(ms / 60_000)} min ${Math.round((ms % 60_000) / 1_000)} s`;
}

/** Minutes and seconds that are left. */
export function countdown(ms: number): string {
  const seconds = Math.max(0, Math.ceil(ms / 1_000));
  return `${Math.floor(seconds / 60)}:${String(seconds % 60).padStart(2, '0')}`;
}

export function clock(at: number): string {
  return new Date(at).toLocaleTimeString(language(), { hour: '2-digit', minute: '2-digit', second: '2-digit' });
}

/** A moment today or tomorrow, without its date unless it is needed. */
export function moment(at: number, now = Date.now()): string {
  const isToday = new Date(at).toDateString() === new Date(now).toDateString();
  return new Date(at).toLocaleString(language(), {
    ...(!isToday && { weekday: 'short' }),
    hour: '2-digit',
    minute: '2-digit',
  });
}

/** A number of tokens, or an amount of money without its currency. */
export function amount(value: number, unit: 'tokens' | 'cost'): string {
  const digits = unit === 'cost' ? { minimumFractionDigits: 2, maximumFractionDigits: value < 1 ? 4 : 2 } : {};
  return value.toLocaleString(language(), digits);
}

export function bytes(count: number): string {
  if (count < 1_000) return `${count} B`;
  if (count < 1_000_000) return `${(count / 1_000).toFixed(1)} kB`;
  return `${(count / 1_000_000).toFixed(1)} MB`;
}

export type AgeGroup = 'today' | 'yesterday' | 'week' | 'older';

export function ageGroup(at: number, now = Date.now()): AgeGroup {
  const midnight = new Date(now).setHours(0, 0, 0, 0);
  const day = 86_400_000;
  if (at >= midnight) return 'today';
  if (at >= midnight - day) return 'yesterday';
  return at >= midnight - 7 * day ? 'week' : 'older';
}
