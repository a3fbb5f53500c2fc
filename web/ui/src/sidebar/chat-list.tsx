/** The conversations, by age, with search, and a badge where a question waits. */
import { Search } from 'lucide-react';
import { useEffect, useMemo, useState } from 'react';

import type { ChatRow } from '../lib/api';
import { chats, findChats, hasOlder, loadOlder } from '../lib/connection';
import { type AgeGroup, ageGroup } from '../lib/format';
import { useTranslate } from '../lib/i18n';
import { useStore } from '../lib/store';
import { toast } from '../lib/toasts';
import { Button } from '../ui/button';
import { ChatListItem } from './chat-list-item';
import { leaving } from './deletion';

/** The pause in typing after which a search begins. */
const TYPING_MS = 150;
const GROUPS: readonly AgeGroup[] = ['today', 'yesterday', 'week', 'older'];

export function ChatList({ openId, onOpen }: { openId: string; onOpen: () => void }) {
  const t = useTranslate();
  const all = useStore(chats);
  const gone = useStore(leaving);
  const isMore = useStore(hasOlder);
  const [query, setQuery] = useState('');
  const isSearching = query.trim() !== '';
  const found = useMemo(() => {
    const words = query.trim().toLocaleLowerCase().split(/\s+/);
    return (all ?? []).filter(({ id, title }) => {
      const text = (title ?? '').toLocaleLowerCase();
      return !gone.has(id) && words.every((word) => text.includes(word));
    });
  }, [all, gone, query]);

  // All titles are searched: the server looks through those that are not here.
  const [searched, setSearched] = useState('');
  useEffect(() => {
    if (!isSearching || !isMore) return;
    const leave = new AbortController();
    const timer = setTimeout(() => {
      const done = () => !leave.signal.aborted && setSearched(query);
      findChats(query, leave.signal).then(done, done);
    }, TYPING_MS);
    return () => {
      leave.abort();
      clearTimeout(timer);
    };
  }, [isSearching, isMore, query]);

  return (
    <>
      <label className="relative mx-3 mb-2 block">
        <span className="sr-only">{t('searchChats')}</span>
        <Search
          className="pointer-events-none absolute top-1/2 left-3 size-4 -translate-y-1/2 text-muted-foreground"
          aria-hidden
        />
        <input
          type="search"
          value={query}
          placeholder={t('searchChats')}
          onChange={(event) => setQuery(event.target.value)}
          data-testid="chat-search"
          className="h-9 w-full rounded-lg border border-transparent bg-accent pr-3 pl-9 text-sm placeholder:text-muted-foreground focus:border-ring focus:bg-raised focus:outline-none"
        />
      </label>
      <nav aria-label={t('chats')} className="scroll-quiet min-h-0 flex-1 overflow-y-auto px-2 pb-3" data-testid="chat-list">
        {found.length === 0 && all !== null && !(isSearching && isMore && searched !== query) && (
          <p className="px-3 py-4 text-sm text-muted-foreground">{query === '' ? t('noChats') : t('noMatches', { query })}</p>
        )}
        {GROUPS.map((group) => (
          <Group
            key={group}
            title={t(group)}
            rows={found.filter(({ updatedAt }) => ageGroup(updatedAt) === group)}
            openId={openId}
            onOpen={onOpen}
          />
        ))}
        {isMore && !isSearching && (
          <Button look="ghost" className="mt-2 w-full" onClick={() => void showOlder()} data-testid="older-chats">
            {t('olderChats')}
          </Button>
        )}
      </nav>
    </>
  );
}

async function showOlder(): Promise<void> {
  try {
    await loadOlder();
  } catch (problem) {
    toast(problem instanceof Error ? problem.message : String(problem), { tone: 'error' });
  }
}

interface GroupProps {
  title: string;
  rows: ChatRow[];
  openId: string;
  onOpen: () => void;
}

function Group({ title, rows, openId, onOpen }: GroupProps) {
  if (rows.length === 0) return null;
  return (
    <section className="mt-3">
      <h2 className="px-3 pb-1 text-xs font-medium text-muted-foreground">{title}</h2>
      <ul>
        {rows.map((row) => (
          <li key={row.id}>
            <ChatListItem chat={row} isOpen={row.id === openId} onOpen={onOpen} />
          </li>
        ))}
      </ul>
    </section>
  );
}
