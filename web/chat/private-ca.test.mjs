// Servers that a company's own authority has certified (`tls.ca_file`): an identity provider, a model, its voice, and an MCP server.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { generateKeyPairSync } from 'node:crypto';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { fileURLToPath } from 'node:url';

import { WebSocket } from 'ws';

import { forge } from '../e2e/issuer.mjs';
import { BINARY } from '../target.mjs';
import { startServer } from './server.mjs';

const CERTIFICATES = fileURLToPath(new URL('../../fixtures/tls/', import.meta.url));
const AUDIENCE = 'urn:adk-bridge';
const KEY = 'a-key-of-alice-0123456789';

describe('authorities of a company', { concurrency: 1 }, () => {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const key = { ...privateKey.export({ format: 'jwk' }), alg: 'ES256', kid: 'k' };
  const { d: _secret, ...published } = key;
  let server, url, heardVoice;
  const asked = [];
  const bridges = [];

  before(async () => {
    const options = { key: readFileSync(`${CERTIFICATES}server-key.pem`), cert: readFileSync(`${CERTIFICATES}server.pem`) };
    server = createServer(options, (request, response) => {
      asked.push(request.url);
      request.resume();
      if (request.url.endsWith('/openid-configuration'))
        return response.end(JSON.stringify({ issuer: url, jwks_uri: `${url}/jwks` }));
      if (request.url === '/jwks') return response.end(JSON.stringify({ keys: [published] }));
      if (!request.url.endsWith('/chat/completions')) return response.writeHead(404).end();
      const chunk = (delta, finish_reason = null) =>
        `data: ${JSON.stringify({ id: '1', object: 'chat.completion.chunk', choices: [{ index: 0, delta, finish_reason }] })}\n\n`;
      response.writeHead(200, { 'content-type': 'text/event-stream' });
      response.end(`${chunk({ role: 'assistant', content: 'certified' })}${chunk({}, 'stop')}data: [DONE]\n\n`);
    });
    heardVoice = new Promise((resolve) => {
      server.on('upgrade', (request, socket) => (socket.destroy(), resolve(request.url)));
    });
    await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
    url = `https://127.0.0.1:${server.address().port}`;
  });
  after(async () => {
    await Promise.all(bridges.map((bridge) => bridge.stop()));
    await new Promise((resolve) => (server.close(resolve), server.closeAllConnections()));
  });

  const tls = (file) => `[tls]\nca_file = "${CERTIFICATES}${file}"\n`;
  const auth = () => `
[[auth.api_keys]]
key = "${KEY}"
user = "alice"
[[auth.oidc]]
issuer = "${url}"
audience = "${AUDIENCE}"
`;
  const agents = () => `
[[agents]]
id = "model"
kind = "openai"
model = "m"
base_url = "${url}/v1"
[[agents]]
id = "voice"
kind = "gemini"
base_url = "${url}"
`;
  const start = async (toml) => {
    const bridge = await startServer(BINARY, toml, agents(), { GEMINI_API_KEY: 'none' });
    bridges.push(bridge);
    return bridge;
  };
  const token = () => {
    const now = Math.floor(Date.now() / 1_000);
    return forge({ iss: url, aud: AUDIENCE, sub: 'bob', iat: now, exp: now + 300 }, key);
  };
  const bearer = (word) => ({ authorization: `Bearer ${word}` });
  const says = async (bridge) => {
    const messages = [{ id: 'm', role: 'user', parts: [{ type: 'text', text: 'hello' }] }];
    const response = await fetch(`${bridge.url}/api/agents/model/chat`, {
      method: 'POST',
      headers: { ...bearer(KEY), 'content-type': 'application/json' },
      body: JSON.stringify({ id: 'chat', messages }),
    });
    return response.text();
  };

  test('they are trusted by every connection if the configuration names them', async () => {
    const bridge = await start(`${auth()}${tls('authorities.pem')}`);
    const session = await fetch(`${bridge.url}/api/session`, { headers: bearer(token()) });
    assert.equal(session.status, 200, bridge.log());
    assert.match((await session.json()).user, /:bob$/);
    assert.match(await says(bridge), /certified/);
    const socket = new WebSocket(`${bridge.url.replace('http', 'ws')}/live?agent=voice`, { headers: bearer(KEY) });
    socket.once('open', () => socket.send(JSON.stringify({ type: 'audio_control', action: 'start' })));
    assert.match(await heardVoice, /BidiGenerateContent/);
    socket.terminate();
  });

  test('they are not trusted otherwise', async () => {
    for (const toml of ['', tls('other-authority.pem')]) {
      const bridge = await start(`${auth()}${toml}`);
      const before = asked.length;
      const refused = await fetch(`${bridge.url}/api/session`, { headers: bearer(token()) });
      assert.equal(refused.status, 503);
      assert.ok(refused.headers.get('retry-after') !== null);
      assert.doesNotMatch(await says(bridge), /certified/);
      assert.match(bridge.log(), /certificate/i);
      assert.equal(asked.length, before);
    }
  });

  test('check-config names a file that is missing, or has no certificate', () => {
    const directory = mkdtempSync(join(tmpdir(), 'adk-bridge-tls-'));
    const [config, text] = [join(directory, 'adk-bridge.toml'), join(directory, 'text.pem')];
    writeFileSync(text, 'no certificate');
    for (const [file, code, words] of [
      [join(directory, 'missing.pem'), 1, /tls\.ca_file.*missing\.pem/],
      [text, 1, /tls\.ca_file.*text\.pem.*BEGIN CERTIFICATE/],
      [`${CERTIFICATES}server-key.pem`, 1, /tls\.ca_file.*server-key\.pem.*BEGIN CERTIFICATE/],
      [`${CERTIFICATES}authorities.pem`, 0, /can be used/],
    ]) {
      writeFileSync(config, `[tls]\nca_file = "${file}"\n`);
      const checked = spawnSync(BINARY, ['check-config', '--config', config], { encoding: 'utf8' });
      assert.equal(checked.status, code, checked.stdout + checked.stderr);
      assert.match(checked.stdout, words);
    }
    rmSync(directory, { recursive: true });
  });
});
