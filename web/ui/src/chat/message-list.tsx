/** The conversation: what is finished is drawn once, the last message as it grows. */
import type { UIMessage } from 'ai';
import { memo, useState } from 'react';

import { useTranslate } from '../lib/i18n';
import { Button } from '../ui/button';
import type { CallRecord } from './call-records';
import { Message } from './message';
import type { ChatSession } from './session';

interface Props {
  messages: UIMessage[];
  session: ChatSession;
  records: ReadonlyMap<string, CallRecord>;
  isBusy: boolean;
  isAtRest: boolean;
}

/** As many fill a few screens; earlier ones come on demand, so that a long conversation opens as fast as a short one. */
const SHOWN_AT_FIRST = 40;
const SHOWN_MORE = 80;

export function MessageList({ messages, session, records, isBusy, isAtRest }: Props) {
  const last = messages.at(-1);
  return (
    <>
      <History messages={messages.slice(0, -1)} session={session} records={records} />
      {last !== undefined && (
        <Message
          key={last.id}
          message={last}
          session={session}
          records={records}
          isStreaming={isBusy && last.role === 'assistant'}
          isLast
          isAtRest={isAtRest}
        />
      )}
    </>
  );
}

/** All but the last message. Compared by its elements: the SDK makes a new array at every chunk. */
const History = memo(
  function History({ messages, session, records }: Omit<Props, 'isBusy' | 'isAtRest'>) {
    const t = useTranslate();
    // Fixed when the chat is opened: messages that come later push none away.
    const [start, setStart] = useState(() => Math.max(0, messages.length - SHOWN_AT_FIRST));
    return (
      <>
        {start > 0 && (
          <div className="py-3 text-center">
            <Button look="ghost" onClick={() => setStart(Math.max(0, start - SHOWN_MORE))} data-testid="earlier">
              {t('earlier')}
            </Button>
          </div>
        )}
        {messages.slice(start).map((message) => (
          <Message
            key={message.id}
            message={message}
            session={session}
            records={records}
            isStreaming={false}
            isLast={false}
            isAtRest={false}
          />
        ))}
      </>
    );
  },
  (before, after) =>
    before.records === after.records &&
    before.session === after.session &&
    before.messages.length === after.messages.length &&
    before.messages.every((message, index) => message === after.messages[index]),
);
