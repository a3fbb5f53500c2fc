/** The app that shows a tool's result: named by the call's metadata, and carried by the result if the tool embeds it. */
import type { MCPAppResource } from '@ai-sdk/react';

import type { ToolPart } from '../chat/calls';

export const APP_TYPE = 'text/html;profile=mcp-app';

/** More than any app has; a result with more would make the page slow before anything is shown. */
export const MAX_HTML = 2_000_000;

export interface McpApp {
  uri: string;
  /** Missing if only its MCP server has it. */
  resource: MCPAppResource | undefined;
}

/** The app of a call, if it has one and its result is there. */
export function appOf(part: ToolPart): McpApp | undefined {
  if (part.state !== 'output-available') return undefined;
  const app = part.toolMetadata?.app;
  const uri = fieldOf(app, 'resourceUri');
  if (fieldOf(app, 'mimeType') !== APP_TYPE || typeof uri !== 'string' || !uri.startsWith('ui://')) return undefined;
  return { uri, resource: embedded(part.output, uri) };
}

/** The resource of this URI in a result as MCP tools give it. */
function embedded(output: unknown, uri: string): MCPAppResource | undefined {
  const content = fieldOf(output, 'content');
  if (!Array.isArray(content)) return undefined;
  for (const item of content) {
    const resource = fieldOf(item, 'resource');
    if (fieldOf(resource, 'uri') !== uri) continue;
    const type = fieldOf(resource, 'mimeType');
    const html = htmlOf(resource);
    if (typeof type !== 'string' || !/^text\/html\b/.test(type) || html === undefined) continue;
    const meta = metaOf(resource);
    return { uri, mimeType: APP_TYPE, html, ...(meta && { meta }) };
  }
  return undefined;
}

function htmlOf(resource: unknown): string | undefined {
  const text = fieldOf(resource, 'text');
  if (typeof text === 'string') return text.length <= MAX_HTML ? text : undefined;
  const blob = fieldOf(resource, 'blob');
  if (typeof blob !== 'string' || blob.length > MAX_HTML) return undefined;
  try {
    const bytes = Uint8Array.from(atob(blob.replaceAll('-', '+').replaceAll('_', '/')), (byte) => byte.charCodeAt(0));
    return new TextDecoder('utf-8', { fatal: true }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** The servers that an app declares; permissions are not given to any. */
function metaOf(resource: unknown): MCPAppResource['meta'] | undefined {
  const meta = fieldOf(resource, '_meta') ?? fieldOf(resource, 'meta');
  const csp = fieldOf(fieldOf(meta, 'ui'), 'csp');
  if (csp === undefined) return undefined;
  return { csp: { connectDomains: textsOf(csp, 'connectDomains'), resourceDomains: textsOf(csp, 'resourceDomains') } };
}

function textsOf(value: unknown, name: string): string[] {
  const list = fieldOf(value, name);
  return Array.isArray(list) ? list.filter((item): item is string => typeof item === 'string') : [];
}

function fieldOf(value: unknown, name: string): unknown {
  return typeof value === 'object' && value !== null ? (value as Record<string, unknown>)[name] : undefined;
}
