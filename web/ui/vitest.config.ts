/** The tests of the page's pure parts; `web/e2e` tries the page itself. */
import { fileURLToPath } from 'node:url';
import { defineConfig } from 'vitest/config';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  resolve: {
    alias: { '@adk-bridge/client': here('../client/src/index.ts') },
    dedupe: ['ai'],
  },
  test: { include: ['src/**/*.test.ts'] },
});
