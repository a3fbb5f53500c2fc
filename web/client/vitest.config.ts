/** Runs every test with AI SDK v6 and with v7. */

import { defineConfig } from 'vitest/config';

export default defineConfig({
  test: {
    include: ['tests/**/*.test.{ts,tsx}'],
    // Flows against the real server wait for tools and timeouts.
    testTimeout: 20_000,
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
