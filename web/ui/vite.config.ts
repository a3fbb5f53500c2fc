/** Builds the page into `dist`, from where the server embeds it. */
import { readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { brotliCompressSync, constants, gzipSync } from 'node:zlib';
import tailwindcss from '@tailwindcss/vite';
import react from '@vitejs/plugin-react';
import { defineConfig, type Plugin } from 'vite';

const here = (path: string) => fileURLToPath(new URL(path, import.meta.url));

export default defineConfig({
  // Relative, so that the page works under any path.
  base: './',
  resolve: {
    alias: {
      'rehype-raw': here('src/markdown/raw-as-text.ts'),
      '@adk-bridge/client/react': here('../client/src/react/index.ts'),
      '@adk-bridge/client/worklets': here('../client/src/worklets'),
      '@adk-bridge/client': here('../client/src/index.ts'),
    },
    // The library's sources have a node_modules of their own next to them.
    dedupe: ['ai', '@ai-sdk/react', 'react', 'react-dom'],
  },
  plugins: [react(), tailwindcss(), newFontsOnly(), compressed()],
  worker: { format: 'es' },
  build: {
    target: 'es2022',
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 900,
  },
  server: { proxy: { '/api': 'http://127.0.0.1:8080', '/live': { target: 'ws://127.0.0.1:8080', ws: true } } },
});

/** KaTeX names its fonts in three forms; every browser that runs this page takes the first. */
function newFontsOnly(): Plugin {
  return {
    name: 'new-fonts-only',
    enforce: 'pre',
    transform(css, id) {
      if (!id.includes('katex.min.css')) return null;
      return css.replace(/,url\([^)]+\.(?:woff|ttf)\) format\("[a-z]+"\)/g, '');
    },
  };
}

/** Writes `NAME.br` and `NAME.gz` next to every text, so that the server compresses nothing. */
function compressed(): Plugin {
  return {
    name: 'compressed',
    apply: 'build',
    closeBundle() {
      // The library names its worklets for those who do not bundle it; here they are built on their own.
      for (const file of filesIn(here('dist')).filter((name) => name.endsWith('.ts'))) rmSync(file);
      for (const file of filesIn(here('dist')).filter((name) => /\.(html|js|css|svg|wasm|webmanifest)$/.test(name))) {
        const content = readFileSync(file);
        const quality = { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY };
        writeFileSync(`${file}.br`, brotliCompressSync(content, { params: quality }));
        writeFileSync(`${file}.gz`, gzipSync(content, { level: 9 }));
      }
    },
  };
}

function filesIn(directory: string): string[] {
  return readdirSync(directory).flatMap((name) => {
    const path = join(directory, name);
    return statSync(path).isDirectory() ? filesIn(path) : [path];
  });
}
