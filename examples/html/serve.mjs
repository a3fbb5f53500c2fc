// Serves the page, and passes on to the bridge what is the bridge's. Any web server with a proxy does the same.

import { readFile } from 'node:fs/promises';
import { createServer, request as ask } from 'node:http';

const bridge = process.env.ADK_BRIDGE_URL ?? 'http://127.0.0.1:8080';
const page = new URL('index.html', import.meta.url);

const server = createServer(async (request, response) => {
  if (!request.url.startsWith('/api/')) {
    response.setHeader('content-type', 'text/html; charset=utf-8');
    return response.end(await readFile(page));
  }
  const { method, headers } = request;
  const passedOn = ask(new URL(request.url, bridge), { method, headers }, (answer) => {
    response.writeHead(answer.statusCode, answer.headers);
    answer.pipe(response);
  });
  passedOn.on('error', () => response.writeHead(502).end('the bridge is not there'));
  response.on('close', () => passedOn.destroy());
  request.pipe(passedOn);
});
server.listen(Number(process.env.PORT ?? 5173), '127.0.0.1', () => {
  console.log(`open http://127.0.0.1:${server.address().port}/`);
});
