// The page that was built into web/ui/dist, in a real browser, against the real binary.

import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { stripVTControlCharacters } from 'node:util';

import { agentOf, startAdkServer } from '../chat/adk-server.mjs';
import { startModel } from '../chat/model.mjs';
import { BINARY, PYTHON, TARGET } from '../target.mjs';
import { agentTests, SEVERAL } from './agents.mjs';
import { approvalTests } from './approvals.mjs';
import { appTests, startAppServer } from './apps.mjs';
import { launch } from './browser.mjs';
import { budgetTests } from './budget.mjs';
import { chatTests } from './chat.mjs';
import { clientToolTests } from './client-tools.mjs';
import { connectionTests } from './connection.mjs';
import { conversationTests } from './conversations.mjs';
import { costTests } from './cost.mjs';
import { credentialRestartTests, credentialTests } from './credentials.mjs';
import { deliveryTests } from './delivery.mjs';
import { elsewhereTests } from './elsewhere.mjs';
import { FORMS, formTests } from './forms.mjs';
import { inspectorTests } from './inspector.mjs';
import { startIssuer } from './issuer.mjs';
import { liveTests } from './live.mjs';
import { loginTests } from './login.mjs';
import { startProvider } from './login-provider.mjs';
import { lookTests } from './look.mjs';
import { startServer } from './server.mjs';
import { Visit } from './visit.mjs';
import { voiceTests } from './voice.mjs';

// Most of a test's time is waiting; more at once would make the machine's speed part of the tests.
const AT_ONCE = 3;

// Tests that wait for a question to expire have a server on which it does so soon, but not before a busy machine has shown it.
const HASTY = '[demo]\npace = "0ms"\n[approval]\ntimeout = "10s"\n';

// Pictures of the page, and of what it showed when a test failed.
const ARTIFACTS = join(TARGET, 'e2e');

describe('ui', () => {
  const world = { binary: BINARY, artifacts: ARTIFACTS, servers: {} };
  const ends = [];
  const started = async (starting, end) => {
    const it = await starting;
    ends.push(() => end(it));
    return it;
  };

  before(async () => {
    mkdirSync(ARTIFACTS, { recursive: true });
    world.browser = await started(launch(), (browser) => browser.close());
    world.model = await started(startModel(BINARY), (model) => model.stop());
    const adk = await started(startAdkServer(PYTHON), (server) => server.kill());
    const start = async (name, ...configuration) => {
      world.servers[name] = await started(startServer(BINARY, ...configuration), (server) => server.stop());
    };
    await start('usual');
    await start('hasty', HASTY);
    await start('gated', world.model.toml(['get_location']), world.model.env);
    await start('forms', FORMS);
    await start('several', SEVERAL);
    await start('adk', agentOf(adk.url, 'scripted'));
    world.provider = await started(startProvider(), (provider) => provider.stop());
    const sessions = `sqlite:///${join(mkdtempSync(join(tmpdir(), 'adk-bridge-e2e-')), 'sessions.db')}`;
    const vault = (kept) => started(startAdkServer(PYTHON, kept, [], world.provider.env), (server) => server.kill());
    const { url } = await vault('memory://');
    world.vault = await vault(sessions);
    await start('vault', agentOf(url, 'vault'));
    await start('hastyVault', `${agentOf(url, 'vault')}[approval]\ntimeout = "10s"\n`);
    await start('keptVault', agentOf(world.vault.url, 'vault'));
    world.provider.allow(['vault', 'hastyVault', 'keptVault'].map((name) => world.servers[name].url));
    world.issuer = await started(startIssuer(), (issuer) => issuer.stop());
    await start('login', `[demo]\npace = "0ms"\n${world.issuer.toml()}`, world.issuer.env);
    world.issuer.allow([world.servers.login.url]);
    world.apps = await started(startAppServer(), (server) => server.stop());
    await start('apps', agentOf(world.apps.url, 'app'));
  });
  after(async () => {
    for (const end of ends) await end();
  });

  describe('a few at a time', { concurrency: AT_ONCE }, () => {
    visited(world, [
      ...budgetTests,
      ...chatTests,
      ...approvalTests,
      ...clientToolTests,
      ...formTests,
      ...credentialTests,
      ...loginTests,
      ...conversationTests,
      ...connectionTests,
      ...inspectorTests,
      ...liveTests,
      ...lookTests,
      ...agentTests,
      ...appTests,
      ...deliveryTests,
      ...elsewhereTests,
    ]);
  });

  // Sound is made and heard as time passes, and work is measured: each of these has the machine to itself.
  describe('one by one', () => visited(world, [...credentialRestartTests, ...voiceTests, ...costTests]));

  test('no server has panicked or logged an error', () => {
    const faults = Object.entries(world.servers).flatMap(([name, { log }]) =>
      log
        .split('\n')
        .filter((line) => /panicked| ERROR /.test(line))
        .map((line) => `${name}: ${line}`),
    );
    assert.deepEqual(faults, []);
  });
});

/** One test for each row: a name, and a function that opens pages; what no page may leave behind fails it, too. */
function visited(world, rows) {
  for (const [name, run] of rows) {
    test(name, async () => {
      const visits = [];
      const open = async (options) => {
        const visit = await Visit.open(world, options);
        visits.push(visit);
        return visit;
      };
      try {
        await run(open, world);
        for (const visit of visits) await visit.close();
      } catch (error) {
        await kept(name, visits);
        throw explained(error, visits);
      }
    });
  }
}

/** Keeps what the pages showed when a test failed. */
async function kept(name, visits) {
  for (const [index, visit] of visits.entries()) {
    const path = join(ARTIFACTS, `failed-${name.replaceAll(/\W+/g, '-')}-${index}.png`);
    await visit.page?.screenshot({ path, timeout: 5_000 }).catch(() => {});
    await visit.context?.close().catch(() => {});
  }
}

/** The failure with what the pages said of it, without colours. */
function explained(error, visits) {
  const problems = visits.flatMap((visit) => visit.problems ?? []);
  const story = stripVTControlCharacters(error.stack ?? String(error));
  return Object.assign(new Error(story), { stack: [story, ...problems].join('\n') });
}
