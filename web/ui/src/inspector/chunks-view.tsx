/** Chunks as they pass, the newest last, with their times and their content on demand. */
import { ArrowDownLeft, ArrowUpRight, Download, Trash2 } from 'lucide-react';
import { useState } from 'react';

import { clearLog, logAsText, type LoggedChunk, loggedChunks, logVersion } from '../lib/chunk-log';
import { useTranslate } from '../lib/i18n';
import { useStore } from '../lib/store';
import { IconButton } from '../ui/button';

/** More rows than a person reads; the whole log can be downloaded. */
const SHOWN = 250;

export function ChunksView() {
  const t = useTranslate();
  useStore(logVersion);
  const [filter, setFilter] = useState('');
  const all = loggedChunks();
  const found = filter === '' ? all : all.filter(({ type }) => type.includes(filter));
  return (
    <>
      <div className="flex items-center gap-1 border-b px-3 py-2">
        <input
          type="search"
          aria-label={t('filter')}
          placeholder={t('filter')}
          value={filter}
          onChange={(event) => setFilter(event.target.value)}
          className="h-8 min-w-0 flex-1 rounded-lg border border-input bg-background px-2.5 text-sm"
        />
        <span className="px-2 text-xs text-muted-foreground tabular-nums" data-testid="chunk-count">
          {found.length}
        </span>
        <IconButton size="small" label={t('downloadLog')} onClick={download} data-testid="download-log">
          <Download />
        </IconButton>
        <IconButton size="small" label={t('clear')} onClick={clearLog}>
          <Trash2 />
        </IconButton>
      </div>
      {found.length === 0 ? (
        <p className="p-4 text-sm text-muted-foreground">{t('noChunks')}</p>
      ) : (
        <ol
          className="scroll-quiet flex min-h-0 flex-1 flex-col-reverse overflow-y-auto py-1 font-mono text-xs"
          tabIndex={0}
          aria-label={t('chunks')}
        >
          {/* Few rows begin at the top; the list is drawn from its end, so that it stays there as it grows. */}
          <li aria-hidden className="flex-1" />
          {found
            .slice(-SHOWN)
            .reverse()
            .map((chunk) => (
              <Row key={chunk.number} chunk={chunk} before={all[0]?.at ?? chunk.at} />
            ))}
        </ol>
      )}
    </>
  );
}

function Row({ chunk, before }: { chunk: LoggedChunk; before: number }) {
  const [isOpen, setOpen] = useState(false);
  const Arrow = chunk.direction === 'in' ? ArrowDownLeft : ArrowUpRight;
  return (
    <li>
      <button
        type="button"
        aria-expanded={isOpen}
        onClick={() => setOpen(!isOpen)}
        className="flex w-full items-center gap-2 px-3 py-0.5 text-left hover:bg-accent"
        data-testid="chunk-row"
      >
        <span className="w-14 shrink-0 text-right text-muted-foreground tabular-nums">
          {((chunk.at - before) / 1_000).toFixed(2)}
        </span>
        <Arrow className={`size-3.5 shrink-0 ${chunk.direction === 'in' ? 'text-success' : 'text-primary'}`} aria-hidden />
        <span className="truncate">
          {chunk.type} <span className="text-muted-foreground">{briefly(chunk.data)}</span>
        </span>
      </button>
      {isOpen && (
        <pre className="mx-3 my-1 overflow-x-auto rounded-lg bg-muted p-2 whitespace-pre-wrap">
          {JSON.stringify(chunk.data, null, 2)}
        </pre>
      )}
    </li>
  );
}

function briefly(data: unknown): string {
  if (typeof data !== 'object' || data === null) return '';
  const { delta, toolName, toolCallId, errorText, finishReason } = data as Record<string, unknown>;
  const shown = delta ?? toolName ?? errorText ?? finishReason ?? toolCallId;
  return shown === undefined ? '' : String(shown).slice(0, 60);
}

function download(): void {
  const address = URL.createObjectURL(new Blob([logAsText()], { type: 'application/jsonl' }));
  const link = document.createElement('a');
  link.href = address;
  link.download = `chunks-${new Date().toISOString().replaceAll(':', '-')}.jsonl`;
  link.click();
  URL.revokeObjectURL(address);
}
