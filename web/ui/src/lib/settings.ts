/** What the user chose for this browser: colours, language, panels; and the dialect, which the address names. */
import { createKeptStore, useStore } from './store';

export type Theme = 'system' | 'light' | 'dark';
export type Language = 'en' | 'ja';

/** One request per turn, or one connection for all, which can carry speech. */
export type Mode = 'sse' | 'live';

export interface Settings {
  theme: Theme;
  /** `null` follows the browser. */
  language: Language | null;
  sidebarOpen: boolean;
  inspectorOpen: boolean;
  mode: Mode;
}

const THEMES: readonly unknown[] = ['system', 'light', 'dark'];

const INITIAL: Settings = { theme: 'system', language: null, sidebarOpen: true, inspectorOpen: false, mode: 'sse' };

export const settings = createKeptStore<Settings>(
  'adk-bridge.settings',
  INITIAL,
  (value): value is Settings =>
    typeof value === 'object' && value !== null && 'theme' in value && THEMES.includes(value.theme) && 'mode' in value,
);

export function changeSettings(change: Partial<Settings>): void {
  settings.set((before) => ({ ...before, ...change }));
}

/** `?dialect=adk` shows the conversation as the seeds' front end would get it. */
export const dialect: 'native' | 'adk' = new URLSearchParams(location.search).get('dialect') === 'adk' ? 'adk' : 'native';

const prefersDark = window.matchMedia('(prefers-color-scheme: dark)');

/** Puts the chosen colours on the document, and keeps them right when the system changes. */
export function applyTheme(): void {
  const apply = () => {
    const { theme } = settings.get();
    const dark = theme === 'dark' || (theme === 'system' && prefersDark.matches);
    document.documentElement.classList.toggle('dark', dark);
    document.documentElement.style.colorScheme = dark ? 'dark' : 'light';
  };
  apply();
  settings.subscribe(apply);
  prefersDark.addEventListener('change', apply);
}

export function useSettings(): Settings {
  return useStore(settings);
}
