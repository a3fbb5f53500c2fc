// Serves the page, and passes on to the bridge what is the bridge's.

import { fileURLToPath } from 'node:url';

import react from '@vitejs/plugin-react';
import { defineConfig } from 'vite';

const target = process.env.ADK_BRIDGE_URL ?? 'http://127.0.0.1:8080';

export default defineConfig({
  plugins: [react()],
  // The library as it is built in this project, where it has packages of its own next to it.
  resolve: {
    alias: { '@adk-bridge/client': fileURLToPath(new URL('../../web/client/dist', import.meta.url)) },
    dedupe: ['ai', '@ai-sdk/react', 'react', 'react-dom'],
  },
  server: {
    proxy: { '^/(api|live)': { target, ws: true } },
    fs: { allow: ['../..'] },
  },
});
