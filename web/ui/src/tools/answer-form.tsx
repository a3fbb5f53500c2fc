/** What a call asks of the user: fields where the answer's form is known, words where it is not, JSON where that is wanted. */
import clsx from 'clsx';
import { Braces, CornerDownLeft, X } from 'lucide-react';
import { type FormEvent, useEffect, useId, useMemo, useRef, useState } from 'react';

import type { Call } from '../chat/calls';
import { isComposing } from '../lib/composing';
import { type Key, useTranslate } from '../lib/i18n';
import { keepForm, keptForm } from '../lib/kept';
import { Button } from '../ui/button';
import { questionOf, titleOf } from './asked';
import { focusNextQuestion, useFocusAfter } from './focus-next';
import { ReasonInput } from './reason-input';
import {
  type Entered,
  type Entries,
  type Field,
  fieldsOf,
  placesOf,
  type Problem,
  readEntries,
  readJson,
  withChoice,
  wordsField,
} from './schema-fields';

export type Outcome = { output: unknown } | { errorText: string };

const PROBLEMS: Record<Problem, Key> = {
  missing: 'fieldMissing',
  number: 'fieldNumber',
  integer: 'fieldInteger',
  limits: 'fieldLimits',
  format: 'fieldFormat',
  json: 'fieldJson',
};

/** The problem of the answer as JSON has this key. */
const WHOLE = 'json';

export default function AnswerForm({ call, onAnswer }: { call: Call; onAnswer: (outcome: Outcome) => void }) {
  const t = useTranslate();
  const { message, schema, server } = useMemo(() => questionOf(call), [call]);
  const fields = useMemo(() => fieldsOf(schema) ?? [wordsField()], [schema]);
  const [entries, setEntries] = useState<Entries>(() => keptForm(call.id).entries);
  const [json, setJson] = useState<string | undefined>(() => keptForm(call.id).json);
  const [problems, setProblems] = useState<Readonly<Record<string, Problem>>>({});
  const [reason, setReason] = useState<string>();
  const box = useRef<HTMLFormElement>(null);
  useFocusAfter(box);
  useEffect(() => keepForm(call.id, { entries, json }), [call.id, entries, json]);

  const finish = (outcome: Outcome) => {
    if (box.current) focusNextQuestion(box.current);
    keepForm(call.id, { entries: {}, json: undefined });
    onAnswer(outcome);
  };
  const send = (event: FormEvent) => {
    event.preventDefault();
    const read = json === undefined ? readEntries(fields, entries) : readJson(json);
    const found = 'problems' in read ? read.problems : 'problem' in read ? { [WHOLE]: read.problem } : {};
    setProblems(found);
    if ('value' in read) finish({ output: read.value });
    else box.current?.querySelector<HTMLElement>(`[data-field='${CSS.escape(Object.keys(found)[0] ?? '')}']`)?.focus();
  };
  const decline = () => {
    const why = reason?.trim() ?? '';
    finish({ errorText: why === '' ? t('formDeclined') : `${t('formDeclined')}: ${why}` });
  };
  const toggleJson = () => {
    setProblems({});
    if (json !== undefined) return setJson(undefined);
    const read = readEntries(fields, entries);
    setJson('value' in read ? JSON.stringify(read.value, null, 2) : '{}');
  };

  const title = message ?? t('formQuestion', { tool: titleOf(call.name, t) });
  return (
    <form
      ref={box}
      noValidate
      onSubmit={send}
      tabIndex={-1}
      data-question
      aria-label={title}
      data-testid="answer-form"
      className="mt-3 rounded-lg border border-warning/30 bg-warning-soft p-3 first:mt-1"
    >
      <div className="flex items-start justify-between gap-3">
        <p className="font-medium whitespace-pre-wrap">{title}</p>
        <button
          type="button"
          aria-pressed={json !== undefined}
          onClick={toggleJson}
          title={t('formJson')}
          data-testid="answer-json-toggle"
          className="inline-flex shrink-0 items-center gap-1 rounded px-1.5 py-0.5 font-mono text-xs text-muted-foreground hover:bg-muted aria-pressed:bg-accent aria-pressed:text-foreground"
        >
          <Braces className="size-3.5" aria-hidden /> {t('toolRaw')}
          <span className="sr-only">: {t('formJson')}</span>
        </button>
      </div>
      {message === undefined && <p className="text-sm text-muted-foreground">{t('formHint')}</p>}
      {server !== undefined && (
        <p className="mt-1 text-sm text-muted-foreground" data-testid="answer-server">
          {t('formServer', { server })}
        </p>
      )}
      <div className="mt-2.5 grid gap-3">
        {json === undefined ? (
          fields.map((field) => (
            <FieldInput
              key={field.key}
              field={field}
              entered={entries[field.key] ?? field.initial}
              problem={problems[field.key]}
              onChange={(value) => setEntries((before) => ({ ...before, [field.key]: value }))}
            />
          ))
        ) : (
          <FieldInput field={JSON_FIELD} entered={json} problem={problems[WHOLE]} onChange={(text) => setJson(String(text))} />
        )}
      </div>
      {reason !== undefined && (
        <ReasonInput value={reason} onChange={setReason} onEnter={decline} testId="decline-reason" className="mt-3" />
      )}
      <div className="mt-3 flex flex-wrap items-center gap-2">
        <Button type="submit" look="primary" data-testid="answer-send">
          <CornerDownLeft className="size-4" aria-hidden /> {t('formSend')}
        </Button>
        <Button
          look="danger"
          onClick={() => (reason === undefined ? setReason('') : decline())}
          data-testid={reason === undefined ? 'answer-decline' : 'answer-decline-sure'}
        >
          <X className="size-4" aria-hidden /> {t('formDecline')}
        </Button>
        {reason !== undefined && (
          <Button look="ghost" onClick={() => setReason(undefined)}>
            {t('cancel')}
          </Button>
        )}
      </div>
    </form>
  );
}

