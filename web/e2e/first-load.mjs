// What the first load of the page takes, in bytes and CPU.

// Nothing more happens when the page's thread has had nothing long to do for this time.
const REST_MS = 1_000;

/** Opens the page in a new profile and says what that took. */
export async function firstLoad(open) {
  const visit = await open();
  // The page is open: its worker and its caches are not, as the profile is new. What it takes is looked at in another tab,
  // from the beginning, without its cache.
  const page = await visit.context.newPage();
  const session = await visit.context.newCDPSession(page);
  const bytes = { all: 0, script: 0, style: 0, font: 0 };
  const types = new Map();
  let requests = 0;
  session.on('Network.responseReceived', ({ requestId, type }) => types.set(requestId, type));
  session.on('Network.loadingFinished', ({ requestId, encodedDataLength }) => {
    const kind = { Script: 'script', Stylesheet: 'style', Font: 'font' }[types.get(requestId)];
    requests += 1;
    bytes.all += encodedDataLength;
    if (kind !== undefined) bytes[kind] += encodedDataLength;
  });
  await session.send('Network.enable');
  await session.send('Network.setCacheDisabled', { cacheDisabled: true });
  await session.send('Performance.enable', { timeDomain: 'threadTicks' });
  const cpu = async () => {
    const { metrics } = await session.send('Performance.getMetrics');
    return metrics.find(({ name }) => name === 'TaskDuration').value * 1e3;
  };
  const before = await cpu();
  await page.addInitScript(() => {
    window.tasks = [];
    new PerformanceObserver((list) => window.tasks.push(...list.getEntries().map((it) => [it.startTime, it.duration]))).observe({
      type: 'longtask',
      buffered: true,
    });
    new MutationObserver((_changes, observer) => {
      const composer = document.querySelector('[data-testid=composer]');
      if (composer === null || composer.disabled) return;
      window.composer = performance.now();
      observer.disconnect();
    }).observe(document, { subtree: true, childList: true, attributes: true });
  });
  await page.goto(visit.address());
  await page.getByTestId('suggestions').waitFor();
  const tasks = await page.evaluate(async (rest) => {
    const end = ([start, duration]) => start + duration;
    const last = () => Math.max(window.composer, ...window.tasks.map(end));
    while (performance.now() - last() < rest) await new Promise((resolve) => setTimeout(resolve, 50));
    return { usable: last(), longest: Math.max(0, ...window.tasks.map(([, duration]) => duration)) };
  }, REST_MS);
  const spent = (await cpu()) - before;
  await visit.close();
  return { bytes, requests, cpu: spent, ...tasks };
}
