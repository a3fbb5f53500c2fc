/** What an agent asks the user to grant: a login at a provider, or a key or password that goes to the agent alone. */
import { authorize, type CredentialRequest, type GivenCredential } from '@adk-bridge/client';
import { Clock, KeyRound, LogIn, X } from 'lucide-react';
import { type FormEvent, useEffect, useId, useRef, useState } from 'react';

import type { Call } from '../chat/calls';
import { api } from '../lib/api';
import { serverNow, useSecond } from '../lib/clock';
import { countdown } from '../lib/format';
import { type Key, useTranslate } from '../lib/i18n';
import { Button } from '../ui/button';
import { focusNextQuestion, useFocusAfter } from './focus-next';

interface Props {
  call: Call;
  /** It was granted, or has expired: the server goes on. */
  onDone: () => void;
}

interface Field {
  name: string;
  label: Key;
  isSecret: boolean;
}

/** What is typed in for each kind. */
const FIELDS: Readonly<Record<string, readonly Field[]>> = {
  apiKey: [{ name: 'apiKey', label: 'credentialKey', isSecret: true }],
  basic: [
    { name: 'username', label: 'credentialUser', isSecret: false },
    { name: 'password', label: 'credentialPassword', isSecret: true },
  ],
  bearer: [{ name: 'token', label: 'credentialToken', isSecret: true }],
};

type Progress = { is: 'asked' | 'opened' | 'closed' | 'sending' } | { is: 'failed'; reason: string };

export default function CredentialForm({ call, onDone }: Props) {
  const t = useTranslate();
  const { kind = '', provider, scopes = [], authorizeUrl, expiresAt } = (call.part.input ?? {}) as CredentialRequest;
  const fields = FIELDS[kind] ?? [];
  const [progress, setProgress] = useState<Progress>({ is: 'asked' });
  const box = useRef<HTMLFormElement>(null);
  useFocusAfter(box);

  const failed = (problem: unknown) =>
    setProgress({ is: 'failed', reason: problem instanceof Error ? problem.message : t('credentialUnknown') });
  const open = async () => {
    if (authorizeUrl === undefined) return;
    setProgress({ is: 'opened' });
    const end = await authorize(authorizeUrl, { toolCallId: call.id });
    if (end === 'closed') setProgress({ is: 'closed' });
    else if (end === 'failed') failed(undefined);
    // Whatever the window said: the server knows.
    onDone();
  };
  const give = async (event: FormEvent) => {
    event.preventDefault();
    const entered = new FormData(box.current ?? undefined);
    const given = Object.fromEntries(fields.map(({ name }) => [name, String(entered.get(name) ?? '')]));
    const missing = fields.find(({ name, isSecret }) => isSecret && given[name] === '');
    if (missing !== undefined) return box.current?.querySelector<HTMLInputElement>(`[name=${missing.name}]`)?.focus();
    await hand(given as GivenCredential);
  };
  const hand = async (given: GivenCredential) => {
    setProgress({ is: 'sending' });
    try {
      await api.grant(call.id, given);
      onDone();
    } catch (problem) {
      failed(problem);
    }
  };
  const refuse = () => {
    if (box.current) focusNextQuestion(box.current);
    void hand({ granted: false });
  };

  const title = provider === undefined ? t('credentialQuestionPlain') : t('credentialQuestion', { provider });
  return (
    <form
      ref={box}
      onSubmit={(event) => void give(event)}
      tabIndex={-1}
      data-question
      aria-label={title}
      autoComplete="off"
      data-testid="credential-form"
      data-kind={kind}
      className="mt-1 rounded-lg border border-warning/30 bg-warning-soft p-3"
    >
      <div className="flex flex-wrap items-baseline justify-between gap-x-4 gap-y-1">
        <p className="font-medium wrap-anywhere">{title}</p>
        <TimeLeft until={expiresAt} onExpired={onDone} />
      </div>
      <p className="text-sm text-muted-foreground">{t(fields.length === 0 ? 'credentialHint' : 'credentialSecretHint')}</p>
      {scopes.length > 0 && (
        <div className="mt-2 text-sm">
          <p className="text-muted-foreground">{t('credentialScopes')}</p>
          <ul className="mt-1 flex flex-wrap gap-1.5" data-testid="credential-scopes">
            {scopes.map((scope) => (
              <li key={scope} className="rounded-md bg-muted px-1.5 py-0.5 font-mono text-xs wrap-anywhere">
                {scope}
              </li>
            ))}
          </ul>
        </div>
      )}
      {fields.length > 0 && (
        <div className="mt-2.5 grid gap-3">
          {fields.map((field) => (
            <FieldInput key={field.name} field={field} />
          ))}
        </div>
      )}
      <p role="status" className="text-sm empty:hidden not-empty:mt-2" data-testid="credential-status">
        {progress.is === 'opened' && t('credentialOpened')}
        {progress.is === 'closed' && t('credentialClosed')}
        {progress.is === 'failed' && <span className="text-danger">{t('credentialFailed', { reason: progress.reason })}</span>}
      </p>
      <div className="mt-3 flex flex-wrap items-center gap-2">
        {fields.length > 0 ? (
          <Button type="submit" look="primary" disabled={progress.is === 'sending'} data-testid="credential-give">
            <KeyRound className="size-4" aria-hidden /> {t('credentialGive')}
          </Button>
        ) : (
          <Button look="primary" onClick={() => void open()} data-testid="credential-open">
            <LogIn className="size-4" aria-hidden /> {t(progress.is === 'asked' ? 'credentialOpen' : 'credentialAgain')}
          </Button>
        )}
        <Button look="danger" onClick={refuse} data-testid="credential-refuse">
          <X className="size-4" aria-hidden /> {t('credentialRefuse')}
        </Button>
      </div>
    </form>
  );
}

function FieldInput({ field: { name, label, isSecret } }: { field: Field }) {
  const t = useTranslate();
  const id = useId();
  return (
    <div>
      <label htmlFor={id} className="mb-1 block text-sm text-muted-foreground">
        {t(label)}
      </label>
      <input
        id={id}
        name={name}
        type={isSecret ? 'password' : 'text'}
        autoComplete="off"
        spellCheck={false}
        required={isSecret}
        data-testid={`credential-${name}`}
        className="w-full rounded-lg border border-input bg-raised px-3 py-1.5 text-sm"
      />
    </div>
  );
}

function TimeLeft({ until, onExpired }: { until: number | undefined; onExpired: () => void }) {
  const t = useTranslate();
  useSecond();
  const left = until === undefined ? undefined : until - serverNow();
  const isOver = left !== undefined && left <= 0;
  useEffect(() => {
    if (isOver) onExpired();
  }, [isOver, onExpired]);
  if (left === undefined) return null;
  return (
    <span className="flex items-center gap-1 text-xs text-muted-foreground tabular-nums" data-testid="credential-countdown">
      <Clock className="size-3.5" aria-hidden /> {t('approvalTimeLeft', { left: countdown(left) })}
    </span>
  );
}
