// A chat: text, pictures, tools of the server and of the page, approvals.

import { useChat } from '@ai-sdk/react';
import {
  DefaultChatTransport,
  getToolName,
  isToolUIPart,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from 'ai';

// A tool of this page. The bridge tells the model of it, and the page runs it.
const SET_COLOR = {
  name: 'set_color',
  description: 'Sets the background color of the page.',
  inputSchema: { type: 'object', properties: { color: { type: 'string' } }, required: ['color'] },
};

const transport = new DefaultChatTransport({ api: '/api/chat', body: { tools: [SET_COLOR] } });

export function Chat({ id, stored }) {
  const { messages, sendMessage, addToolApprovalResponse, addToolOutput, status, error, stop } = useChat({
    id,
    messages: stored,
    resume: true, // goes on with an answer that is still being written
    transport,
    sendAutomaticallyWhen: (chat) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(chat) || lastAssistantMessageIsCompleteWithToolCalls(chat),
    onToolCall: ({ toolCall: { toolName, toolCallId, input } }) => {
      if (toolName !== SET_COLOR.name) return;
      document.body.style.background = input.color;
      addToolOutput({ tool: toolName, toolCallId, output: { shown: input.color } });
    },
  });
  const isBusy = status === 'submitted' || status === 'streaming';

  const send = (event) => {
    event.preventDefault();
    const { text, picture } = event.target.elements;
    sendMessage({ text: text.value, files: picture.files });
    event.target.reset();
  };
  // `stop` alone only stops reading; the second line stops the turn on the server.
  const end = () => {
    stop();
    fetch(`/api/chat/${id}/stop`, { method: 'POST' });
  };

  return (
    <main>
      {messages.map((message) => (
        <article key={message.id} className={message.role}>
          {message.parts.map((part, index) => (
            <Part key={index} part={part} answer={addToolApprovalResponse} />
          ))}
        </article>
      ))}
      <output>{error?.message ?? status}</output>
      <form onSubmit={send}>
        <input name="text" placeholder="Message" autoComplete="off" />
        <input name="picture" type="file" accept="image/*" aria-label="Picture" />
        <button type="submit" disabled={isBusy}>
          Send
        </button>
        {isBusy && (
          <button type="button" onClick={end}>
            Stop
          </button>
        )}
      </form>
    </main>
  );
}

function Part({ part, answer }) {
  if (part.type === 'text') return <p>{part.text}</p>;
  if (part.type === 'file' && part.mediaType.startsWith('image/')) return <img src={part.url} alt={part.filename ?? ''} />;
  if (isToolUIPart(part)) return <Tool part={part} answer={answer} />;
  return null;
}

function Tool({ part, answer }) {
  const { state, input, output, errorText, approval } = part;
  return (
    <section>
      {getToolName(part)} {JSON.stringify(input)}: {state} {JSON.stringify(output) ?? errorText}
      {state === 'approval-requested' && (
        <>
          <button type="button" onClick={() => answer({ id: approval.id, approved: true })}>
            Allow
          </button>
          <button type="button" onClick={() => answer({ id: approval.id, approved: false })}>
            Deny
          </button>
        </>
      )}
    </section>
  );
}
