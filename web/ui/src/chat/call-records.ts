/** When calls were asked about, decided and run: read from the server's audit rows. */
import type { AuditRow } from '../lib/api';

export interface CallRecord {
  askedAt?: number;
  decidedAt?: number;
  decision?: 'approved' | 'denied' | 'expired' | 'superseded';
  reason?: string;
  startedAt?: number;
  endedAt?: number;
}

const DECISIONS: Record<string, CallRecord['decision']> = {
  'approval.approved': 'approved',
  'approval.denied': 'denied',
  'approval.expired': 'expired',
  'approval.superseded': 'superseded',
};

export function recordsOf(rows: readonly AuditRow[]): ReadonlyMap<string, CallRecord> {
  const records = new Map<string, CallRecord>();
  for (const row of rows) {
    if (row.toolCallId === null) continue;
    const record = records.get(row.toolCallId) ?? {};
    records.set(row.toolCallId, record);
    const decision = DECISIONS[row.kind];
    if (row.kind === 'approval.requested') record.askedAt = row.at;
    else if (row.kind === 'tool.started') record.startedAt = row.at;
    else if (row.kind === 'tool.finished' || row.kind === 'tool.failed') record.endedAt = row.at;
    else if (decision !== undefined) {
      record.decision = decision;
      record.decidedAt = row.at;
      if (row.reason !== null) record.reason = row.reason;
    }
  }
  return records;
}
