/** The chat over HTTP: the AI SDK's own transport with the bridge's settings. */

import { DefaultChatTransport, type ChatTransport, type UIMessage } from 'ai';

import type { BridgeAddress, Dialect } from './bridge-requests.js';
import { DEFAULT_SDK, type SdkVersion } from './sdk-version.js';

/** Options of {@link createSseChatTransport}. */
export interface SseChatTransportOptions extends BridgeAddress {
  /** The wire form; `native` if left out. */
  dialect?: Dialect | undefined;
  /** The version of the AI SDK: a newer one lets the bridge send the chunks that only it knows. */
  sdk?: SdkVersion | undefined;
  /** Further fields of every request. */
  body?: object | undefined;
}

/** Makes the AI SDK's `DefaultChatTransport` for a bridge. */
export function createSseChatTransport<Message extends UIMessage = UIMessage>(
  options: SseChatTransportOptions = {},
): ChatTransport<Message> {
  const { baseUrl = '', headers, fetch, credentials, body } = options;
  const wire = wireOptions(options);
  const query = new URLSearchParams(wire as Record<string, string>).toString();
  return new DefaultChatTransport<Message>({
    api: `${baseUrl}/api/chat${query === '' ? '' : `?${query}`}`,
    body: { ...body, ...wire },
    ...(headers !== undefined && { headers }),
    ...(fetch !== undefined && { fetch }),
    ...(credentials !== undefined && { credentials }),
  });
}

/** What a request says about its wire form, as far as it is not the default. */
export function wireOptions({ dialect, sdk }: { dialect?: Dialect | undefined; sdk?: SdkVersion | undefined }) {
  return {
    ...(dialect !== undefined && dialect !== 'native' && { dialect }),
    ...(sdk !== undefined && sdk !== DEFAULT_SDK && { sdk }),
  };
}
