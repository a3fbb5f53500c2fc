// The site of the documents. `build.mjs` has written its pages, and finishes what VitePress makes of them.

import { BASE, ICON, OUT, PAGES } from '../places.mjs';
import { anchorOf, codeHostMarkdown } from '../markdown.mjs';
import { site } from '../pages.mjs';
import { onlyListedPackages } from '../shipped.mjs';

const { pages, groups } = site();
const pageBySlug = new Map([...pages.values()].map((page) => [page.slug, page]));
const DECISIONS = 'adr';
const linkTo = (slug) => (slug === 'index' ? '/' : `/${slug}`);

export default {
  srcDir: PAGES,
  outDir: OUT,
  base: BASE,
  title: 'adk-bridge',
  description: 'AI SDK front ends for ADK agents, and people decide what the agent may do',
  cleanUrls: true,
  metaChunk: true,
  // Without it, a style would be written into the page, which its policy forbids.
  appearance: { disableTransition: false },
  head: [
    ['link', { rel: 'icon', type: 'image/svg+xml', href: `${BASE}${ICON}` }],
    ['meta', { name: 'color-scheme', content: 'light dark' }],
  ],
  markdown: {
    html: false,
    // Braces in a document are only braces.
    attrs: { disable: true },
    anchor: { slugify: anchorOf },
    // Of those with enough contrast for comments.
    theme: { light: 'github-light-high-contrast', dark: 'github-dark-default' },
    config: (md) => codeHostMarkdown(md, pageBySlug, pages),
  },
  themeConfig: {
    logo: `/${ICON}`,
    search: {
      provider: 'local',
      options: {
        // Files are shown, and not searched.
        _render: (text, env, md) => {
          const page = pageBySlug.get(env.relativePath.replace(/\.md$/, ''));
          return page?.kind === 'document' ? md.render(text, env) : '';
        },
      },
    },
    nav: [
      // They are no pages of the site: the browser opens them.
      { text: 'Chat', link: '../', target: '_self' },
      { text: 'API', link: '../api/docs', target: '_self' },
    ],
    // Only decisions list all of them: they would be most of every page.
    sidebar: { [`/${DECISIONS}`]: sidebar(() => true), '/': sidebar(({ slug }) => slug !== DECISIONS) },
    outline: { level: [2, 3], label: 'On this page' },
    docFooter: { prev: 'Before', next: 'Next' },
    externalLinkIcon: true,
    notFound: {
      title: 'No such page',
      quote: 'The address may be that of another version. The search finds what is there.',
      linkText: 'To the documents',
      linkLabel: 'To the documents',
    },
  },
  vite: {
    build: { assetsInlineLimit: 0, chunkSizeWarningLimit: 2000 },
    plugins: [onlyListedPackages()],
  },
};

/** The groups, with what is below the pages that are opened. */
function sidebar(isOpened) {
  const entry = (item) => {
    const isParent = item.items.length > 0 && isOpened(item);
    return { text: item.text, link: linkTo(item.slug), ...(isParent && { collapsed: true, items: item.items.map(entry) }) };
  };
  return groups.map(({ text, items }) => ({ text, items: items.map(entry) }));
}
