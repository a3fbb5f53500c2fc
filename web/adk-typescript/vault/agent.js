// The agent of python/adk_agents/vault for Google's server in TypeScript: its tools need what only the user can give.

import { AuthCredentialTypes, LlmAgent } from '@google/adk';

import { ScriptedModel, tool } from '../scripted/agent.js';

const ISSUER = process.env.LOGIN_ISSUER ?? 'http://127.0.0.1:9';
// Codes are exchanged over TLS only, and not on this machine; this name stands for the provider.
const PUBLIC_ISSUER = 'https://login.example';

const fetchFromNetwork = globalThis.fetch;
globalThis.fetch = (address, options) => fetchFromNetwork(String(address).replace(PUBLIC_ISSUER, ISSUER), options);

function login(credentialKey, scopes, options = {}) {
  const flow = { authorizationUrl: `${ISSUER}/auth`, tokenUrl: `${PUBLIC_ISSUER}/token`, scopes };
  return {
    credentialKey,
    authScheme: { type: 'oauth2', flows: { authorizationCode: flow } },
    rawAuthCredential: {
      authType: AuthCredentialTypes.OAUTH2,
      oauth2: {
        clientId: 'vault',
        // What no user may ever see.
        clientSecret: process.env.LOGIN_CLIENT_SECRET ?? 'PLANTED-CLIENT-SECRET',
        // It exchanges codes with this one, whatever the answer says.
        redirectUri: process.env.LOGIN_REDIRECT,
        ...options,
      },
    },
  };
}

const MAIL = login('mail', { openid: 'who you are', mail: 'reads your mail' });
const NEWS = login('news', { openid: 'who you are' });
// The provider gives this client nothing without PKCE.
const DIARY = login('diary', { openid: 'who you are' }, { clientId: 'vault-pkce', codeChallengeMethod: 'S256' });
const KEY = { credentialKey: 'key', authScheme: { type: 'apiKey', in: 'header', name: 'x-key' } };

/** Whose access token the user has granted, or that it has to be asked for. */
async function whose(config, context) {
  const token = context.getAuthResponse(config)?.oauth2?.accessToken;
  if (!token) {
    context.requestCredential(config);
    return { pending: true };
  }
  const answer = await fetch(`${ISSUER}/me`, { headers: { authorization: `Bearer ${token}` } });
  return { of: (await answer.json()).sub, status: answer.status };
}

export const rootAgent = new LlmAgent({
  name: 'vault',
  model: new ScriptedModel(),
  tools: [
    tool('read_mail', 'Reads mail of the user.', {}, (_, context) => whose(MAIL, context)),
    tool('read_news', 'Reads news of the user.', {}, (_, context) => whose(NEWS, context)),
    tool('read_diary', 'Reads the diary of the user.', {}, (_, context) => whose(DIARY, context)),
    tool('use_key', 'Needs a key.', {}, (_, context) => {
      const credential = context.getAuthResponse(KEY);
      if (credential) return { length: (credential.apiKey ?? credential.api_key).length };
      context.requestCredential(KEY);
      return { pending: true };
    }),
  ],
});
