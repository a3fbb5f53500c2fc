/** Messages that wait until the agent has finished. */
import { Clock, X } from 'lucide-react';

import { useTranslate } from '../lib/i18n';
import type { Waiting } from '../lib/kept';
import { IconButton } from '../ui/button';

export function Queue({ queue, onRemove }: { queue: Waiting[]; onRemove: (id: string) => void }) {
  const t = useTranslate();
  if (queue.length === 0) return null;
  return (
    <section aria-label={t('queued')} className="mb-2 space-y-1" data-testid="queue">
      {queue.map(({ id, text, files }) => (
        <div key={id} className="flex items-center gap-2 rounded-xl border bg-sidebar py-1 pr-1 pl-3 text-sm">
          <Clock className="size-4 shrink-0 text-muted-foreground" aria-hidden />
          <span className="min-w-0 flex-1 truncate">
            {text}
            {files.length > 0 && <span className="text-muted-foreground"> +{files.length}</span>}
          </span>
          <IconButton size="small" label={t('removeQueued')} onClick={() => onRemove(id)}>
            <X />
          </IconButton>
        </div>
      ))}
    </section>
  );
}
