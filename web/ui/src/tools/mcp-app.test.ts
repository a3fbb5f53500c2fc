import { describe, expect, test } from 'vitest';

import type { ToolPart } from '../chat/calls';
import { APP_TYPE, appOf, MAX_HTML } from './mcp-app';

const URI = 'ui://charts/sales';
const METADATA = { app: { resourceUri: URI, mimeType: APP_TYPE } };

function part(output: unknown, toolMetadata: unknown = METADATA, state = 'output-available'): ToolPart {
  return { type: 'tool-show', toolCallId: 'c', state, input: {}, output, toolMetadata } as unknown as ToolPart;
}

const result = (resource: unknown) => ({
  content: [
    { type: 'text', text: 'done' },
    { type: 'resource', resource },
  ],
});
const page = { uri: URI, mimeType: APP_TYPE, text: '<p>hi</p>' };

describe('the app of a call', () => {
  test.each([
    ['as text', page],
    ['as bytes', { uri: URI, mimeType: 'text/html', blob: btoa('<p>hi</p>') }],
  ])('is in its result %s', (_, resource) => {
    expect(appOf(part(result(resource)))?.resource?.html).toBe('<p>hi</p>');
  });

  test.each([
    ['of another URI', { ...page, uri: 'ui://charts/other' }],
    ['of another type', { ...page, mimeType: 'image/png' }],
    ['without a type', { uri: URI, text: '<p>hi</p>' }],
    ['that is too long', { ...page, text: 'x'.repeat(MAX_HTML + 1) }],
    ['that is broken', { uri: URI, mimeType: APP_TYPE, blob: '%%%' }],
    ['that is nothing', null],
  ])('is not a resource %s', (_, resource) => {
    expect(appOf(part(result(resource)))).toEqual({ uri: URI, resource: undefined });
  });

  test.each([
    ['no metadata', null],
    ['another address', { app: { resourceUri: 'https://example.org', mimeType: APP_TYPE } }],
    ['another type', { app: { resourceUri: URI, mimeType: 'text/html' } }],
    ['something else', { app: 'ui://x' }],
  ])('is none with %s', (_, metadata) => {
    expect(appOf(part(result(page), metadata))).toBeUndefined();
  });

  test('is none before there is a result', () => {
    expect(appOf(part(undefined, METADATA, 'input-available'))).toBeUndefined();
    expect(appOf(part('text'))).toEqual({ uri: URI, resource: undefined });
  });

  test('may declare servers, and nothing else', () => {
    const csp = { connectDomains: ['https://api.example.org', 7], frameDomains: ['https://a.example'], scriptDomains: ['x'] };
    const meta = { ui: { csp, permissions: { camera: {} } } };
    expect(appOf(part(result({ ...page, _meta: meta })))?.resource?.meta).toEqual({
      csp: { connectDomains: ['https://api.example.org'], resourceDomains: [] },
    });
    expect(appOf(part(result(page)))?.resource?.meta).toBeUndefined();
  });
});
