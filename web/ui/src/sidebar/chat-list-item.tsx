/** One conversation in the list: a link, and a menu with what can be done with it. */
import clsx from 'clsx';
import { Link2, MoreHorizontal, Pencil, Trash2 } from 'lucide-react';
import { useRef, useState } from 'react';

import { api, type ChatRow } from '../lib/api';
import { changeListed, refresh } from '../lib/connection';
import { useTranslate } from '../lib/i18n';
import { linkTo } from '../lib/route';
import { tellTabs } from '../lib/tabs';
import { toast } from '../lib/toasts';
import { questionsIn } from '../tools/asked';
import { Button, IconButton } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { Menu, MenuItem } from '../ui/menu';
import { deleteChat } from './deletion';

export function ChatListItem({ chat, isOpen, onOpen }: { chat: ChatRow; isOpen: boolean; onOpen: () => void }) {
  const t = useTranslate();
  const [isRenaming, setRenaming] = useState(false);
  const box = useRef<HTMLDivElement>(null);
  const title = chat.title ?? t('untitled');
  const questions = questionsIn(chat);
  const copyLink = async () => {
    await navigator.clipboard.writeText(new URL(linkTo(chat.id), location.href).href);
    toast(t('linkCopied'));
  };
  const remove = () => {
    const next = neighbourOf(box.current);
    deleteChat(chat);
    // The menu gives the keyboard back to its button, which is gone by then.
    setTimeout(() => document.activeElement === document.body && next?.focus());
  };
  return (
    <div
      ref={box}
      className={clsx(
        'group/item flex items-center rounded-lg pr-1 transition-colors',
        isOpen ? 'bg-accent' : 'hover:bg-accent/60',
      )}
      data-testid="chat-item"
    >
      <a
        href={linkTo(chat.id)}
        aria-current={isOpen ? 'page' : undefined}
        onClick={onOpen}
        className="flex min-w-0 flex-1 items-center gap-2 rounded-lg px-3 py-1.5 text-sm"
      >
        <span className="min-w-0 flex-1 truncate">{title}</span>
        {questions > 0 && (
          <span
            className="rounded-full bg-warning px-1.5 text-xs font-semibold text-background tabular-nums"
            data-testid="chat-badge"
          >
            <span aria-hidden>{questions}</span>
            <span className="sr-only">{t('waitsForYou', { count: questions })}</span>
          </span>
        )}
      </a>
      <Menu
        trigger={
          <IconButton
            size="small"
            label={t('chatMenu', { title })}
            className="opacity-0 group-hover/item:opacity-100 focus-visible:opacity-100 data-[state=open]:opacity-100 pointer-coarse:opacity-100"
          >
            <MoreHorizontal />
          </IconButton>
        }
      >
        <MenuItem icon={<Pencil />} onSelect={() => setRenaming(true)}>
          {t('rename')}
        </MenuItem>
        <MenuItem icon={<Link2 />} onSelect={() => void copyLink()}>
          {t('copyLink')}
        </MenuItem>
        <MenuItem icon={<Trash2 />} danger onSelect={remove}>
          {t('delete')}
        </MenuItem>
      </Menu>
      {isRenaming && <RenameDialog chat={chat} onClose={() => setRenaming(false)} />}
    </div>
  );
}

/** The link of the chat below, or above where this is the last one. */
function neighbourOf(item: HTMLElement | null): HTMLElement | null | undefined {
  if (item === null) return null;
  const all = [...document.querySelectorAll<HTMLElement>('[data-testid=chat-item]')];
  const at = all.indexOf(item);
  return (all[at + 1] ?? all[at - 1])?.querySelector('a');
}

function RenameDialog({ chat, onClose }: { chat: ChatRow; onClose: () => void }) {
  const t = useTranslate();
  const [title, setTitle] = useState(chat.title ?? '');
  const save = async () => {
    try {
      await api.rename(chat.id, title);
      changeListed(chat.id, (row) => [{ ...row, title }]);
      tellTabs(chat.id);
      await refresh();
      onClose();
    } catch (problem) {
      toast(problem instanceof Error ? problem.message : String(problem), { tone: 'error' });
    }
  };
  return (
    <Dialog title={t('renameChat')} onClose={onClose}>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void save();
        }}
      >
        <label className="text-sm">
          <span className="mb-1 block text-muted-foreground">{t('title')}</span>
          <input
            autoFocus
            value={title}
            maxLength={60}
            onChange={(event) => setTitle(event.target.value)}
            onFocus={(event) => event.target.select()}
            data-testid="rename-field"
            className="h-10 w-full rounded-lg border border-input bg-background px-3"
          />
        </label>
        <div className="mt-4 flex justify-end gap-2">
          <Button onClick={onClose}>{t('cancel')}</Button>
          <Button type="submit" look="primary" disabled={title.trim() === ''}>
            {t('save')}
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
