/** What becomes of the list when the newest chats are asked for again. */
import fc from 'fast-check';
import { expect, it } from 'vitest';

import type { ChatRow } from './api';
import { merged, withOlder } from './chat-rows';

const row = (id: string, updatedAt: number): ChatRow => ({
  id,
  updatedAt,
  title: id,
  createdAt: 0,
  agent: null,
  pendingApprovals: 0,
  pendingOutputs: [],
});
const ids = (rows: readonly ChatRow[]) => rows.map(({ id }) => id);

it('keeps what lies behind the page, and drops what was deleted', () => {
  const before = [row('d', 4), row('c', 3), row('b', 2), row('a', 1)];
  expect(ids(withOlder({ rows: [row('d', 4), row('c', 3)], next: '?' }, before))).toEqual(['d', 'c', 'b', 'a']);
  expect(ids(withOlder({ rows: [row('d', 4), row('b', 2)], next: '?' }, before)), 'deleted').toEqual(['d', 'b', 'a']);
  expect(ids(withOlder({ rows: [row('e', 5), row('d', 4)], next: '?' }, before)), 'pushed off').toEqual([
    'e',
    'd',
    'c',
    'b',
    'a',
  ]);
  expect(ids(withOlder({ rows: [row('a', 9), row('d', 4)], next: '?' }, before)), 'gone on').toEqual(['a', 'd', 'c', 'b']);
  expect(ids(withOlder({ rows: [row('d', 4)], next: undefined }, before)), 'the only page').toEqual(['d']);
});

it('is, page by page, the list of the server, whatever was known before', () => {
  const chats = fc.uniqueArray(fc.record({ id: fc.string({ minLength: 1, maxLength: 3 }), at: fc.nat(5) }), {
    selector: ({ id }) => id,
  });
  fc.assert(
    fc.property(chats, fc.integer({ min: 1, max: 4 }), (all, size) => {
      const server = merged(
        all.map(({ id, at }) => row(id, at)),
        [],
      );
      const page = { rows: server.slice(0, size), next: server.length > size ? '?' : undefined };
      let list = withOlder(page, []);
      for (let at = size; at < server.length; at += size) list = merged(list, server.slice(at, at + size));
      expect(list).toEqual(server);
      expect(withOlder(page, list)).toEqual(server);
    }),
  );
});
