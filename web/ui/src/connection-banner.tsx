/** Shows when the server cannot be reached, and when it is back. */
import { CloudOff, LoaderCircle } from 'lucide-react';
import { type FormEvent, useEffect, useState } from 'react';

import { apiKey } from './lib/api';
import { useSecond } from './lib/clock';
import { checkAgain, connection, recoveries, refresh } from './lib/connection';
import { translate, useTranslate } from './lib/i18n';
import { logIn, session } from './lib/session';
import { useStore } from './lib/store';
import { toast } from './lib/toasts';
import { Button } from './ui/button';
import { Dialog } from './ui/dialog';

const BANNER =
  'appear flex items-center justify-center gap-2.5 border-b bg-warning-soft px-4 py-1.5 text-center text-sm text-warning';

export function ConnectionBanner() {
  const t = useTranslate();
  const state = useStore(connection);
  useRecoveryToast();
  switch (state.phase) {
    case 'online':
      return null;
    case 'locked':
      return <LoginDialog />;
    case 'reconnecting':
      return <Reconnecting retryAt={state.retryAt} />;
    default:
      return (
        <div role="status" data-testid="connection" data-phase={state.phase} className={BANNER}>
          {state.phase === 'offline' ? (
            <CloudOff className="size-4" aria-hidden />
          ) : (
            <LoaderCircle className="size-4 animate-spin" aria-hidden />
          )}
          {t(state.phase)}
        </div>
      );
  }
}

function Reconnecting({ retryAt }: { retryAt: number }) {
  const t = useTranslate();
  useSecond();
  const seconds = Math.ceil((retryAt - Date.now()) / 1_000);
  return (
    <div role="status" data-testid="connection" data-phase="reconnecting" className={BANNER}>
      <CloudOff className="size-4" aria-hidden />
      {seconds > 0 ? t('reconnecting', { seconds }) : t('reconnectingNow')}
      <Button className="h-7 px-2.5" onClick={() => void refresh()}>
        {t('tryNow')}
      </Button>
    </div>
  );
}

function useRecoveryToast(): void {
  const { count, restarted } = useStore(recoveries);
  useEffect(() => {
    if (count > 0) toast(translate(restarted ? 'restarted' : 'restored'));
  }, [count, restarted]);
}

/** Asks for what the server takes: a login, a key, or either. */
function LoginDialog() {
  const t = useTranslate();
  const known = useStore(session);
  const ways = known?.login ?? [];
  if (ways.length === 0) return <KeyDialog />;
  return (
    <Dialog title={t('loginNeeded')}>
      <div className="flex flex-col gap-2" data-testid="login">
        {ways.map((way) => (
          <Button key={way.name} look="primary" onClick={() => logIn(way)} data-testid={`login-${way.name}`}>
            {ways.length === 1 ? t('logIn') : t('logInWith', { name: way.name })}
          </Button>
        ))}
      </div>
      {known?.keys === true && (
        <details className="mt-4 text-sm">
          <summary className="cursor-pointer text-muted-foreground">{t('keyInstead')}</summary>
          <div className="mt-2">
            <KeyForm />
          </div>
        </details>
      )}
    </Dialog>
  );
}

function KeyDialog() {
  const t = useTranslate();
  return (
    <Dialog title={t('keyNeeded')}>
      <KeyForm />
    </Dialog>
  );
}

function KeyForm() {
  const t = useTranslate();
  const [key, setKey] = useState('');
  const [isRefused, setRefused] = useState(() => apiKey.get() !== '');
  const unlock = (event: FormEvent) => {
    event.preventDefault();
    setRefused(false);
    apiKey.set(key.trim());
    void checkAgain().then(() => setRefused(true));
  };
  return (
    <form onSubmit={unlock}>
      {isRefused && (
        <p role="alert" className="mb-2 text-sm text-danger">
          {t('keyWrong')}
        </p>
      )}
      <input
        autoFocus
        type="password"
        autoComplete="current-password"
        aria-label={t('keyLabel')}
        placeholder={t('keyLabel')}
        value={key}
        onChange={(event) => setKey(event.target.value)}
        className="h-10 w-full rounded-lg border border-input bg-background px-3"
        data-testid="key-field"
      />
      <div className="mt-4 text-right">
        <Button type="submit" look="primary" disabled={key.trim() === ''}>
          {t('unlock')}
        </Button>
      </div>
    </form>
  );
}
