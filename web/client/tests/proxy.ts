/** A TCP proxy whose connections can be cut, and whose server can be exchanged. */

import { connect, createServer, type AddressInfo, type Socket } from 'node:net';

export interface TestProxy {
  readonly url: string;
  /** Breaks every connection at once. */
  cut(): void;
  /** While false, connections are refused. */
  isUp: boolean;
  /** Where connections go. */
  target: string;
  readonly connections: number;
  close(): Promise<void>;
}

export async function startProxy(target: string): Promise<TestProxy> {
  const sockets = new Set<Socket>();
  const keep = (socket: Socket) => {
    sockets.add(socket);
    socket.on('error', () => {});
    socket.on('close', () => sockets.delete(socket));
  };
  let count = 0;
  const server = createServer((client) => {
    keep(client);
    if (!proxy.isUp) {
      client.destroy();
      return;
    }
    count += 1;
    const { hostname, port } = new URL(proxy.target);
    const upstream = connect(Number(port), hostname);
    keep(upstream);
    client.pipe(upstream).pipe(client);
    client.on('close', () => upstream.destroy());
    upstream.on('close', () => client.destroy());
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const proxy: TestProxy = {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    cut: () => {
      for (const socket of [...sockets]) socket.resetAndDestroy();
    },
    isUp: true,
    target,
    get connections() {
      return count;
    },
    close: async () => {
      for (const socket of [...sockets]) socket.destroy();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return proxy;
}
