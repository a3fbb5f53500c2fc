/** `fetch` for the chat transport that also writes down what passes. */
import { authorizedFetch } from './api';
import { beginRequest, endRequest, logChunk, type LoggedRequest } from './chunk-log';

/** `onAccepted` is called when the server has taken a message. */
export function loggingFetch(chat: string, onAccepted: () => void): typeof fetch {
  return async (input, init) => {
    const label = init?.method === 'POST' ? 'request' : 'resume';
    const request = beginRequest(chat, 'http', label, lastMessageOf(init?.body));
    try {
      const response = await authorizedFetch(input, init);
      request.status = response.status;
      if (response.ok && label === 'request') onAccepted();
      // A 204 may have a body for the browser, and no response can be made from it.
      if (!response.ok || response.status === 204 || response.body === null) {
        endRequest(request);
        return response;
      }
      const { status, headers } = response;
      return new Response(response.body.pipeThrough(observer(request)), { status, headers });
    } catch (problem) {
      endRequest(request);
      throw problem;
    }
  };
}

/** A request repeats the whole history; what is news is its end. */
function lastMessageOf(body: unknown): unknown {
  if (typeof body !== 'string') return null;
  const { messages, ...rest } = JSON.parse(body) as { messages?: unknown[] };
  return { ...rest, messages: messages?.length ?? 0, lastMessage: messages?.at(-1) };
}

function observer(request: LoggedRequest): TransformStream<Uint8Array, Uint8Array> {
  const decoder = new TextDecoder();
  let rest = '';
  return new TransformStream({
    transform(piece, control) {
      control.enqueue(piece);
      const lines = (rest + decoder.decode(piece, { stream: true })).split('\n');
      rest = lines.pop() ?? '';
      for (const line of lines.filter((text) => text.startsWith('data: '))) note(request, line.slice(6));
    },
    flush: () => endRequest(request),
  });
}

function note(request: LoggedRequest, text: string): void {
  if (text === '[DONE]') {
    logChunk(request, 'in', '[DONE]', null, 0);
    return;
  }
  try {
    const chunk = JSON.parse(text) as { type: string };
    logChunk(request, 'in', chunk.type, chunk, text.length);
  } catch {
    logChunk(request, 'in', 'unreadable', text, text.length);
  }
}
