// The packages of which something is in the scripts and styles of the site; `packages/notices.mjs` has their licenses.

export const SHIPPED = [
  '@docsearch/css',
  '@vue/reactivity',
  '@vue/runtime-core',
  '@vue/runtime-dom',
  '@vue/shared',
  '@vueuse/core',
  '@vueuse/integrations',
  '@vueuse/shared',
  'focus-trap',
  'mark.js',
  'minisearch',
  'tabbable',
  'vitepress',
  'vue',
];

/** A plugin of Vite that fails if something of another package would be shipped, or nothing of a listed one. */
export function onlyListedPackages() {
  return {
    name: 'only-listed-packages',
    apply: (_config, { isSsrBuild }) => !isSsrBuild,
    generateBundle(_options, bundle) {
      const modules = Object.values(bundle).flatMap(({ moduleIds }) => moduleIds ?? []);
      const problem = differenceFromList(modules);
      if (problem !== undefined) {
        throw new Error(`${problem}: change the list in web/docs/shipped.mjs, then run \`node packages/notices.mjs\``);
      }
    },
  };
}

/** What is wrong with the list for these modules. */
export function differenceFromList(modules) {
  const packages = modules.flatMap((id) => /.*node_modules\/((?:@[^/]+\/)?[^/]+)/.exec(id.replaceAll('\\', '/'))?.[1] ?? []);
  const shipped = new Set(packages);
  const unlisted = [...shipped].filter((name) => !SHIPPED.includes(name));
  if (unlisted.length > 0) return `${unlisted.join(', ')} would be shipped without a license`;
  const unused = SHIPPED.filter((name) => !shipped.has(name));
  return unused.length > 0 ? `nothing of ${unused.join(', ')} is shipped` : undefined;
}
