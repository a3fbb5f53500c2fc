/** Colours for code: shiki with the languages that answers have most, each fetched when it is first used. */
import type { CodeHighlighterPlugin, HighlightResult } from 'streamdown';
import { createHighlighterCore } from 'shiki/core';
import { createJavaScriptRegexEngine } from 'shiki/engine/javascript';
import dark from 'shiki/themes/github-dark-default.mjs';
import light from 'shiki/themes/github-light-default.mjs';

const LANGUAGES = {
  bash: () => import('shiki/langs/bash.mjs'),
  c: () => import('shiki/langs/c.mjs'),
  css: () => import('shiki/langs/css.mjs'),
  diff: () => import('shiki/langs/diff.mjs'),
  go: () => import('shiki/langs/go.mjs'),
  html: () => import('shiki/langs/html.mjs'),
  java: () => import('shiki/langs/java.mjs'),
  javascript: () => import('shiki/langs/javascript.mjs'),
  json: () => import('shiki/langs/json.mjs'),
  kotlin: () => import('shiki/langs/kotlin.mjs'),
  markdown: () => import('shiki/langs/markdown.mjs'),
  python: () => import('shiki/langs/python.mjs'),
  rust: () => import('shiki/langs/rust.mjs'),
  sql: () => import('shiki/langs/sql.mjs'),
  swift: () => import('shiki/langs/swift.mjs'),
  toml: () => import('shiki/langs/toml.mjs'),
  tsx: () => import('shiki/langs/tsx.mjs'),
  typescript: () => import('shiki/langs/typescript.mjs'),
  yaml: () => import('shiki/langs/yaml.mjs'),
};
type Language = keyof typeof LANGUAGES;

const ALIASES: Record<string, Language> = {
  js: 'javascript',
  jsx: 'tsx',
  ts: 'typescript',
  py: 'python',
  rs: 'rust',
  sh: 'bash',
  shell: 'bash',
  zsh: 'bash',
  md: 'markdown',
  yml: 'yaml',
  kt: 'kotlin',
};

/** Colouring is not worth a pause: longer code stays plain. */
const MAX_CHARACTERS = 40_000;
const MAX_KEPT = 200;

const THEMES = { light: 'github-light-default', dark: 'github-dark-default' } as const;
const highlighter = createHighlighterCore({
  themes: [light, dark],
  langs: [],
  engine: createJavaScriptRegexEngine({ forgiving: true }),
});
const kept = new Map<string, HighlightResult>();

export const code: CodeHighlighterPlugin = {
  name: 'shiki',
  type: 'code-highlighter',
  getThemes: () => [THEMES.light, THEMES.dark],
  getSupportedLanguages: () => Object.keys(LANGUAGES),
  supportsLanguage: (name) => languageOf(name) !== undefined,
  highlight: ({ code: text, language, isIncomplete }, callback) => {
    const known = languageOf(language);
    if (known === undefined || text.length > MAX_CHARACTERS) return null;
    const key = `${known}\n${text}`;
    const found = kept.get(key);
    if (found !== undefined) return found;
    void colour(text, known).then((result) => {
      if (isIncomplete !== true) keep(key, result);
      callback?.(result);
    });
    return null;
  },
};

async function colour(text: string, language: Language): Promise<HighlightResult> {
  const shiki = await highlighter;
  if (!shiki.getLoadedLanguages().includes(language)) await shiki.loadLanguage(LANGUAGES[language]());
  return shiki.codeToTokens(text, { lang: language, themes: THEMES }) as HighlightResult;
}

function keep(key: string, result: HighlightResult): void {
  kept.set(key, result);
  if (kept.size > MAX_KEPT) kept.delete(kept.keys().next().value ?? '');
}

function languageOf(name: string): Language | undefined {
  const lower = name.trim().toLowerCase();
  return lower in LANGUAGES ? (lower as Language) : ALIASES[lower];
}
