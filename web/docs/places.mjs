// Where the site is made, and what stands for its address until it is finished.

import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';

export const HERE = dirname(fileURLToPath(import.meta.url));
/** What VitePress reads: written by every build. */
export const PAGES = join(HERE, '.pages');
/** What the server embeds. */
export const OUT = join(HERE, 'dist');
/** VitePress wants to know the address. The site has whichever it is asked for at: `build.mjs` replaces this one. */
export const BASE = '/@the-site/';
/** The icon of the page, which is that of the site. */
export const ICON = 'icon.svg';
