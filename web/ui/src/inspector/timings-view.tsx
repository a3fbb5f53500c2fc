/** How long requests took, what they cost, and how the chat is connected. */
import { useChat } from '@ai-sdk/react';

import type { ChatSession } from '../chat/session';
import { loggedRequests, logVersion, type LoggedRequest } from '../lib/chunk-log';
import { agent } from '../lib/agents';
import { bytes, clock, span } from '../lib/format';
import { useTranslate } from '../lib/i18n';
import { dialect } from '../lib/settings';
import { useStore } from '../lib/store';

interface Usage {
  inputTokens?: number;
  outputTokens?: number;
}

export function TimingsView({ session }: { session: ChatSession }) {
  const t = useTranslate();
  useStore(logVersion);
  const info = useStore(agent);
  const { messages } = useChat({ chat: session.chat, throttle: 500 });
  const usages = messages.flatMap(({ metadata }) => (metadata as { usage?: Usage } | undefined)?.usage ?? []);
  const sum = (key: keyof Usage) => usages.reduce((total, usage) => total + (usage[key] ?? 0), 0);
  const own = loggedRequests().filter(({ chat }) => chat === session.id);
  return (
    <div className="space-y-4 text-sm" data-testid="timings">
      <Facts
        facts={[
          [t('model'), info?.model ?? '–'],
          [t('dialect'), dialect],
          [t('transport'), session.mode === 'live' ? 'WebSocket' : 'SSE'],
          [t('tokens'), t('tokensOf', { input: sum('inputTokens'), output: sum('outputTokens') })],
          [t('requests'), String(own.length)],
        ]}
      />
      {own
        .slice(-20)
        .reverse()
        .map((request) => (
          <section key={request.id} className="rounded-xl border bg-raised p-3">
            <h3 className="mb-1.5 font-medium">
              {request.label} <span className="text-muted-foreground">· {clock(request.startedAt)}</span>
            </h3>
            <Facts
              facts={[
                [t('firstChunk'), since(request, request.firstChunkAt)],
                [t('firstText'), since(request, request.firstTextAt)],
                [t('duration'), since(request, request.endedAt)],
                [t('received'), `${request.chunks} · ${bytes(request.bytes)}`],
              ]}
            />
          </section>
        ))}
    </div>
  );
}

function Facts({ facts }: { facts: [string, string][] }) {
  return (
    <dl className="grid grid-cols-[8rem_1fr] gap-y-0.5">
      {facts.map(([name, value]) => (
        <div key={name} className="contents">
          <dt className="text-muted-foreground">{name}</dt>
          <dd className="tabular-nums">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function since(request: LoggedRequest, at: number | undefined): string {
  return at === undefined ? '–' : span(at - request.startedAt);
}
