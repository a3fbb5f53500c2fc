/** Who is logged in, and the ways to log in that the server has. */
import { api } from './api';
import { connection } from './connection';
import { createStore } from './store';

export interface LoginWay {
  name: string;
  /** Where it begins, from the server's root. */
  path: string;
}

export interface Session {
  /** Nobody before a login. */
  user: string | null;
  /** What the provider calls the user. */
  name: string | null;
  /** How the server knows the user: only a login can be ended. */
  via: string | null;
  roles: string[];
  login: LoginWay[];
  /** Whether a key is another way. */
  keys: boolean;
}

export const session = createStore<Session | null>(null);

/** Asks who is logged in; an answer that does not come leaves what is known. */
export async function learnSession(): Promise<void> {
  try {
    session.set(await api.session());
  } catch {
    // Whether the server can be reached is shown elsewhere.
  }
}

/** Keeps what is known up to date: the server is asked at the start, and when it wants another login, or no more. */
export function followSession(): void {
  void learnSession();
  let phase = connection.get().phase;
  connection.subscribe(() => {
    const before = phase;
    phase = connection.get().phase;
    if (phase !== before && (phase === 'locked' || before === 'locked')) void learnSession();
  });
}

/** Goes to a provider, and comes back to the chat that is open. */
export function logIn({ path }: LoginWay): void {
  const to = encodeURIComponent(`/${location.search}${location.hash}`);
  location.assign(`${path.slice(1)}&to=${to}`);
}

/** Ends the login, here or on all devices; the provider's page ends it there, too. */
export async function logOut(everywhere: boolean): Promise<void> {
  const { redirect } = await api.logOut(everywhere);
  location.assign(redirect ?? location.pathname);
}
