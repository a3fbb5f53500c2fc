// The system's Chromium with a fake camera and microphone, and pages that report what goes wrong in them.

import { existsSync } from 'node:fs';
import { chromium } from 'playwright-core';

const PATHS = ['/usr/bin/chromium', '/usr/bin/chromium-browser', '/usr/bin/google-chrome', '/usr/bin/google-chrome-stable'];

/** Pages of this host come over plain HTTP and from elsewhere, as far as the browser knows. */
export const OTHER_HOST = 'bridge.test';

export function launch() {
  const executablePath = process.env.CHROMIUM ?? PATHS.find((path) => existsSync(path));
  if (executablePath === undefined) throw new Error('no Chromium found: install it, or name it in CHROMIUM');
  return chromium.launch({
    executablePath,
    args: [
      '--no-sandbox',
      '--disable-gpu',
      '--disable-quic',
      '--no-first-run',
      '--disable-background-networking',
      '--disable-component-update',
      '--disable-sync',
      '--use-fake-device-for-media-stream',
      '--use-fake-ui-for-media-stream',
      '--autoplay-policy=no-user-gesture-required',
      // This machine under a name that browsers do not take for it.
      `--host-resolver-rules=MAP ${OTHER_HOST} 127.0.0.1`,
    ],
  });
}

export const DESKTOP = { width: 1280, height: 860 };
export const PHONE = { width: 390, height: 844 };
export const WIDE = { width: 2560, height: 1440 };

/** A browser profile of its own; `problems` gathers what no test may leave behind. */
export async function openContext(browser, origin, { alsoAt, ...options } = {}) {
  const context = await browser.newContext({
    viewport: DESKTOP,
    locale: 'en-US',
    colorScheme: 'light',
    reducedMotion: 'reduce',
    permissions: ['clipboard-read', 'clipboard-write', 'geolocation', 'camera', 'microphone'],
    geolocation: { latitude: 35.0116, longitude: 135.7681, accuracy: 20 },
    ...options,
  });
  // What the pages of others load from elsewhere is not there.
  if (alsoAt !== undefined) await context.route(/^https:/, (route) => route.abort());
  const problems = [];
  context.on('request', (request) => {
    const url = request.url();
    const isMeant = url.startsWith(origin) || (alsoAt !== undefined && (url.startsWith(alsoAt) || isFrom(request, alsoAt)));
    if (!isMeant && !/^(blob|data):/.test(url)) problems.push(`a request left the origin: ${url}`);
  });
  context.on('console', (message) => {
    const text = message.text();
    // A refused or lost request is what some tests are about; they look at what the page makes of it.
    if (message.type() === 'error' && !/Failed to load resource|ERR_/.test(text)) problems.push(`console: ${text}`);
  });
  context.on('weberror', (error) => problems.push(`uncaught: ${error.error().stack ?? error.error()}`));
  return { context, problems };
}

/** Whether a page of another program has sent it, which loads what it wants. */
function isFrom(request, origin) {
  return !request.isNavigationRequest() && request.frame().url().startsWith(origin);
}
