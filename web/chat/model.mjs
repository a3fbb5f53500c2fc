// The scripted Gemini behind a gate: a test says when an answer goes on, so that no machine is too fast or too slow for it.

import { createServer } from 'node:http';

import { startProcess } from './server.mjs';

/** Starts the model; a server with `toml` and `env` asks it, and may use these tools of the demo. */
export async function startModel(binary) {
  const scripted = await startProcess(binary, ['fake-gemini', '--pace=0ms'], /listening on (http:\/\/\S+)/);

  const closed = new Map();
  const proxy = createServer((request, response) => {
    forward(scripted.url, request, response, closed).catch((problem) => response.destroy(problem));
  });
  await new Promise((resolve) => proxy.listen(0, '127.0.0.1', resolve));

  let count = 0;
  return {
    toml: (tools) =>
      `[agent]\nkind = "gemini"\nbase_url = "http://127.0.0.1:${proxy.address().port}"\ntools = ${JSON.stringify(tools)}\n`,
    env: { GEMINI_API_KEY: 'any key will do' },
    /** A word that an answer does not get past until the gate is opened: `say before ${word} after`. */
    gate: () => {
      count += 1;
      const word = `gate${count}.`;
      let pass;
      closed.set(word, new Promise((resolve) => (pass = resolve)));
      return { word, open: () => (closed.delete(word), pass()) };
    },
    stop: async () => {
      proxy.closeAllConnections();
      await new Promise((resolve) => proxy.close(resolve));
      await scripted.kill();
    },
    log: scripted.log,
  };
}

async function forward(target, request, response, closed) {
  const left = new Promise((resolve) => response.once('close', resolve));
  const body = [];
  for await (const piece of request) body.push(piece);
  const { host: _host, connection: _connection, 'content-length': _length, ...headers } = request.headers;
  const answer = await fetch(target + request.url, {
    method: request.method,
    headers,
    ...(body.length > 0 && { body: withSearch(Buffer.concat(body).toString()) }),
  });
  response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? 'application/json' });
  let rest = '';
  const send = async (event) => {
    for (const [word, opened] of closed) if (event.includes(word)) await Promise.race([opened, left]);
    response.write(event);
  };
  for await (const piece of answer.body.pipeThrough(new TextDecoderStream())) {
    const events = (rest + piece).split(/(?<=\r\n\r\n)/);
    rest = events.pop();
    for (const event of events) await send(event);
  }
  await send(rest);
  response.end();
}

/** Agents that may search the web say so in their requests; the bridge's own offers functions only. */
function withSearch(body) {
  if (!body.includes('search the web')) return body;
  const { tools: _tools, toolConfig: _config, ...request } = JSON.parse(body);
  return JSON.stringify({ ...request, tools: [{ googleSearch: {} }] });
}
