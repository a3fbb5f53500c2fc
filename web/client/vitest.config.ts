/** Runs every test with AI SDK v6 and with v7. */

import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    projects: [
      { extends: true, test: { name: 'v7' } },
      {
        extends: true,
        test: { name: 'v6' },
        resolve: { alias: { ai: 'ai-6', '@ai-sdk/react': 'ai-sdk-react-3' } },
      },
    ],
  },
});
