/** Where the user writes: text, pictures by paste, drop or choice; sending, queueing and stopping. */
import { ArrowUp, ListPlus, LoaderCircle, Paperclip, Square } from 'lucide-react';
import { type ClipboardEvent, type KeyboardEvent, useEffect, useRef, useState } from 'react';

import { isComposing } from '../lib/composing';
import { keepDraft, keptDraft } from '../lib/kept';
import { useTranslate } from '../lib/i18n';
import { toast } from '../lib/toasts';
import { IconButton } from '../ui/button';
import { VoiceButton } from '../voice/voice-button';
import { prepareMarkdown } from './answer-text';
import { AttachedFiles, type Attached, attach, release } from './attached-files';
import type { ChatSession } from './session';

interface Props {
  session: ChatSession;
  isBusy: boolean;
  isAsked: boolean;
  onSent: () => void;
}

/** What models commonly read. */
const ACCEPTED = 'image/png,image/jpeg,image/webp,image/gif,application/pdf,text/plain,text/markdown,audio/*';

export function Composer({ session, isBusy, isAsked, onSent }: Props) {
  const t = useTranslate();
  const [text, setText] = useState(() => keptDraft(session.id));
  const [files, setFiles] = useState<Attached[]>([]);
  const [isSending, setSending] = useState(false);
  const field = useRef<HTMLTextAreaElement>(null);
  const picker = useRef<HTMLInputElement>(null);
  const isDropping = useDrop((dropped) => setFiles((before) => [...before, ...attach(dropped)]));

  useEffect(() => {
    // On a touch screen the focus would call up the keyboard over the page.
    if (window.matchMedia('(pointer: fine)').matches) field.current?.focus();
  }, []);
  useEffect(() => keepDraft(session.id, text), [session, text]);
  const isEmpty = text.trim() === '' && files.length === 0;

  const send = async () => {
    if (isEmpty || isSending) return;
    setSending(true);
    try {
      await session.send(
        text.trim(),
        files.map(({ file }) => file),
      );
      // The field may be gone by now, with another chat in its place.
      keepDraft(session.id, '');
      setText('');
      release(files);
      setFiles([]);
      onSent();
    } catch (problem) {
      // The draft stays as it is.
      toast(t('uploadFailed', { reason: problem instanceof Error ? problem.message : '' }), { tone: 'error' });
    } finally {
      setSending(false);
      field.current?.focus();
    }
  };

  const onKeyDown = (event: KeyboardEvent) => {
    if (isComposing(event.nativeEvent)) return;
    if (event.key === 'Enter' && !event.shiftKey) {
      event.preventDefault();
      void send();
    } else if (event.key === 'Escape' && isBusy) {
      void session.stop();
    }
  };

  const onPaste = (event: ClipboardEvent) => {
    const pasted = [...event.clipboardData.files];
    if (pasted.length === 0) return;
    event.preventDefault();
    setFiles((before) => [...before, ...attach(pasted)]);
  };

  const placeholder = isBusy ? t('queuePlaceholder') : isAsked ? t('supersedePlaceholder') : t('messagePlaceholder');
  return (
    <form
      aria-label={t('messageLabel')}
      onSubmit={(event) => {
        event.preventDefault();
        void send();
      }}
      className="relative rounded-3xl border border-input bg-raised shadow-float transition-colors focus-within:border-ring"
    >
      {isDropping && (
        <div className="absolute inset-0 z-10 grid place-items-center rounded-3xl bg-primary-soft font-medium text-primary">
          {t('dropHere')}
        </div>
      )}
      <AttachedFiles
        files={files}
        onRemove={(gone) => {
          release([gone]);
          setFiles((before) => before.filter((file) => file !== gone));
        }}
      />
      <textarea
        ref={field}
        id="message"
        rows={1}
        aria-label={t('messageLabel')}
        aria-describedby="composer-hint"
        placeholder={placeholder}
        value={text}
        dir="auto"
        // While its files are on their way a message is as it was sent: what were added to it would be lost.
        readOnly={isSending}
        aria-busy={isSending}
        onChange={(event) => {
          setText(event.target.value);
          prepareMarkdown();
        }}
        onKeyDown={onKeyDown}
        onPaste={onPaste}
        data-testid="composer"
        className="field-sizing-content block max-h-52 min-h-[52px] w-full resize-none bg-transparent px-5 pt-3.5 pb-1 outline-none placeholder:text-muted-foreground"
      />
      <span id="composer-hint" className="sr-only">
        {t('hint')}
      </span>
      <div className="flex items-center gap-1 px-2.5 pb-2.5">
        <IconButton label={t('attach')} round onClick={() => picker.current?.click()}>
          <Paperclip />
        </IconButton>
        <input
          ref={picker}
          type="file"
          multiple
          hidden
          accept={ACCEPTED}
          data-testid="file-picker"
          onChange={(event) => {
            // The list is emptied with the field below: it is read first.
            const chosen = attach([...(event.target.files ?? [])]);
            setFiles((before) => [...before, ...chosen]);
            event.target.value = '';
          }}
        />
        <span className="flex-1" />
        <VoiceButton />
        {isBusy && !isEmpty && (
          <IconButton type="submit" label={t('addToQueue')} round data-testid="queue-add">
            <ListPlus />
          </IconButton>
        )}
        {isBusy ? (
          <IconButton label={t('stop')} look="primary" round onClick={() => void session.stop()} data-testid="stop">
            <Square className="fill-current" />
          </IconButton>
        ) : (
          <IconButton type="submit" label={t('send')} look="primary" round disabled={isEmpty || isSending} data-testid="send">
            {isSending ? <LoaderCircle className="animate-spin" /> : <ArrowUp />}
          </IconButton>
        )}
      </div>
    </form>
  );
}

/** Files that are dropped anywhere on the page. */
function useDrop(onDrop: (files: File[]) => void): boolean {
  const [isOver, setOver] = useState(false);
  const handler = useRef(onDrop);
  handler.current = onDrop;
  useEffect(() => {
    const over = (event: DragEvent) => {
      if (!event.dataTransfer?.types.includes('Files')) return;
      event.preventDefault();
      setOver(true);
    };
    const leave = (event: DragEvent) => event.relatedTarget === null && setOver(false);
    const drop = (event: DragEvent) => {
      const files = [...(event.dataTransfer?.files ?? [])];
      setOver(false);
      if (files.length === 0) return;
      event.preventDefault();
      handler.current(files);
    };
    const listeners = { dragover: over, dragleave: leave, drop } as const;
    for (const [name, listener] of Object.entries(listeners)) {
      window.addEventListener(name, listener as EventListener);
    }
    return () => {
      for (const [name, listener] of Object.entries(listeners)) {
        window.removeEventListener(name, listener as EventListener);
      }
    };
  }, []);
  return isOver;
}
