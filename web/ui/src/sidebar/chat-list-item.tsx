/** One conversation in the list: a link, and a menu with what can be done with it. */
import clsx from 'clsx';
import { Link2, MoreHorizontal, Pencil, Trash2 } from 'lucide-react';
import { useState } from 'react';

import { api, type ChatRow } from '../lib/api';
import { refresh } from '../lib/connection';
import { useTranslate } from '../lib/i18n';
import { linkTo } from '../lib/route';
import { tellTabs } from '../lib/tabs';
import { toast } from '../lib/toasts';
import { Button, IconButton } from '../ui/button';
import { Dialog } from '../ui/dialog';
import { Menu, MenuItem } from '../ui/menu';
import { deleteChat } from './deletion';

export function ChatListItem({ chat, isOpen, onOpen }: { chat: ChatRow; isOpen: boolean; onOpen: () => void }) {
  const t = useTranslate();
  const [isRenaming, setRenaming] = useState(false);
  const title = chat.title ?? t('untitled');
  const copyLink = async () => {
    await navigator.clipboard.writeText(new URL(linkTo(chat.id), location.href).href);
    toast(t('linkCopied'));
  };
  return (
    <div
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
        {chat.pendingApprovals > 0 && (
          <span
            className="rounded-full bg-warning px-1.5 text-xs font-semibold text-background tabular-nums"
            data-testid="chat-badge"
          >
            <span aria-hidden>{chat.pendingApprovals}</span>
            <span className="sr-only">{t('waitsForYou', { count: chat.pendingApprovals })}</span>
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
        <MenuItem icon={<Trash2 />} danger onSelect={() => deleteChat(chat)}>
          {t('delete')}
        </MenuItem>
      </Menu>
      {isRenaming && <RenameDialog chat={chat} onClose={() => setRenaming(false)} />}
    </div>
  );
}

function RenameDialog({ chat, onClose }: { chat: ChatRow; onClose: () => void }) {
  const t = useTranslate();
  const [title, setTitle] = useState(chat.title ?? '');
  const save = async () => {
    try {
      await api.rename(chat.id, title);
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
