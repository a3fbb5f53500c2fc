/** Deleting a chat with undo: the request is sent when the time for undo is over, or when the page closes. */
import { dropSession } from '../chat/sessions';
import { api, authorizedFetch, type ChatRow } from '../lib/api';
import { changeListed, refresh } from '../lib/connection';
import { translate } from '../lib/i18n';
import { forget } from '../lib/kept';
import { currentChatId, openChat, openNewChat } from '../lib/route';
import { createStore } from '../lib/store';
import { tellTabs } from '../lib/tabs';
import { toast, UNDO_MS } from '../lib/toasts';

/** Not shown any more, and not deleted yet. */
export const leaving = createStore<ReadonlySet<string>>(new Set());
const timers = new Map<string, ReturnType<typeof setTimeout>>();

export function deleteChat(chat: ChatRow): void {
  const wasOpen = currentChatId() === chat.id;
  leaving.set((before) => new Set(before).add(chat.id));
  if (wasOpen) openNewChat();
  const remove = toast(translate('deleted', { title: chat.title ?? translate('untitled') }), {
    action: {
      label: translate('undo'),
      run: () => {
        clearTimeout(timers.get(chat.id));
        timers.delete(chat.id);
        stay(chat.id);
        remove();
        if (wasOpen) openChat(chat.id);
      },
    },
  });
  timers.set(
    chat.id,
    setTimeout(() => void finish(chat.id), UNDO_MS),
  );
}

async function finish(id: string): Promise<void> {
  timers.delete(id);
  dropSession(id);
  try {
    await api.delete(id);
    forget(id);
    changeListed(id, () => []);
    tellTabs(id);
  } catch (problem) {
    toast(problem instanceof Error ? problem.message : String(problem), { tone: 'error' });
  }
  await refresh();
  stay(id);
}

function stay(id: string): void {
  leaving.set((before) => new Set([...before].filter((other) => other !== id)));
}

window.addEventListener('pagehide', () => {
  for (const id of timers.keys()) {
    void authorizedFetch(`api/chats/${encodeURIComponent(id)}`, { method: 'DELETE', keepalive: true });
  }
});
