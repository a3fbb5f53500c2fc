/** A tool's input or output as a person reads it: names and values, rows, pictures; JSON only where nothing else fits. */
import clsx from 'clsx';
import type { ReactNode } from 'react';

import { humanName } from '../lib/human-name';
import { useTranslate } from '../lib/i18n';
import { MediaPart } from '../chat/media';

/** More is in the JSON, which is one press away. */
const MAX_ROWS = 6;
const MAX_TEXT = 600;

export function ValueView({ value }: { value: unknown }): ReactNode {
  const t = useTranslate();
  if (value === null || value === undefined || value === '') return <span className="text-muted-foreground">–</span>;
  if (typeof value === 'string') return <Text text={value} />;
  if (typeof value !== 'object') return String(value);
  if (Array.isArray(value)) return <List items={value} />;
  const entries = Object.entries(value);
  if (entries.length === 0) return <span className="text-muted-foreground">{t('noInput')}</span>;
  return (
    <dl className="grid grid-cols-[minmax(5rem,auto)_1fr] gap-x-4 gap-y-1">
      {entries.map(([name, inner]) => (
        <div key={name} className="contents">
          <dt className={clsx('text-muted-foreground', isTable(inner) && 'col-span-2')}>{humanName(name)}</dt>
          <dd className={clsx('min-w-0 break-words', isTable(inner) && 'col-span-2')}>
            <ValueView value={inner} />
          </dd>
        </div>
      ))}
    </dl>
  );
}

function Text({ text }: { text: string }) {
  const picture = /^data:(image\/[\w.+-]+);base64,/.exec(text);
  if (picture !== null) return <MediaPart url={text} mediaType={picture[1] ?? 'image/png'} />;
  return <span className="whitespace-pre-wrap">{text.length > MAX_TEXT ? `${text.slice(0, MAX_TEXT)}…` : text}</span>;
}

function List({ items }: { items: unknown[] }) {
  const t = useTranslate();
  const shown = items.slice(0, MAX_ROWS);
  const more = items.length - shown.length;
  const note = more > 0 && <p className="mt-1 text-muted-foreground">{t('moreRows', { count: more })}</p>;
  const columns = columnsOf(shown);
  if (columns === undefined) {
    return (
      <>
        <ul className="list-inside list-disc">
          {shown.map((item, index) => (
            <li key={index}>
              <ValueView value={item} />
            </li>
          ))}
        </ul>
        {note}
      </>
    );
  }
  return (
    <>
      <div className="scroll-quiet overflow-x-auto" tabIndex={0} role="group" aria-label={t('toolOutput')}>
        <table className="w-full text-left">
          <thead>
            <tr>
              {columns.map((column) => (
                <th key={column} scope="col" className="border-b py-1 pr-4 font-medium text-muted-foreground">
                  {humanName(column)}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {shown.map((row, index) => (
              <tr key={index}>
                {columns.map((column) => (
                  <td key={column} className="border-b border-border/60 py-1 pr-4 whitespace-nowrap">
                    {String((row as Record<string, unknown>)[column] ?? '')}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {note}
    </>
  );
}

/** A table has the whole width. */
function isTable(value: unknown): boolean {
  return Array.isArray(value) && columnsOf(value.slice(0, MAX_ROWS)) !== undefined;
}

/** The columns that flat rows share; nothing if they are no rows. */
function columnsOf(items: unknown[]): string[] | undefined {
  const [first] = items;
  if (items.length < 2 || typeof first !== 'object' || first === null) return undefined;
  const columns = Object.keys(first);
  const fits = items.every(
    (item) =>
      typeof item === 'object' &&
      item !== null &&
      Object.keys(item).length === columns.length &&
      Object.values(item).every((value) => value === null || typeof value !== 'object'),
  );
  return fits && columns.length <= 6 ? columns : undefined;
}
