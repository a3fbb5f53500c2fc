// A relay of TCP connections that can be cut, as a network can.

import { connect, createServer } from 'node:net';
import { once } from 'node:events';

/**
 * Relays to a port of this machine. `cut('reset')` breaks every connection and takes none; with `cut('silent')` packets get
 * lost: nobody learns anything, and what was under way arrives when `mend` has mended it.
 */
export async function startRelay(port) {
  const pairs = new Set();
  let state = 'whole';
  const flow = ({ near, far }) => near.pipe(far).pipe(near);
  const hold = ({ near, far }) => {
    for (const [from, to] of [
      [near, far],
      [far, near],
    ]) {
      from.unpipe(to);
      from.pause();
    }
  };
  const server = createServer((near) => {
    if (state === 'reset') return near.resetAndDestroy();
    const far = connect(port, '127.0.0.1');
    const pair = { near, far };
    pair.end = () => (pairs.delete(pair), near.destroy(), far.destroy());
    pairs.add(pair);
    for (const socket of [near, far]) socket.on('error', pair.end).on('close', pair.end);
    if (state === 'whole') flow(pair);
    else hold(pair);
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  const endAll = () => [...pairs].forEach(({ end }) => end());
  return {
    port: server.address().port,
    cut: (how) => {
      state = how;
      if (how === 'reset') endAll();
      else pairs.forEach(hold);
    },
    mend: () => {
      state = 'whole';
      pairs.forEach(flow);
    },
    stop: async () => {
      endAll();
      server.close();
      await once(server, 'close');
    },
  };
}
