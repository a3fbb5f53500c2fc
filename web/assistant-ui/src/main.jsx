// assistant-ui's own runtime and primitives on a stock `useChat`: nothing of this project but the address of the bridge.

import { useChat } from '@ai-sdk/react';
import {
  ActionBarPrimitive,
  AssistantRuntimeProvider,
  AttachmentPrimitive,
  BranchPickerPrimitive,
  ComposerPrimitive,
  MessagePrimitive,
  ThreadPrimitive,
} from '@assistant-ui/react';
import { useAISDKRuntime } from '@assistant-ui/react-ai-sdk';
import {
  DefaultChatTransport,
  lastAssistantMessageIsCompleteWithApprovalResponses,
  lastAssistantMessageIsCompleteWithToolCalls,
} from 'ai';
import { createRoot } from 'react-dom/client';

const { bridge, key, chat: id } = Object.fromEntries(new URLSearchParams(location.search));
const headers = { authorization: `Bearer ${key}` };

function App({ messages }) {
  const chat = useChat({
    id,
    messages,
    resume: true,
    transport: new DefaultChatTransport({ api: `${bridge}/api/chat`, headers }),
    sendAutomaticallyWhen: (state) =>
      lastAssistantMessageIsCompleteWithApprovalResponses(state) || lastAssistantMessageIsCompleteWithToolCalls(state),
  });
  return (
    <AssistantRuntimeProvider runtime={useAISDKRuntime(chat)}>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Viewport>
          <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage, EditComposer }} />
        </ThreadPrimitive.Viewport>
        <ComposerPrimitive.Root data-test="composer">
          <ComposerPrimitive.Attachments components={{ Attachment }} />
          <ComposerPrimitive.AddAttachment>Attach</ComposerPrimitive.AddAttachment>
          <ComposerPrimitive.Input placeholder="Write" />
          <ComposerPrimitive.Send>Send</ComposerPrimitive.Send>
        </ComposerPrimitive.Root>
        <p data-test="status">{chat.error === undefined ? chat.status : chat.error.message}</p>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

function UserMessage() {
  return (
    <MessagePrimitive.Root data-test="user">
      <MessagePrimitive.Attachments components={{ Attachment }} />
      <MessagePrimitive.Parts components={{ Text, File, Image }} />
      <ActionBarPrimitive.Root>
        <ActionBarPrimitive.Edit>Edit</ActionBarPrimitive.Edit>
      </ActionBarPrimitive.Root>
      <Branches />
    </MessagePrimitive.Root>
  );
}

function AssistantMessage() {
  return (
    <MessagePrimitive.Root data-test="assistant">
      <MessagePrimitive.Parts components={{ Text, File, Image, tools: { Fallback: Tool } }} />
    </MessagePrimitive.Root>
  );
}

function EditComposer() {
  return (
    <ComposerPrimitive.Root data-test="edit">
      <ComposerPrimitive.Input />
      <ComposerPrimitive.Send>Save</ComposerPrimitive.Send>
    </ComposerPrimitive.Root>
  );
}

function Branches() {
  return (
    <BranchPickerPrimitive.Root hideWhenSingleBranch data-test="branches">
      <BranchPickerPrimitive.Previous>Previous</BranchPickerPrimitive.Previous>
      <BranchPickerPrimitive.Number /> of <BranchPickerPrimitive.Count />
      <BranchPickerPrimitive.Next>Next</BranchPickerPrimitive.Next>
    </BranchPickerPrimitive.Root>
  );
}

function Tool({ toolName, result, isError, approval, respondToApproval }) {
  const isOpen = approval !== undefined && approval.approved === undefined && result === undefined;
  return (
    <div data-test="tool">
      {toolName}: <code>{result === undefined ? '…' : (isError ? 'failed ' : '') + JSON.stringify(result)}</code>
      {isOpen && (
        <button type="button" onClick={() => respondToApproval({ approved: true })}>
          Allow
        </button>
      )}
      {isOpen && (
        <button type="button" onClick={() => respondToApproval({ approved: false })}>
          Deny
        </button>
      )}
    </div>
  );
}

function Text({ text }) {
  return <p>{text}</p>;
}

function File({ data, mimeType }) {
  return mimeType.startsWith('image/') ? <img src={data} alt={mimeType} /> : <a href={data}>{mimeType}</a>;
}

function Image({ image }) {
  return <img src={image} alt="" />;
}

function Attachment() {
  return (
    <AttachmentPrimitive.Root data-test="attachment">
      <AttachmentPrimitive.Name />
    </AttachmentPrimitive.Root>
  );
}

/** What the chat holds already; a chat that does not exist yet holds nothing. */
async function storedMessages() {
  const response = await fetch(`${bridge}/api/chats/${id}`, { headers });
  if (response.status === 404) return [];
  if (!response.ok) throw new Error(await response.text());
  return (await response.json()).messages;
}

createRoot(document.querySelector('#root')).render(<App messages={await storedMessages()} />);
