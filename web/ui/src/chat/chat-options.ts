/** How a chat reaches the server, in either mode, with everything that passes written down. */
import { type BridgeChatInit, buildUseChatOptions, DecisionSender } from '@adk-bridge/client';

import { wantedAgent } from '../lib/agents';
import { apiKey, authorizedFetch } from '../lib/api';
import { loggingFetch } from '../lib/logging-fetch';
import { loggingWebSocket } from '../lib/logging-web-socket';
import { dialect, type Mode } from '../lib/settings';
import { answeredTools } from '../tools/asked';

export function chatOptions(id: string, mode: Mode, onAccepted: () => void): BridgeChatInit {
  const common = { ...address(id), id };
  if (mode === 'sse') return buildUseChatOptions({ ...common, mode, fetch: loggingFetch(id, onAccepted) });
  return buildUseChatOptions({
    ...common,
    mode,
    fetch: authorizedFetch,
    // A browser's WebSocket carries no header, so that a key is exchanged for a ticket.
    ticket: apiKey.get() !== '',
    WebSocket: loggingWebSocket(id),
  });
}

/** Sends what the user decides, one by one: over HTTP in either mode. */
export function decisionSender(id: string): DecisionSender {
  return new DecisionSender({ ...address(id), fetch: loggingFetch(id, () => {}) });
}

function address(id: string) {
  return { baseUrl: '.', dialect, sdk: 7 as const, clientTools: answeredTools, agent: () => wantedAgent(id) };
}
