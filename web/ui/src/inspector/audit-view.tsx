/** The audit rows of the chat: who was asked, what was decided, what ran. */
import { useEffect } from 'react';

import type { ChatSession } from '../chat/session';
import { clock } from '../lib/format';
import { useTranslate } from '../lib/i18n';
import { useStore } from '../lib/store';

export function AuditView({ session }: { session: ChatSession }) {
  const t = useTranslate();
  const { audit } = useStore(session.state);
  useEffect(() => void session.loadAudit(), [session]);
  if (audit.length === 0) return <p className="text-sm text-muted-foreground">{t('noAudit')}</p>;
  return (
    <table className="w-full text-left text-xs" data-testid="audit">
      <thead className="text-muted-foreground">
        <tr>
          <th scope="col" className="py-1 font-medium">
            {t('time')}
          </th>
          <th scope="col" className="font-medium">
            {t('event')}
          </th>
          <th scope="col" className="font-medium">
            {t('tool')}
          </th>
        </tr>
      </thead>
      <tbody>
        {audit.map((row) => (
          <tr key={row.id} className="border-t align-top">
            <td className="py-1.5 pr-2 whitespace-nowrap tabular-nums">{clock(row.at)}</td>
            <td className="py-1.5 pr-2">
              {row.kind}
              {row.reason !== null && <span className="block text-muted-foreground">{row.reason}</span>}
            </td>
            <td className="py-1.5 break-all">{row.toolName}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
