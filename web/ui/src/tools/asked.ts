/** Which calls ask the user for what no program of this page gives: questions for input, and tools it does not know. */
import { CREDENTIAL_TOOL, type CredentialRequest } from '@adk-bridge/client';
import { getToolName, isToolUIPart, type UIMessage } from 'ai';

import { awaitsUser, type Call, callOf, INPUT_TOOL } from '../chat/calls';
import type { AgentTool, ChatRow } from '../lib/api';
import { agent } from '../lib/agents';
import { agents } from '../lib/connection';
import { humanName } from '../lib/human-name';
import type { Translate } from '../lib/i18n';
import { clientTools } from './client-tools';

export interface Question {
  /** In the agent's own words, where it has some. */
  message: string | undefined;
  /** Of the answer; `undefined` where nobody tells. */
  schema: unknown;
  /** The MCP server that asks, if one does. */
  server?: string;
}

/** Tools that were answered here although the server did not list them. */
const learned = new Set<string>([INPUT_TOOL, CREDENTIAL_TOOL]);

/** All tools whose outputs come from this page, by its own programs or by its user. */
export const answeredTools = {
  get names(): string[] {
    // Of all agents: chats that are not open go on.
    const listed = (agents.get() ?? []).flatMap(({ tools }) => tools.filter(({ runsOn }) => runsOn === 'client'));
    return [...clientTools.names, ...learned, ...listed.map(({ name }) => name)];
  },
};

export function learnTool(name: string): void {
  learned.add(name);
}

/**
 * The calls of a message that wait for the user's own answer. To be asked of the last message of a chat at rest: while a
 * turn runs an open call may well be the server's.
 */
export function askedCalls(message: UIMessage | undefined): Call[] {
  if (message?.role !== 'assistant' || hasEnded(message)) return [];
  return message.parts
    .filter(isToolUIPart)
    .filter((part) => !clientTools.names.has(getToolName(part)) && part.providerExecuted !== true && !awaitsUser(part, message))
    .flatMap((part) => callOf(part, message) ?? [])
    .filter(({ name, state }) => (state === 'running' || state === 'approved') && !runsOnServer(name));
}

/** How many answers a chat of the list waits for: approvals, and outputs that no program of this page gives. */
export function questionsIn({ pendingApprovals, pendingOutputs }: ChatRow): number {
  return pendingApprovals + pendingOutputs.filter((name) => !clientTools.names.has(name)).length;
}

export function questionOf({ name, part }: Pick<Call, 'name' | 'part'>): Question {
  if (name !== INPUT_TOOL) return { message: undefined, schema: toolNamed(name)?.outputSchema };
  const { message, response_schema: schema, responseSchema, server } = (part.input ?? {}) as Record<string, unknown>;
  return {
    message: typeof message === 'string' ? message : undefined,
    schema: schema ?? responseSchema,
    ...(typeof server === 'string' && { server }),
  };
}

/** What to call a tool on the page: ADK's own questions have names that only programs understand. */
export function titleOf(name: string, t: Translate): string {
  if (name === INPUT_TOOL) return t('inputTool');
  return name === CREDENTIAL_TOOL ? t('credentialTool') : humanName(name);
}

/** The arguments that say something to a person; the form of an answer shows itself as a form. */
export function shownInput({ name, part }: Call): unknown {
  const { input } = part;
  if (name === CREDENTIAL_TOOL) {
    const { provider, scopes } = (input ?? {}) as CredentialRequest;
    return { provider, scopes };
  }
  return name === INPUT_TOOL ? { message: questionOf({ name, part }).message } : (input ?? {});
}

/** In dialect `adk` outputs of the server's tools are held back while others wait, so that its calls look open. */
function runsOnServer(name: string): boolean {
  return !learned.has(name) && toolNamed(name)?.runsOn === 'server';
}

function toolNamed(name: string): AgentTool | undefined {
  return agent.get()?.tools.find((tool) => tool.name === name);
}

/** An answer that was stopped or superseded waits for nothing. */
function hasEnded({ metadata }: UIMessage): boolean {
  return (metadata as { ended?: string } | undefined)?.ended !== undefined;
}
