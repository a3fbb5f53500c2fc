// A chat of assistant-ui's primitives on a stock `useChat`: text, pictures, tools of the server and of the page, approvals.

import { useChat } from '@ai-sdk/react';
import {
  AssistantRuntimeProvider,
  AttachmentPrimitive,
  ComposerPrimitive,
  MessagePrimitive,
  ThreadPrimitive,
  useAssistantTool,
} from '@assistant-ui/react';
import { useAISDKRuntime } from '@assistant-ui/react-ai-sdk';
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from 'ai';

// A tool of this page. The bridge tells the model of it, and the page runs it: here without approval, since assistant-ui runs
// no tool that somebody has to approve.
const SET_COLOR = {
  name: 'set_color',
  description: 'Sets the background color of the page.',
  inputSchema: { type: 'object', properties: { color: { type: 'string' } }, required: ['color'] },
};

const transport = new DefaultChatTransport({ api: '/api/chat', body: { tools: [SET_COLOR] } });

export function Chat({ id, stored }) {
  const chat = useChat({
    id,
    messages: stored,
    resume: true, // goes on with an answer that is still being written
    transport,
    sendAutomaticallyWhen: (state) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(state) || lastAssistantMessageIsCompleteWithToolCalls(state),
  });
  // assistant-ui only stops reading; this stops the turn on the server.
  const end = () => fetch(`/api/chat/${id}/stop`, { method: 'POST' });
  return (
    <AssistantRuntimeProvider runtime={useAISDKRuntime(chat)}>
      <SetColor />
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Viewport>
          <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
        </ThreadPrimitive.Viewport>
        <output>{chat.error?.message ?? chat.status}</output>
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Attachments components={{ Attachment }} />
          <ComposerPrimitive.AddAttachment>Picture</ComposerPrimitive.AddAttachment>
          <ComposerPrimitive.Input placeholder="Message" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
          <ThreadPrimitive.If running>
            <ComposerPrimitive.Cancel onClick={end}>Stop</ComposerPrimitive.Cancel>
          </ThreadPrimitive.If>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

/** Shows nothing; it tells assistant-ui how the tool is run. */
function SetColor() {
  useAssistantTool({
    toolName: SET_COLOR.name,
    description: SET_COLOR.description,
    parameters: SET_COLOR.inputSchema,
    execute: ({ color }) => {
      document.body.style.background = color;
      return { shown: color };
    },
  });
  return null;
}

function UserMessage() {
  return (
    <MessagePrimitive.Root asChild>
      <article className="user">
        <MessagePrimitive.Attachments components={{ Attachment }} />
        <MessagePrimitive.Parts components={{ Text, File, Image }} />
      </article>
    </MessagePrimitive.Root>
  );
}

function AssistantMessage() {
  return (
    <MessagePrimitive.Root asChild>
      <article className="assistant">
        <MessagePrimitive.Parts components={{ Text, File, Image, tools: { Fallback: Tool } }} />
      </article>
    </MessagePrimitive.Root>
  );
}

function Tool({ toolName, args, result, isError, approval, respondToApproval }) {
  const asks = approval !== undefined && approval.approved === undefined && result === undefined;
  return (
    <section>
      {toolName} {JSON.stringify(args)}: {isError ? 'failed ' : ''}
      {JSON.stringify(result)}
      {asks && (
        <button type="button" onClick={() => respondToApproval({ approved: true })}>
          Allow
        </button>
      )}
      {asks && (
        <button type="button" onClick={() => respondToApproval({ approved: false })}>
          Deny
        </button>
      )}
    </section>
  );
}

function Text({ text }) {
  return <p>{text}</p>;
}

function File({ data, mimeType, filename }) {
  return mimeType.startsWith('image/') ? <img src={data} alt={filename ?? ''} /> : <a href={data}>{filename}</a>;
}

function Image({ image }) {
  return <img src={image} alt="" />;
}

function Attachment() {
  return (
    <AttachmentPrimitive.Root>
      <AttachmentPrimitive.Name />
    </AttachmentPrimitive.Root>
  );
}
