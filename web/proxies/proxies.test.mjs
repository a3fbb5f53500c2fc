// The real binary behind real proxies, set up with the words of docs/front-ends.md, and what comes through.

import { after, describe, test } from 'node:test';

import { BINARY } from '../target.mjs';
import { caddy, express, next, nginx, vite } from './proxies.mjs';
import { clean, startBridge } from './processes.mjs';
import {
  answersInWords,
  foreignPagesAreRefused,
  pictures,
  picturesOfRequests,
  reboundPagesAreRefused,
  streams,
  strangersAreRefused,
  webSockets,
} from './checks.mjs';

// Each has a proxy and a bridge of its own; two of them build a page first.
const AT_ONCE = 4;

// A name that a proxy passes on, and the page under it.
const NAME = 'chat.example.org';
const KEY = 'a-key-for-the-tests-of-proxies';
const PUBLIC = `
[server]
allowed_hosts = ["${NAME}"]
[[auth.api_keys]]
key = "${KEY}"
user = "alice"
`;
const LISTED = PUBLIC.replace('allowed_hosts', `allowed_origins = ["http://${NAME}"]\nallowed_hosts`);
const under = (url, host) => ({ url, origin: `http://${host}`, headers: { host, authorization: `Bearer ${KEY}` } });
const asPublic = (url) => under(url, NAME);
// As its users write it who reach the proxy where it listens.
const onItsPort = (url) => under(url, `${NAME}:${new URL(url).port}`);
// The browser's page is where its requests go, and says so.
const asLocal = (url) => ({ url, origin: url, headers: { 'sec-fetch-site': 'same-origin' } });

const usual = [streams, answersInWords, foreignPagesAreRefused, webSockets, pictures];
// Vite refuses other names on its own, and Caddy puts its own word in place of what others say of clients.
const CASES = [
  { name: 'next dev', start: next('dev'), checks: [...usual, strangersAreRefused, reboundPagesAreRefused] },
  { name: 'next start', start: next('start'), checks: [...usual, strangersAreRefused, reboundPagesAreRefused] },
  { name: 'vite', start: vite({}), checks: usual },
  { name: 'vite, changeOrigin', start: vite({ changeOrigin: true }), checks: usual },
  {
    name: 'vite, changeOrigin and xfwd',
    start: vite({ changeOrigin: true, xfwd: true }),
    checks: [...usual, strangersAreRefused],
  },
  { name: 'express with compression', start: express, checks: usual },
  { name: 'nginx', start: nginx('default'), checks: [streams, answersInWords, foreignPagesAreRefused] },
  {
    name: 'nginx, in public',
    start: nginx('default'),
    toml: LISTED,
    page: asPublic,
    checks: [streams, picturesOfRequests],
  },
  { name: 'nginx as in the guide', start: nginx('guide'), checks: [...usual, strangersAreRefused, reboundPagesAreRefused] },
  { name: 'nginx as in the guide, in public', start: nginx('guide'), toml: PUBLIC, page: asPublic, checks: usual },
  { name: 'nginx as in the guide, in public on its port', start: nginx('guide'), toml: PUBLIC, page: onItsPort, checks: usual },
  { name: 'caddy', start: caddy, checks: [...usual, reboundPagesAreRefused] },
  { name: 'caddy, in public', start: caddy, toml: PUBLIC, page: asPublic, checks: usual },
  { name: 'caddy, in public on its port', start: caddy, toml: PUBLIC, page: onItsPort, checks: usual },
];

describe('proxies', { concurrency: AT_ONCE }, () => {
  after(clean);
  for (const { name, start, toml = '', page = asLocal, checks } of CASES) {
    describe(name, { concurrency: 1 }, () => {
      let starting;
      // Whichever test comes first starts them, so that a single one can be run.
      const client = () => (starting ??= startBoth(start, toml, page));
      test(`${name}: starts`, async () => void (await client()));
      for (const check of checks) {
        test(`${name}: ${check.name}`, async (t) => {
          const said = await check(await client());
          if (said !== undefined) t.diagnostic(`${name}: ${said}`);
        });
      }
    });
  }
});

async function startBoth(start, toml, page) {
  const bridge = await startBridge(BINARY, toml);
  return { ...page(await start(bridge.url)), bridge };
}
