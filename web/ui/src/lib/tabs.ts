/** Tells the other tabs of this browser that something happened to a chat. */

interface Note {
  chat: string;
}

const channel = 'BroadcastChannel' in window ? new BroadcastChannel('adk-bridge') : null;

export function tellTabs(chat: string): void {
  channel?.postMessage({ chat } satisfies Note);
}

/** Calls back with the chat that another tab has changed. */
export function onTabsChange(callback: (chat: string) => void): () => void {
  const listener = (event: MessageEvent<Note>) => callback(event.data.chat);
  channel?.addEventListener('message', listener);
  return () => channel?.removeEventListener('message', listener);
}
