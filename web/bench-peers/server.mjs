// `node server.mjs 6|7 URL`: what a front end's own server does with the AI SDK, in front of a stand-in for Gemini.

import { createServer } from 'node:http';

const [version, url] = process.argv.slice(2);
const { convertToModelMessages, streamText } = await import(`ai-${version}`);
const { createGoogleGenerativeAI } = await import(`google-${version}`);
const model = createGoogleGenerativeAI({ baseURL: `${url}/v1beta`, apiKey: 'bench' })('gemini-3.8-flash');

const server = createServer(async (request, response) => {
  let body = '';
  for await (const piece of request) body += piece;
  const { messages } = JSON.parse(body);
  const result = streamText({ model, messages: await convertToModelMessages(messages) });
  result.pipeUIMessageStreamToResponse(response);
});
server.listen(0, '127.0.0.1', () => console.log(`listening on http://127.0.0.1:${server.address().port}`));
