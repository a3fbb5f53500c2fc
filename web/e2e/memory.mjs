// How much memory the page keeps of what was streamed to it.

// A character takes one or two bytes, and is there as what came, as what the SDK holds, and as what is drawn.
export const MOST_HEAP_GROWTH = 8;

const ANSWER_MS = 240_000;

/** Has an answer of so many words streamed, and waits for its end. */
export async function streamed(visit, words) {
  await visit.say(`long ${words}`);
  await visit.sees(`word${words}`, visit.page, ANSWER_MS);
  await visit.answered();
}

/** What scripts keep after everything that nothing needs is gone, with the length of the conversation. */
export async function heapOf(visit) {
  const session = await visit.context.newCDPSession(visit.page);
  await session.send('Performance.enable');
  await session.send('HeapProfiler.enable');
  await session.send('HeapProfiler.collectGarbage');
  const { metrics } = await session.send('Performance.getMetrics');
  const read = (wanted) => metrics.find(({ name }) => name === wanted).value;
  const found = { bytes: read('JSHeapUsedSize'), nodes: read('Nodes'), listeners: read('JSEventListeners') };
  await session.detach();
  const text = (await visit.messages()).flatMap(({ parts }) => parts.map((part) => part.text ?? '')).join('').length;
  return { ...found, text };
}
