// A real OpenID provider on a port of its own, with its pages for login and consent.

import { createServer } from 'node:http';

import Provider from 'oidc-provider';

/** Secrets that are planted, and must not be found anywhere but between the provider and the ADK server. */
export const CLIENT_SECRET = 'PLANTED-CLIENT-SECRET-4711';

/** A client that gets no code without PKCE. */
const PKCE_CLIENT = 'vault-pkce';

/** Starts it; `allow` names the bridges that it may send users back to, `client` is how the agent's server differs as a client. */
export async function startProvider(client = {}) {
  let handle = (_request, response) => response.writeHead(503).end();
  const server = createServer((request, response) => handle(request, response));
  await new Promise((resolve) => server.listen(0, '127.0.0.1', resolve));
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const tokens = [];
  const verifiers = [];
  return {
    issuer,
    env: { LOGIN_ISSUER: issuer, LOGIN_CLIENT_SECRET: CLIENT_SECRET },
    /** Codes and tokens that it has given out. */
    tokens,
    /** What proved with PKCE that a code was asked for by who exchanges it. */
    verifiers,
    allow: (bridges) => {
      const provider = new Provider(issuer, {
        clients: ['vault', PKCE_CLIENT].map((client_id) => ({
          client_id,
          client_secret: CLIENT_SECRET,
          redirect_uris: bridges.map((bridge) => `${bridge}/api/oauth/callback`),
          ...client,
        })),
        scopes: ['openid', 'offline_access', 'mail'],
        pkce: { required: (_context, { clientId }) => clientId === PKCE_CLIENT },
        cookies: { keys: ['only for tests'] },
        findAccount: (_context, id) => ({ accountId: id, claims: () => ({ sub: id }) }),
      });
      provider.on('authorization.success', (_context, { code }) => tokens.push(code));
      provider.on('access_token.saved', ({ jti }) => tokens.push(jti));
      provider.on('grant.success', ({ oidc: { params } }) => params.code_verifier && verifiers.push(params.code_verifier));
      handle = provider.callback();
    },
    stop: () => new Promise((resolve) => (server.close(resolve), server.closeAllConnections())),
  };
}

/** Logs in and consents on the provider's pages. */
export async function consent(page, user) {
  await logIn(page, user);
  await page.getByRole('button', { name: 'Continue' }).click();
}

export async function logIn(page, user) {
  await page.locator('input[name=login]').fill(user);
  await page.locator('input[name=password]').fill('PLANTED-PROVIDER-PASSWORD');
  await page.getByRole('button', { name: 'Sign-in' }).click();
  await page.getByText('Authorize', { exact: false }).first().waitFor();
}

/** Leaves the provider's page by its own link, which refuses. */
export async function refuse(page) {
  await page.getByRole('link', { name: 'Cancel' }).click();
}
