/** What the user wrote, with a way to write it again. */
import { Check, Copy, Pencil } from 'lucide-react';
import type { UIMessage } from 'ai';
import { useState } from 'react';

import { isComposing } from '../lib/composing';
import { useTranslate } from '../lib/i18n';
import { Button, IconButton } from '../ui/button';
import { useCopy } from '../ui/use-copy';
import { MediaPart } from './media';
import { textOf } from './message-actions';
import type { ChatSession } from './session';

export function UserMessage({ message, session }: { message: UIMessage; session: ChatSession }) {
  const t = useTranslate();
  const [isEditing, setEditing] = useState(false);
  const [copied, copy] = useCopy();
  const text = textOf(message);
  if (isEditing) {
    const send = (next: string) => {
      setEditing(false);
      void session.edit(message, next);
    };
    return <Editor text={text} onCancel={() => setEditing(false)} onSend={send} />;
  }
  return (
    <div className="flex flex-col items-end pl-8 sm:pl-16">
      {message.parts.map((part, index) =>
        part.type === 'file' && !isSound(part) ? (
          <MediaPart key={index} url={part.url} mediaType={part.mediaType} filename={part.filename} />
        ) : null,
      )}
      <div className="flex max-w-full items-center justify-end gap-1.5">
        <div className="flex shrink-0 opacity-0 transition-opacity group-focus-within/message:opacity-100 group-hover/message:opacity-100 pointer-coarse:opacity-60">
          <IconButton size="small" label={copied ? t('copied') : t('copy')} onClick={() => copy(text)}>
            {copied ? <Check /> : <Copy />}
          </IconButton>
          <IconButton size="small" label={t('edit')} onClick={() => setEditing(true)} data-testid="edit">
            <Pencil />
          </IconButton>
        </div>
        {text !== '' && (
          <div dir="auto" className="min-w-0 rounded-2xl rounded-br-md bg-muted px-4 py-2.5 break-words whitespace-pre-wrap">
            {text}
          </div>
        )}
      </div>
      {message.parts.map((part, index) =>
        part.type === 'file' && isSound(part) ? (
          <MediaPart key={index} url={part.url} mediaType={part.mediaType} filename={part.filename} />
        ) : null,
      )}
    </div>
  );
}

/** What was said comes below its words, pictures above them. */
function isSound({ mediaType }: { mediaType: string }): boolean {
  return mediaType.startsWith('audio/');
}

function Editor({ text, onSend, onCancel }: { text: string; onSend: (text: string) => void; onCancel: () => void }) {
  const t = useTranslate();
  const [draft, setDraft] = useState(text);
  const send = () => draft.trim() !== '' && onSend(draft.trim());
  return (
    <div className="rounded-2xl border border-input bg-raised p-3">
      <textarea
        autoFocus
        aria-label={t('editMessage')}
        value={draft}
        dir="auto"
        rows={Math.min(10, draft.split('\n').length + 1)}
        onChange={(event) => setDraft(event.target.value)}
        onKeyDown={(event) => {
          if (isComposing(event.nativeEvent)) return;
          if (event.key === 'Escape') onCancel();
          if (event.key === 'Enter' && !event.shiftKey) {
            event.preventDefault();
            send();
          }
        }}
        className="w-full resize-none bg-transparent outline-none"
        data-testid="edit-field"
      />
      <div className="mt-2 flex justify-end gap-2">
        <Button onClick={onCancel}>{t('cancel')}</Button>
        <Button look="primary" onClick={send} data-testid="edit-send">
          {t('resend')}
        </Button>
      </div>
    </div>
  );
}
