/** Notes about how an answer ended, and what can be done when it failed. */
import { CircleAlert, RotateCcw } from 'lucide-react';

import { refusalOf } from '../lib/api';
import { type Key, useTranslate } from '../lib/i18n';
import { Button } from '../ui/button';
import { isNetworkFailure } from './reconcile';
import type { ChatSession } from './session';

const ENDS: Record<string, Key> = {
  stopped: 'endedStopped',
  superseded: 'endedSuperseded',
  failed: 'endedFailed',
  'too-long': 'endedTooLong',
  interrupted: 'endedInterrupted',
};

export function EndedNote({ metadata }: { metadata: unknown }) {
  const t = useTranslate();
  const { ended } = (metadata ?? {}) as { ended?: string };
  const word = ended === undefined ? undefined : ENDS[ended];
  if (word === undefined) return null;
  return (
    <p className="mt-1 text-xs text-muted-foreground" data-testid="ended">
      {t(word)}
    </p>
  );
}

export function ErrorNotice({ error, session }: { error: Error; session: ChatSession }) {
  const t = useTranslate();
  return (
    <div
      role="alert"
      data-testid="error"
      className="appear my-3 flex flex-wrap items-center gap-3 rounded-xl border border-danger/30 bg-danger-soft px-4 py-3 text-sm"
    >
      <CircleAlert className="size-5 shrink-0 text-danger" aria-hidden />
      <p className="min-w-0 flex-1 break-words">{isNetworkFailure(error) ? t('unreachable') : messageOf(error)}</p>
      <Button onClick={() => void session.retry()} data-testid="retry">
        <RotateCcw className="size-4" aria-hidden /> {t('retry')}
      </Button>
    </div>
  );
}

/** The server's refusals are JSON with a message for people. */
function messageOf(error: Error): string {
  return error.message.trimStart().startsWith('{') ? refusalOf(0, error.message).message : error.message;
}
