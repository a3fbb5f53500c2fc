/** Runs every test with AI SDK v6 and with v7. */

import { defineConfig } from 'vitest/config';

/** Tests that have nothing to do with the SDK run once. */
const WITHOUT_SDK = ['browser', 'client-tools', 'dsp', 'live-socket', 'opening', 'package', 'push-to-talk', 'voice-detector'].map(
  (name) => `tests/${name}.test.ts`,
);

export default defineConfig({
  test: {
    include: ['tests/**/*.test.{ts,tsx}'],
    // Flows against the real server wait for tools and timeouts, and a busy machine starts it late.
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // They wait more than they work: two at a time, on two cores too.
    maxWorkers: 2,
    projects: [
      { extends: true, test: { name: 'v7' } },
      {
        extends: true,
        test: { name: 'v6', exclude: WITHOUT_SDK },
        resolve: { alias: { ai: 'ai-6', '@ai-sdk/react': 'ai-sdk-react-3' } },
      },
    ],
  },
});
