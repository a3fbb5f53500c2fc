// The AI SDK's own WebSocket transport (v7), with every frame kept in the form of a request and its answer.

import * as ai7 from 'ai-7';
import WebSocket from 'ws';

/** A transport for `server`; `keep` is given each request, whose `text` then grows as its chunks come. */
export function socketTransport(server, body, keep) {
  const requests = new Map();

  class KeptSocket extends WebSocket {
    constructor(...args) {
      super(...args);
      this.on('message', (data) => take(JSON.parse(String(data))));
    }

    send(text) {
      const { type, requestId, body: extras, ...frame } = JSON.parse(text);
      if (type !== 'abort') {
        const request = { method: type === 'send' ? 'POST' : 'GET', body: { ...frame, ...extras }, text: '' };
        requests.set(requestId, request);
        keep(request);
      }
      super.send(text);
    }
  }

  const take = ({ type, requestId, chunk }) => {
    const request = requests.get(requestId);
    if (request === undefined) throw new Error(`${type} of ${requestId}, which was never asked for`);
    if (type === 'start') request.status = 200;
    if (type === 'no-active') request.status = 204;
    if (type === 'error') request.status = 400;
    if (type === 'chunk') request.text += `data: ${JSON.stringify(chunk)}\n\n`;
    if (type === 'end') request.text += 'data: [DONE]\n\n';
  };

  return new ai7.WebSocketChatTransport({ url: `${server.url}/api/chat`, body, webSocket: KeptSocket });
}
