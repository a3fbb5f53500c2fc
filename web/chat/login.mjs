// A user of the provider of `web/e2e/login-provider.mjs`, without a browser: follows links, keeps cookies, sends forms.

import assert from 'node:assert/strict';

// A login has some ten steps.
const STEP_LIMIT = 30;

export class Visitor {
  #cookies = new Map();

  /**
   * `publicUrl` is the name by which the provider knows the bridge at `url`; `send` takes what `fetch` takes, and may ask
   * somebody else.
   */
  constructor({ url, publicUrl = url, send = fetch }) {
    this.place = (address) => address.replace(publicUrl, url);
    this.send = send;
  }

  /** The cookies that are sent to an address. */
  cookiesFor(address) {
    const cookies = this.#cookies.get(new URL(address).host) ?? new Map();
    return [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
  }

  /** Goes from the bridge's link to the page at `end`; returns that page. The user consents, or leaves by the provider's own link. */
  async follow(link, { user = 'alice', consents = true, end = '/api/oauth/callback' } = {}) {
    let [address, options] = [this.place(link), {}];
    for (let step = 0; step < STEP_LIMIT; step += 1) {
      const response = await this.#fetch(address, options);
      options = {};
      const next = response.headers.get('location');
      if (next !== null) {
        address = this.place(new URL(next, address).href);
        continue;
      }
      const page = await response.text();
      if (new URL(address).pathname === end) return { status: response.status, page, address };
      assert.equal(response.status, 200, page);
      const prompt = /name="prompt" value="(\w+)"/.exec(page)?.[1];
      assert.ok(prompt, page);
      if (prompt === 'consent' && !consents) {
        address = new URL(/href="([^"]*\/abort)"/.exec(page)[1], address).href;
        continue;
      }
      address = new URL(/action="([^"]*)"/.exec(page)[1], address).href;
      const login = prompt === 'login' ? { login: user, password: 'PLANTED-PROVIDER-PASSWORD' } : {};
      options = { method: 'POST', body: new URLSearchParams({ prompt, ...login }) };
    }
    throw new Error(`the login does not end: ${address}`);
  }

  async #fetch(address, options) {
    const host = new URL(address).host;
    const cookies = this.#cookies.get(host) ?? new Map();
    this.#cookies.set(host, cookies);
    const cookie = this.cookiesFor(address);
    const response = await this.send(address, { ...options, redirect: 'manual', headers: { cookie } });
    for (const set of response.headers.getSetCookie()) {
      const [, name, value] = /^([^=]+)=([^;]*)/.exec(set);
      cookies.set(name, value);
    }
    return response;
  }
}
