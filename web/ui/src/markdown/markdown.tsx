/** An answer as Markdown: code with copy, tables, maths; HTML is text, and nothing is loaded from elsewhere. */
import { memo, useMemo, useState } from 'react';
import { type Components, type PluginConfig, Streamdown } from 'streamdown';

import { localUrl } from '../lib/api';
import { useTranslate } from '../lib/i18n';
import { createStore, useStore } from '../lib/store';
import { incrementalBlocks } from './incremental-blocks';

const plugins = createStore<PluginConfig>({});
const asked = new Set<string>();

/** Colours for code and the setting of formulas are large: they are fetched when a text has such a thing. */
function fetchPlugins(text: string): void {
  fetchOnce('code', text.includes('```') || text.includes('~~~'), async () => {
    const { code } = await import('./code-colours');
    plugins.set((before) => ({ ...before, code }));
  });
  fetchOnce('math', text.includes('$$') || text.includes('\\('), async () => {
    const { math } = await import('./formulas');
    plugins.set((before) => ({ ...before, math }));
  });
}

function fetchOnce(name: string, isNeeded: boolean, load: () => Promise<void>): void {
  if (!isNeeded || asked.has(name)) return;
  asked.add(name);
  load().catch(() => asked.delete(name));
}

const components: Components = {
  a: ({ node: _node, href, children }) => (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ),
  img: ({ node: _node, src, alt }) => <Picture src={typeof src === 'string' ? src : ''} alt={alt ?? ''} />,
};

/** Pictures of other origins would tell them who reads: they are links. */
function Picture({ src, alt }: { src: string; alt: string }) {
  const isOwn = src.startsWith('/api/files/') || /^(data:image\/|blob:)/.test(src);
  if (isOwn) return <img src={localUrl(src)} alt={alt} className="max-h-96 rounded-xl border" />;
  return (
    <a href={src} target="_blank" rel="noopener noreferrer nofollow">
      {alt || src}
    </a>
  );
}

const CONTROLS = { code: { copy: true, download: false }, table: { copy: true, download: false, fullscreen: false } };
const LINKS = { enabled: false } as const;

function Markdown({ text, isStreaming }: { text: string; isStreaming: boolean }) {
  const t = useTranslate();
  const loaded = useStore(plugins);
  const [split] = useState(() => incrementalBlocks());
  fetchPlugins(text);
  const words = useMemo(() => ({ copyCode: t('copy'), copied: t('copied'), copyTable: t('copy') }), [t]);
  return (
    <Streamdown
      className="prose-answer"
      components={components}
      dir="auto"
      controls={CONTROLS}
      isAnimating={isStreaming}
      linkSafety={LINKS}
      lineNumbers={false}
      mode="streaming"
      parseMarkdownIntoBlocksFn={split}
      plugins={loaded}
      translations={words}
    >
      {text}
    </Streamdown>
  );
}

export default memo(Markdown);
