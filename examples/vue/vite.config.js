// Serves the page, and passes on to the bridge what is the bridge's.

import vue from '@vitejs/plugin-vue';
import { defineConfig } from 'vite';

const target = process.env.ADK_BRIDGE_URL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [vue()],
  server: { proxy: { '/api': target } },
});
