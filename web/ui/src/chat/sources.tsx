/** Where an answer comes from, as a row of links. */
import { FileText, Globe } from 'lucide-react';
import type { SourceDocumentUIPart, SourceUrlUIPart } from 'ai';

import { useTranslate } from '../lib/i18n';

export type Source = SourceUrlUIPart | SourceDocumentUIPart;

export function Sources({ sources }: { sources: Source[] }) {
  const t = useTranslate();
  if (sources.length === 0) return null;
  const title = sources.length === 1 ? t('oneSource') : t('sources', { count: sources.length });
  return (
    <section aria-label={title} className="mt-3" data-testid="sources">
      <h3 className="mb-1.5 text-xs font-medium text-muted-foreground">{title}</h3>
      <ul className="flex flex-wrap gap-1.5">
        {sources.map((source, index) => (
          <li key={`${source.sourceId}-${index}`}>
            <SourceChip source={source} number={index + 1} />
          </li>
        ))}
      </ul>
    </section>
  );
}

const CHIP = 'flex max-w-64 items-center gap-1.5 rounded-full border bg-raised px-2.5 py-1 text-xs';

function SourceChip({ source, number }: { source: Source; number: number }) {
  if (source.type === 'source-document') {
    return (
      <span className={CHIP}>
        <FileText className="size-3.5 shrink-0" aria-hidden />
        <span className="truncate">{source.title}</span>
      </span>
    );
  }
  const isWeb = /^https?:/.test(source.url);
  const label = source.title ?? hostOf(source.url);
  const inside = (
    <>
      <Globe className="size-3.5 shrink-0 text-muted-foreground" aria-hidden />
      <span className="truncate">{label}</span>
      <span className="text-muted-foreground">{number}</span>
    </>
  );
  if (!isWeb) return <span className={CHIP}>{inside}</span>;
  return (
    <a
      className={`${CHIP} transition-colors hover:bg-muted`}
      href={source.url}
      title={source.url}
      target="_blank"
      rel="noopener noreferrer nofollow"
    >
      {inside}
    </a>
  );
}

function hostOf(url: string): string {
  return URL.canParse(url) ? new URL(url).host : url;
}
