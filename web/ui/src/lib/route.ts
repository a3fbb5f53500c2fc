/** Which chat is open: the part of the address after `#`, so that a link to a chat works under any path. */
import { newId } from './new-id';
import { createStore, useStore } from './store';

const route = createStore(readHash());

window.addEventListener('hashchange', () => route.set(readHash()));

/** The chat that the address names, or a fresh one. */
export function useChatId(): string {
  return useStore(route);
}

export function currentChatId(): string {
  return route.get();
}

/** Calls back whenever another chat is opened. */
export function onRoute(listener: () => void): () => void {
  return route.subscribe(listener);
}

export function openChat(id: string): void {
  if (id !== route.get()) location.hash = encodeURIComponent(id);
}

export function newChatId(): string {
  return `chat-${newId()}`;
}

export function openNewChat(): void {
  openChat(newChatId());
}

/** An address that brings back to this chat. */
export function linkTo(id: string): string {
  return `#${encodeURIComponent(id)}`;
}

function readHash(): string {
  const named = location.hash.slice(1);
  if (named !== '') {
    try {
      return decodeURIComponent(named);
    } catch {
      return named;
    }
  }
  const fresh = newChatId();
  history.replaceState(null, '', `${location.pathname}${location.search}#${fresh}`);
  return fresh;
}
