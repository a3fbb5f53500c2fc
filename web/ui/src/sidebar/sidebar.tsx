/** The left side: a new chat, the conversations, the settings. On a phone it lies over the page. */
import { PanelLeftClose, SquarePen } from 'lucide-react';
import { useEffect } from 'react';

import icon from '../icon.svg';
import { agent } from '../lib/agents';
import { isComposing } from '../lib/composing';
import { useTranslate } from '../lib/i18n';
import { openNewChat } from '../lib/route';
import { useStore } from '../lib/store';
import { IconButton } from '../ui/button';
import { AccountMenu } from './account-menu';
import { ChatList } from './chat-list';
import { SettingsMenu } from './settings-menu';

interface Props {
  openId: string;
  isPhone: boolean;
  onClose: () => void;
}

export function Sidebar({ openId, isPhone, onClose }: Props) {
  const t = useTranslate();
  const info = useStore(agent);
  useEffect(() => {
    if (!isPhone) return;
    const onKey = (event: KeyboardEvent) => event.key === 'Escape' && !isComposing(event) && onClose();
    window.addEventListener('keydown', onKey);
    return () => window.removeEventListener('keydown', onKey);
  }, [isPhone, onClose]);
  const closeOnPhone = () => isPhone && onClose();
  return (
    <>
      {isPhone && <div className="fixed inset-0 z-20 bg-black/40" onClick={onClose} aria-hidden />}
      <aside
        aria-label={t('chats')}
        className={`z-30 flex h-full w-[17rem] shrink-0 flex-col border-r bg-sidebar ${isPhone ? 'appear fixed inset-y-0 left-0' : ''}`}
        data-testid="sidebar"
      >
        <div className="flex items-center gap-2 px-3 pt-3 pb-2">
          <img src={icon} alt="" className="ml-1 size-6" />
          <span className="flex-1 font-semibold tracking-tight">{t('appName')}</span>
          <IconButton label={t('closeSidebar')} onClick={onClose}>
            <PanelLeftClose />
          </IconButton>
        </div>
        <button
          type="button"
          onClick={() => {
            openNewChat();
            closeOnPhone();
          }}
          data-testid="new-chat"
          className="mx-3 mb-3 flex h-9 items-center gap-2.5 rounded-lg border bg-raised px-3 text-sm font-medium transition-colors hover:bg-muted"
        >
          <SquarePen className="size-4" aria-hidden /> {t('newChat')}
        </button>
        <ChatList openId={openId} onOpen={closeOnPhone} />
        <footer className="flex items-center gap-2 border-t px-3 py-2 text-xs text-muted-foreground">
          <span className="min-w-0 flex-1 truncate pl-1" data-testid="agent">
            {[info?.name, info?.model].filter(Boolean).join(' · ')}
          </span>
          <AccountMenu />
          <SettingsMenu />
        </footer>
      </aside>
    </>
  );
}
