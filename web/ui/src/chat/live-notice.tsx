/** Tells when the live connection was given up, because another window took the chat over, and takes it back. */
import type { LiveChatTransport } from '@adk-bridge/client';
import { MonitorSmartphone } from 'lucide-react';
import { useSyncExternalStore } from 'react';

import { useTranslate } from '../lib/i18n';
import { Button } from '../ui/button';

/** A second connection to one chat takes it over; the first is closed with this code. */
const TAKEN_OVER = 4409;

export function LiveNotice({ live }: { live: LiveChatTransport }) {
  const t = useTranslate();
  const state = useSyncExternalStore(live.connection.subscribe, live.connection.get);
  if (state.status !== 'closed') return null;
  return (
    <div
      role="status"
      data-testid="live-closed"
      className="appear mb-2 flex items-center gap-2 rounded-2xl border bg-sidebar py-2 pr-2 pl-4 text-sm"
    >
      <MonitorSmartphone className="size-4 text-muted-foreground" aria-hidden />
      <span className="flex-1">{state.code === TAKEN_OVER ? t('liveClosed') : state.reason || t('failed')}</span>
      <Button className="h-8" onClick={() => live.connect()} data-testid="take-over">
        {t('takeOver')}
      </Button>
    </div>
  );
}
