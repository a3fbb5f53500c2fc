// A program: an MCP server (the official SDK, over HTTP) that takes payments. The file named by its first argument is the
// truth about what was paid: a line for every payment that was begun, with the key that should make it happen once.

import { appendFileSync } from 'node:fs';
import { createServer } from 'node:http';

import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';
import { z } from 'zod';

const [journal, takesMs = '200'] = process.argv.slice(2);

const now = () => performance.timeOrigin + performance.now();

function note(line) {
  appendFileSync(journal, `${JSON.stringify(line)}\n`);
}

/** `arrivedAt`: when the request came that this server is for. */
function shop(arrivedAt) {
  const server = new McpServer({ name: 'shop', version: '1.0.0' });
  const structured = (value) => ({ content: [{ type: 'text', text: JSON.stringify(value) }], structuredContent: value });
  server.registerTool(
    'pay',
    {
      description: 'Pays somebody.',
      inputSchema: { amount: z.number(), recipient: z.string() },
      outputSchema: { paid: z.number(), recipient: z.string() },
    },
    async ({ amount, recipient }, { _meta: meta }) => {
      const key = meta?.idempotencyKey;
      note({ event: 'begun', key, amount, recipient, at: arrivedAt });
      await new Promise((resolve) => setTimeout(resolve, Number(takesMs)));
      note({ event: 'ended', key, at: now() });
      return structured({ paid: amount, recipient });
    },
  );
  server.registerTool(
    'price',
    {
      description: 'Says what something costs.',
      inputSchema: { item: z.string() },
      outputSchema: { price: z.number() },
      annotations: { readOnlyHint: true },
    },
    async ({ item }) => structured({ price: item.length }),
  );
  return server;
}

/** Every request stands alone: there is no session that a replica could lose. */
async function answer(request, response) {
  const server = shop(now());
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined, enableJsonResponse: true });
  response.on('close', () => void transport.close());
  await server.connect(transport);
  await transport.handleRequest(request, response);
}

const http = createServer((request, response) => {
  answer(request, response).catch((problem) => {
    console.error(problem);
    response.destroy();
  });
});
http.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${http.address().port}/mcp`));
