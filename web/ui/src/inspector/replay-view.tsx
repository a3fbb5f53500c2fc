/** Plays a downloaded chunk log again: the answers in it are folded and shown as they were streamed. */
import { readUIMessageStream, type UIMessage, type UIMessageChunk } from 'ai';
import { Play, Upload } from 'lucide-react';
import { useRef, useState } from 'react';

import { AnswerText } from '../chat/answer-text';
import { useTranslate } from '../lib/i18n';
import { humanName } from '../lib/human-name';
import { Button } from '../ui/button';
import { type Recorded, recordedAnswers } from './recorded';

/** A pause in the recording is shortened to this. */
const MAX_PAUSE_MS = 400;

export function ReplayView() {
  const t = useTranslate();
  const picker = useRef<HTMLInputElement>(null);
  const [name, setName] = useState<string>();
  const [requests, setRequests] = useState<Recorded[]>([]);
  const [message, setMessage] = useState<UIMessage>();
  const [isBad, setBad] = useState(false);

  const open = async (file: File) => {
    const read = recordedAnswers(await file.text());
    setName(file.name);
    setBad(read.length === 0);
    setRequests(read);
    setMessage(undefined);
  };

  const play = async (request: Recorded) => {
    for await (const state of readUIMessageStream({ stream: paced(request) })) setMessage(state);
  };

  return (
    <div className="space-y-3 text-sm">
      <Button onClick={() => picker.current?.click()}>
        <Upload className="size-4" aria-hidden /> {t('replayLog')}
      </Button>
      <input
        ref={picker}
        type="file"
        hidden
        accept=".jsonl,application/jsonl"
        data-testid="replay-picker"
        onChange={(event) => {
          const [file] = event.target.files ?? [];
          if (file) void open(file);
          event.target.value = '';
        }}
      />
      {isBad && <p role="alert">{t('replayBad')}</p>}
      {requests.length > 0 && name !== undefined && (
        <ul className="space-y-1" aria-label={t('replayOf', { name })}>
          {requests.map((request) => (
            <li key={request.id}>
              <Button className="h-8" onClick={() => void play(request)} data-testid="replay-play">
                <Play className="size-4" aria-hidden /> {request.chunks.length} {t('chunks')}
              </Button>
            </li>
          ))}
        </ul>
      )}
      {message && (
        <div className="rounded-xl border bg-background p-3" data-testid="replay-message">
          {message.parts.map((part, index) => {
            if (part.type === 'text') return <AnswerText key={index} text={part.text} isStreaming={false} />;
            if (part.type === 'reasoning')
              return (
                <p key={index} className="text-muted-foreground">
                  {part.text}
                </p>
              );
            if ('toolCallId' in part) {
              return (
                <p key={index} className="my-1 rounded-lg bg-muted px-2 py-1">
                  {humanName(part.type.replace('tool-', ''))} · {part.state}
                </p>
              );
            }
            return null;
          })}
        </div>
      )}
    </div>
  );
}

function paced({ chunks }: Recorded): ReadableStream<UIMessageChunk> {
  let index = 0;
  return new ReadableStream({
    async pull(control) {
      const next = chunks[index];
      if (next === undefined) {
        control.close();
        return;
      }
      const pause = next.at - (chunks[index - 1]?.at ?? next.at);
      if (pause > 0) await new Promise((resolve) => setTimeout(resolve, Math.min(pause, MAX_PAUSE_MS)));
      index += 1;
      control.enqueue(next.chunk);
    },
  });
}
