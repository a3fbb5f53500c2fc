/** The page: list, chat, inspector, and what belongs to none of them. */
import { PanelLeft, ScanSearch, SquarePen } from 'lucide-react';
import { lazy, Suspense, useEffect, useState } from 'react';

import { AgentSwitch } from './agent-switch';
import { ChatView } from './chat/chat-view';
import { sessionOf } from './chat/sessions';
import { ConnectionBanner } from './connection-banner';
import { chosenAgent } from './lib/agents';
import { chats } from './lib/connection';
import { useTranslate } from './lib/i18n';
import { openNewChat, useChatId } from './lib/route';
import { changeSettings, useSettings } from './lib/settings';
import { useStore } from './lib/store';
import { ModeSwitch } from './mode-switch';
import { Sidebar } from './sidebar/sidebar';
import { questionsIn } from './tools/asked';
import { photoRequests } from './tools/photo-request';
import { IconButton } from './ui/button';
import { Toaster } from './ui/toaster';
import { useMedia } from './ui/use-media';

const Inspector = lazy(() => import('./inspector/panel'));
const PhotoDialog = lazy(() => import('./tools/photo-dialog'));

export function App() {
  const t = useTranslate();
  const chatId = useChatId();
  const { sidebarOpen, inspectorOpen, mode } = useSettings();
  // Another choice makes another session of a new chat.
  useStore(chosenAgent);
  const session = sessionOf(chatId, mode);
  const isPhone = !useMedia('(min-width: 768px)');
  const [phoneListOpen, setPhoneListOpen] = useState(false);
  const listOpen = isPhone ? phoneListOpen : sidebarOpen;
  const setListOpen = (open: boolean) => (isPhone ? setPhoneListOpen(open) : changeSettings({ sidebarOpen: open }));
  const [photo] = useStore(photoRequests);
  const title = useTitle(chatId);

  return (
    <div className="flex h-full">
      {/* biome-ignore lint/a11y/useValidAnchor: leads to the field; a button would be read as something to do */}
      <a
        href="#message"
        onClick={(event) => {
          event.preventDefault();
          document.getElementById('message')?.focus();
        }}
        className="sr-only z-50 rounded-lg bg-raised px-3 py-2 shadow-float focus:not-sr-only focus:fixed focus:top-2 focus:left-2"
      >
        {t('skipToMessage')}
      </a>
      {listOpen && <Sidebar openId={chatId} isPhone={isPhone} onClose={() => setListOpen(false)} />}
      <main className="flex min-w-0 flex-1 flex-col">
        <header className="flex h-13 shrink-0 items-center gap-1 px-2">
          {!listOpen && (
            <>
              <IconButton label={t('openSidebar')} onClick={() => setListOpen(true)} data-testid="open-sidebar">
                <PanelLeft />
              </IconButton>
              <IconButton label={t('newChat')} onClick={openNewChat}>
                <SquarePen />
              </IconButton>
            </>
          )}
          <p className="min-w-0 flex-1 truncate px-2 text-sm font-medium" data-testid="chat-title">
            {title}
          </p>
          <AgentSwitch chatId={chatId} />
          <ModeSwitch />
          <IconButton
            label={t(inspectorOpen ? 'closeInspector' : 'openInspector')}
            aria-pressed={inspectorOpen}
            onClick={() => changeSettings({ inspectorOpen: !inspectorOpen })}
            data-testid="inspector-toggle"
          >
            <ScanSearch />
          </IconButton>
        </header>
        <ConnectionBanner />
        <ChatView key={`${chatId} ${mode}`} session={session} />
      </main>
      <Suspense>
        {inspectorOpen && (
          <Inspector session={session} isPhone={isPhone} onClose={() => changeSettings({ inspectorOpen: false })} />
        )}
        {photo && <PhotoDialog request={photo} />}
      </Suspense>
      <Toaster />
    </div>
  );
}

/** The title of the chat; the window's also says how many questions wait, wherever they do. */
function useTitle(chatId: string): string {
  const t = useTranslate();
  const rows = useStore(chats) ?? [];
  const title = rows.find(({ id }) => id === chatId)?.title ?? '';
  const waiting = rows.reduce((sum, row) => sum + questionsIn(row), 0);
  useEffect(() => {
    const name = title === '' ? t('appName') : `${title} · ${t('appName')}`;
    document.title = waiting > 0 ? `(${waiting}) ${name}` : name;
  }, [title, waiting, t]);
  return title;
}
