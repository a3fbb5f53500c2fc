/** The page's words in the language of its user. */
import { en, type Words } from './words-en';
import { ja } from './words-ja';
import { type Language, settings, useSettings } from './settings';

const TABLES: Record<Language, Words> = { en, ja };

export type Key = keyof Words;
type Values = Record<string, string | number>;
export type Translate = (key: Key, values?: Values) => string;

export function language(): Language {
  return settings.get().language ?? (navigator.language.startsWith('ja') ? 'ja' : 'en');
}

/** For places outside components. */
export function translate(key: Key, values: Values = {}): string {
  return TABLES[language()][key].replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** For components: renders again when the language changes. */
export function useTranslate(): Translate {
  useSettings();
  return translate;
}

/** Tells the browser, and with it screen readers, which language the page speaks. */
export function applyLanguage(): void {
  const apply = () => {
    document.documentElement.lang = language();
  };
  apply();
  settings.subscribe(apply);
}