const JSON_FIELD: Field = { ...wordsField(), key: WHOLE, kind: 'json' };

interface FieldProps {
  field: Field;
  entered: Entered;
  problem: Problem | undefined;
  onChange: (entered: Entered) => void;
}

const INPUT = 'w-full rounded-lg border bg-raised px-3 py-1.5 text-sm';

function FieldInput({ field, entered, problem, onChange }: FieldProps) {
  const t = useTranslate();
  const id = useId();
  const isWhole = field.path.length === 0;
  const label = field.label || t('formAnswer');
  const hint = [field.hint, field.kind === 'lines' ? t('fieldLines') : undefined].filter(Boolean).join(' ');
  const about = {
    id,
    'data-field': field.key,
    'data-testid': isWhole ? 'answer-field' : `answer-field-${field.path.join('.')}`,
    'aria-invalid': problem !== undefined,
    'aria-required': field.isRequired,
    'aria-describedby': clsx(hint !== '' && `${id}-hint`, problem && `${id}-problem`) || undefined,
    className: clsx(INPUT, problem ? 'border-danger' : 'border-input'),
  };
  const isChecked = field.kind === 'boolean';
  if (field.kind === 'choices') {
    return (
      <fieldset aria-describedby={about['aria-describedby']}>
        <legend className="mb-1 text-sm text-muted-foreground">
          {label}
          {!field.isRequired && ` (${t('fieldOptional')})`}
        </legend>
        <div className="flex flex-wrap gap-x-4 gap-y-1.5">
          {field.titles.map((title, place) => (
            <label key={place} className="flex items-center gap-2 text-sm">
              <input
                type="checkbox"
                data-field={place === 0 ? field.key : undefined}
                data-testid={`${about['data-testid']}-${place}`}
                checked={placesOf(entered).includes(place)}
                onChange={(event) => onChange(withChoice(field, entered, place, event.target.checked))}
                className="size-4 accent-(--primary)"
              />
              {title}
            </label>
          ))}
        </div>
        <FieldNotes id={id} hint={hint} problem={problem} />
      </fieldset>
    );
  }
  return (
    <div>
      <label htmlFor={id} className={clsx('text-sm', isChecked ? 'flex items-center gap-2' : 'mb-1 block text-muted-foreground')}>
        {isChecked && (
          <input
            {...about}
            type="checkbox"
            checked={entered === true}
            onChange={(event) => onChange(event.target.checked)}
            className="size-4 accent-(--primary)"
          />
        )}
        {label}
        {!field.isRequired && !isChecked && ` (${t('fieldOptional')})`}
      </label>
      {!isChecked && <Control field={field} text={String(entered)} about={about} onChange={onChange} />}
      <FieldNotes id={id} hint={hint} problem={problem} />
    </div>
  );
}

function FieldNotes({ id, hint, problem }: { id: string; hint: string; problem: Problem | undefined }) {
  const t = useTranslate();
  return (
    <>
      {hint !== '' && (
        <p id={`${id}-hint`} className="mt-1 text-xs text-muted-foreground">
          {hint}
        </p>
      )}
      {problem && (
        <p id={`${id}-problem`} role="alert" className="mt-1 text-xs text-danger" data-testid="field-problem">
          {t(PROBLEMS[problem])}
        </p>
      )}
    </>
  );
}

interface ControlProps {
  field: Field;
  text: string;
  about: { className: string };
  onChange: (entered: Entered) => void;
}

function Control({ field, text, about, onChange }: ControlProps) {
  const t = useTranslate();
  switch (field.kind) {
    case 'choice':
      return (
        <select {...about} value={text} onChange={(event) => onChange(event.target.value)}>
          <option value="">{t('fieldChoose')}</option>
          {field.titles.map((title, index) => (
            <option key={index} value={String(index)}>
              {title}
            </option>
          ))}
        </select>
      );
    case 'lines':
    case 'json':
      return (
        <textarea
          {...about}
          rows={3}
          value={text}
          spellCheck={field.kind !== 'json'}
          onChange={(event) => onChange(event.target.value)}
          className={clsx(
            about.className,
            'field-sizing-content max-h-72 min-h-20',
            field.kind === 'json' && 'font-mono text-xs',
          )}
        />
      );
    case 'number':
    case 'integer':
      return (
        <input
          {...about}
          inputMode={field.kind === 'integer' ? 'numeric' : 'decimal'}
          autoComplete="off"
          value={text}
          onChange={(event) => onChange(event.target.value)}
        />
      );
    default:
      // An answer that is nothing but words may have many of them.
      if (field.path.length === 0 && field.inputType === 'text') {
        return (
          <textarea
            {...about}
            rows={1}
            value={text}
            onChange={(event) => onChange(event.target.value)}
            onKeyDown={(event) => {
              if (event.key !== 'Enter' || event.shiftKey || isComposing(event.nativeEvent)) return;
              event.preventDefault();
              event.currentTarget.form?.requestSubmit();
            }}
            className={clsx(about.className, 'field-sizing-content block max-h-72 resize-none')}
          />
        );
      }
      return <input {...about} type={field.inputType} value={text} onChange={(event) => onChange(event.target.value)} />;
  }
}
