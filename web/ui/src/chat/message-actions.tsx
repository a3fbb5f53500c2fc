/** What can be done with an answer: copy it, or ask for another. */
import { Check, Copy, RefreshCw } from 'lucide-react';
import type { UIMessage } from 'ai';

import { useTranslate } from '../lib/i18n';
import { IconButton } from '../ui/button';
import { useCopy } from '../ui/use-copy';
import { hasOpenCalls } from './calls';
import type { ChatSession } from './session';

interface Props {
  message: UIMessage;
  session: ChatSession;
  isLast: boolean;
}

export function MessageActions({ message, session, isLast }: Props) {
  const t = useTranslate();
  const [copied, copy] = useCopy();
  const text = textOf(message);
  if (text === '' && !isLast) return null;
  // While a question is open, or a tool runs in this browser, the answer is not over.
  if (hasOpenCalls(message)) return null;
  const hidden = isLast ? '' : 'opacity-0 group-hover/message:opacity-100 group-focus-within/message:opacity-100';
  return (
    <div className={`mt-1 -ml-1.5 flex transition-opacity pointer-coarse:opacity-100 ${hidden}`}>
      {text !== '' && (
        <IconButton size="small" label={copied ? t('copied') : t('copy')} onClick={() => copy(text)} data-testid="copy">
          {copied ? <Check /> : <Copy />}
        </IconButton>
      )}
      <IconButton
        size="small"
        label={t('regenerate')}
        onClick={() => void session.regenerate(message.id)}
        data-testid="regenerate"
      >
        <RefreshCw />
      </IconButton>
    </div>
  );
}

export function textOf(message: UIMessage): string {
  return message.parts.flatMap((part) => (part.type === 'text' ? [part.text] : [])).join('\n\n');
}
