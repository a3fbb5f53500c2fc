/** Shows when the server cannot be reached, and when it is back. */
import { CloudOff, LoaderCircle } from 'lucide-react';
import { type FormEvent, useEffect, useState } from 'react';

import { apiKey } from './lib/api';
import { useSecond } from './lib/clock';
import { checkAgain, connection, recoveries, refresh } from './lib/connection';
import { translate, useTranslate } from './lib/i18n';
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
      return <KeyDialog />;
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

function KeyDialog() {
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
    <Dialog title={t('keyNeeded')}>
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
    </Dialog>
  );
}
