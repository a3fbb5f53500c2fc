// What a proxy does that logs users in: it publishes its keys, and signs who its users are, with the `jose` package.

import { createServer } from 'node:http';

import { SignJWT, exportJWK, generateKeyPair } from 'jose';

export const HEADER = 'x-signed-user';
export const AUDIENCE = '/projects/1/global/backendServices/2';
export const ISSUER = 'https://proxy.example';

/** Starts it. */
export async function startSigningProxy() {
  let [key, number] = [undefined, 0];
  let trouble = '';
  const rotate = async (alg = 'ES256') => {
    number += 1;
    key = { alg, kid: `key-${number}`, ...(await generateKeyPair(alg, { extractable: true })) };
    return key;
  };
  await rotate();
  const server = createServer(async (_request, response) => {
    if (trouble === 'silent') return;
    const { alg, kid, publicKey } = key;
    const keys = [{ ...(await exportJWK(publicKey)), alg, kid, use: 'sig' }];
    const isAway = trouble === 'away';
    response.writeHead(isAway ? 503 : 200, { 'content-type': 'application/json' });
    response.end(isAway ? undefined : JSON.stringify({ keys }));
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    /** The assertion about a user; `change` is what differs from the usual one, `by` another key. */
    assertion: (user, change = {}, by = key) => {
      const now = Math.floor(Date.now() / 1_000);
      const claims = { iss: ISSUER, aud: AUDIENCE, sub: user, iat: now, exp: now + 600, ...change };
      return new SignJWT(claims).setProtectedHeader({ alg: by.alg, kid: by.kid, typ: 'JWT' }).sign(by.secret ?? by.privateKey);
    },
    /** Signs with another key from here on, and knows the one before no more. */
    rotate,
    key: () => key,
    /** Whether its keys cannot be had: `away`, `silent`, or nothing. */
    has: (what) => {
      trouble = what;
    },
    toml: (more = '') => `
[auth.proxy]
header = "${HEADER}"
jwks_url = "http://127.0.0.1:${server.address().port}/keys"
audience = "${AUDIENCE}"
issuer = "${ISSUER}"
roles_claim = "groups"
roles = { operators = "admin" }
${more}
`,
    stop: () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())),
  };
}
