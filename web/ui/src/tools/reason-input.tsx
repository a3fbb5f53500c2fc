/** Where the user may say why: with an approval's answer, or with a form that is declined. */
import clsx from 'clsx';

import { isComposing } from '../lib/composing';
import { useTranslate } from '../lib/i18n';

interface ReasonInputProps {
  value: string;
  onChange: (reason: string) => void;
  /** What Enter does; left to what stands around it if left out. */
  onEnter?: () => void;
  testId: string;
  className: string;
}

/** The reason goes to the agent; it is a sentence, not a letter. */
const MAX_CHARACTERS = 500;

export function ReasonInput({ value, onChange, onEnter, testId, className }: ReasonInputProps) {
  const t = useTranslate();
  return (
    <input
      autoFocus
      aria-label={t('reason')}
      placeholder={t('reason')}
      value={value}
      dir="auto"
      maxLength={MAX_CHARACTERS}
      onChange={(event) => onChange(event.target.value)}
      onKeyDown={(event) => {
        if (onEnter === undefined || event.key !== 'Enter' || isComposing(event.nativeEvent)) return;
        event.preventDefault();
        onEnter();
      }}
      data-testid={testId}
      className={clsx('w-full rounded-lg border border-input bg-raised px-3 py-1.5 text-sm', className)}
    />
  );
}
