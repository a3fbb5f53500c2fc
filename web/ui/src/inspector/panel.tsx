/** The inspector's frame with its four views. */
import { X } from 'lucide-react';
import { Tabs } from 'radix-ui';

import type { ChatSession } from '../chat/session';
import { useTranslate } from '../lib/i18n';
import { IconButton } from '../ui/button';
import { AuditView } from './audit-view';
import { ChunksView } from './chunks-view';
import { ReplayView } from './replay-view';
import { TimingsView } from './timings-view';

interface Props {
  session: ChatSession;
  isPhone: boolean;
  onClose: () => void;
}

const VIEWS = ['chunks', 'timings', 'audit', 'replay'] as const;

export default function InspectorPanel({ session, isPhone, onClose }: Props) {
  const t = useTranslate();
  return (
    <aside
      aria-label={t('inspector')}
      data-testid="inspector"
      className={`flex h-full flex-col border-l bg-sidebar ${isPhone ? 'fixed inset-0 z-30' : 'w-[26rem] shrink-0'}`}
    >
      <Tabs.Root defaultValue="chunks" className="flex min-h-0 flex-1 flex-col">
        <div className="flex h-13 items-center gap-1 border-b px-2">
          <Tabs.List aria-label={t('inspector')} className="flex flex-1 gap-0.5">
            {VIEWS.map((view) => (
              <Tabs.Trigger
                key={view}
                value={view}
                data-testid={`inspector-${view}`}
                className="rounded-md px-2.5 py-1 text-sm text-muted-foreground data-[state=active]:bg-accent data-[state=active]:text-foreground"
              >
                {t(view)}
              </Tabs.Trigger>
            ))}
          </Tabs.List>
          <IconButton label={t('closeInspector')} onClick={onClose}>
            <X />
          </IconButton>
        </div>
        <Tabs.Content value="chunks" className="flex min-h-0 flex-1 flex-col">
          <ChunksView />
        </Tabs.Content>
        <Tabs.Content value="timings" className="scroll-quiet min-h-0 flex-1 overflow-y-auto p-3">
          <TimingsView session={session} />
        </Tabs.Content>
        <Tabs.Content value="audit" className="scroll-quiet min-h-0 flex-1 overflow-y-auto p-3">
          <AuditView session={session} />
        </Tabs.Content>
        <Tabs.Content value="replay" className="scroll-quiet min-h-0 flex-1 overflow-y-auto p-3">
          <ReplayView />
        </Tabs.Content>
      </Tabs.Root>
    </aside>
  );
}
