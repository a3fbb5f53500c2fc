/** The chat over HTTP: the AI SDK's own transport with the bridge's settings. */

import { DefaultChatTransport, type ChatTransport, type UIMessage } from 'ai';

import type { BridgeAddress, Dialect } from './bridge-requests.js';
import { toolsField, type DeclaredTools } from './declared-tools.js';
import { DEFAULT_SDK, type SdkVersion } from './sdk-version.js';

/** Options of {@link createSseChatTransport}. */
export interface SseChatTransportOptions extends BridgeAddress {
  /** The wire form; `native` if left out. */
  dialect?: Dialect | undefined;
  /** The version of the AI SDK: a newer one lets the bridge send the chunks that only it knows. */
  sdk?: SdkVersion | undefined;
  /** Which of the bridge's agents answers: its id, or a function that is asked each time; the default if left out. */
  agent?: AgentChoice | undefined;
  /** Tools of this page for agents whose tools the bridge runs; they stay those of the chat until others are given. */
  tools?: DeclaredTools | undefined;
  /** Further fields of every request. */
  body?: object | undefined;
}

/** Makes the AI SDK's `DefaultChatTransport` for a bridge. */
export function createSseChatTransport<Message extends UIMessage = UIMessage>(
  options: SseChatTransportOptions = {},
): ChatTransport<Message> {
  const { baseUrl = '', headers, fetch, credentials, body, agent, tools } = options;
  const wire = wireOptions(options);
  const query = new URLSearchParams(wire as Record<string, string>).toString();
  return new DefaultChatTransport<Message>({
    api: `${baseUrl}/api/chat${query === '' ? '' : `?${query}`}`,
    body: () => ({ ...body, ...wire, ...agentField(agent), ...toolsField(tools) }),
    ...(headers !== undefined && { headers }),
    ...(fetch !== undefined && { fetch }),
    ...(credentials !== undefined && { credentials }),
  });
}

/** The id of an agent, or a function that tells it. */
export type AgentChoice = string | (() => string | undefined);

/** What a request says about its agent: nothing where the chat or the bridge decides. */
export function agentField(agent: AgentChoice | undefined): { agent?: string } {
  const id = typeof agent === 'function' ? agent() : agent;
  return id === undefined ? {} : { agent: id };
}

/** What a request says about its wire form, as far as it is not the default. */
export function wireOptions({ dialect, sdk }: { dialect?: Dialect | undefined; sdk?: SdkVersion | undefined }) {
  return {
    ...(dialect !== undefined && dialect !== 'native' && { dialect }),
    ...(sdk !== undefined && sdk !== DEFAULT_SDK && { sdk }),
  };
}
