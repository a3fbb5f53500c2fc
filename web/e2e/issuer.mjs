// A real OpenID provider for the bridge itself: logins of users, tokens of programs, and keys that change.

import { createHmac, createPublicKey, generateKeyPairSync, randomUUID, sign } from 'node:crypto';
import { createServer } from 'node:http';

import Provider from 'oidc-provider';

export const AUDIENCE = 'urn:adk-bridge';
export const CLIENT_SECRET = 'PLANTED-LOGIN-SECRET-4711';

const KINDS = {
  RS256: () => generateKeyPairSync('rsa', { modulusLength: 2048 }),
  ES256: () => generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  EdDSA: () => generateKeyPairSync('ed25519'),
};

/** A key for an algorithm, under a new name. */
function newKey(alg) {
  const { privateKey } = KINDS[alg]();
  return { ...privateKey.export({ format: 'jwk' }), alg, use: 'sig', kid: `${alg}-${randomUUID()}` };
}

const encoded = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');

/** Signs claims with a key; `head` is what the head says otherwise. */
export function forge(claims, key, head = {}) {
  const { alg, kid } = { ...key, ...head };
  const signed = `${encoded({ alg, kid, typ: 'at+jwt', ...head })}.${encoded(claims)}`;
  const by = { key: { ...key }, format: 'jwk', ...(key.alg === 'ES256' && { dsaEncoding: 'ieee-p1363' }) };
  const signature = sign(key.alg === 'EdDSA' ? null : 'sha256', Buffer.from(signed), by);
  return `${signed}.${signature.toString('base64url')}`;
}

/** What a library accepts that takes the public key of RS256 for a shared secret. */
export function forgeWithPublicKey(claims, key) {
  const pem = createPublicKey({ key, format: 'jwk' }).export({ type: 'spki', format: 'pem' });
  const signed = `${encoded({ alg: 'HS256', kid: key.kid, typ: 'at+jwt' })}.${encoded(claims)}`;
  return `${signed}.${createHmac('sha256', pem).update(signed).digest('base64url')}`;
}

export const unsigned = (claims) => `${encoded({ alg: 'none', typ: 'at+jwt' })}.${encoded(claims)}.`;

/**
 * Starts it; `groups` says which groups a user or a program is in, `name` what the bridge calls it, and `says` what it tells of
 * a user in an `id_token` and at its `userinfo` endpoint.
 */
export async function startIssuer(groups = {}, { name = 'corp', says } = {}) {
  let handle = (_request, response) => response.writeHead(503).end();
  const asked = [];
  const server = createServer((request, response) => {
    asked.push(request.url.split('?')[0]);
    handle(request, response);
  });
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const secrets = [];
  let keys = [];
  let bridges = [];

  const restart = () => {
    const provider = new Provider(issuer, {
      jwks: { keys },
      clients: [
        {
          client_id: 'bridge',
          client_secret: CLIENT_SECRET,
          redirect_uris: bridges.map((bridge) => `${bridge}/login/callback`),
          post_logout_redirect_uris: bridges.map((bridge) => `${bridge}/`),
        },
        ...Object.keys(KINDS).map((alg) => ({
          client_id: `program-${alg}`,
          client_secret: CLIENT_SECRET,
          grant_types: ['client_credentials'],
          redirect_uris: [],
          response_types: [],
        })),
      ],
      scopes: ['openid', 'chat'],
      claims: { openid: ['sub'], profile: ['name', 'groups'], email: ['email', 'email_verified'] },
      cookies: { keys: ['only for tests'] },
      features: {
        clientCredentials: { enabled: true },
        resourceIndicators: {
          enabled: true,
          getResourceServerInfo: (_context, resource, { clientId }) => ({
            scope: 'chat',
            audience: resource,
            accessTokenTTL: 3_600,
            accessTokenFormat: 'jwt',
            jwt: { sign: { alg: /^program-(.*)/.exec(clientId)?.[1] ?? 'RS256' } },
          }),
        },
      },
      extraTokenClaims: (_context, { clientId }) => ({ groups: groups[clientId] ?? [] }),
      // The name and the groups are reported by the userinfo endpoint only, unless it is said otherwise.
      conformIdTokenClaims: says === undefined,
      findAccount: (_context, id) => ({
        accountId: id,
        claims: (use) => says?.(use, id) ?? { sub: id, name: `${id} of Example`, groups: groups[id] ?? [] },
      }),
    });
    provider.on('authorization.success', (_context, { code }) => code && secrets.push(code));
    provider.on('access_token.saved', ({ jti }) => secrets.push(jti));
    handle = provider.callback();
  };
  const rotate = (algorithms = Object.keys(KINDS)) => {
    keys = algorithms.map(newKey);
    restart();
    return keys;
  };
  rotate();
  return {
    issuer,
    /** What must be found nowhere. */
    secrets,
    /** The paths that it was asked for. */
    asked,
    keyFor: (alg) => keys.find((key) => key.alg === alg),
    /** Takes other keys, and knows no others any more. */
    rotate,
    /** Names the bridges that it may send users back to. */
    allow: (urls) => {
      bridges = urls;
      restart();
    },
    /** Is not there, until `allow` or `rotate`. */
    away: () => {
      handle = (_request, response) => response.writeHead(503).end();
    },
    /** A token of a program, signed in this way, as the provider issues it. */
    token: async (alg, resource = AUDIENCE) => {
      const response = await fetch(`${issuer}/token`, {
        method: 'POST',
        headers: { authorization: `Basic ${Buffer.from(`program-${alg}:${CLIENT_SECRET}`).toString('base64')}` },
        body: new URLSearchParams({ grant_type: 'client_credentials', scope: 'chat', resource }),
      });
      const { access_token: token, ...rest } = await response.json();
      if (token === undefined) throw new Error(JSON.stringify(rest));
      secrets.push(token);
      return token;
    },
    toml: (more = '') => `
[[auth.oidc]]
name = "${name}"
issuer = "${issuer}"
audience = "${AUDIENCE}"
client_id = "bridge"
client_secret_env = "LOGIN_CLIENT_SECRET"
roles_claim = "groups"
roles = { controllers = "auditor", operators = ["admin", "approver"] }
${more}
`,
    env: { LOGIN_CLIENT_SECRET: CLIENT_SECRET },
    stop: () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())),
  };
}
