/** What the model thought: open while it thinks, then folded, with the time that it took. */
import { Brain, ChevronRight } from 'lucide-react';
import { useEffect, useRef, useState } from 'react';

import { span } from '../lib/format';
import { useTranslate } from '../lib/i18n';

export function Reasoning({ text, isStreaming }: { text: string; isStreaming: boolean }) {
  const t = useTranslate();
  const [choice, setChoice] = useState<boolean>();
  const took = useDuration(isStreaming);
  const isOpen = choice ?? isStreaming;
  const label = isStreaming ? t('thinking') : took === undefined ? t('thought') : t('thoughtFor', { span: span(took) });
  return (
    <div className="my-2" data-testid="reasoning">
      <button
        type="button"
        aria-expanded={isOpen}
        onClick={() => setChoice(!isOpen)}
        className="flex items-center gap-1.5 rounded-md text-sm text-muted-foreground transition-colors hover:text-foreground"
      >
        <Brain className={`size-4 ${isStreaming ? 'breathe' : ''}`} aria-hidden />
        {label}
        <ChevronRight className={`size-4 transition-transform ${isOpen ? 'rotate-90' : ''}`} aria-hidden />
      </button>
      {isOpen && <div className="mt-1.5 ml-2 border-l-2 pl-4 text-sm whitespace-pre-wrap text-muted-foreground">{text}</div>}
    </div>
  );
}

/** How long something was seen to stream; unknown for what was loaded. */
function useDuration(isStreaming: boolean): number | undefined {
  const since = useRef<number>(undefined);
  const [took, setTook] = useState<number>();
  useEffect(() => {
    if (isStreaming) since.current ??= performance.now();
    else if (since.current !== undefined) setTook((before) => before ?? performance.now() - (since.current ?? 0));
  }, [isStreaming]);
  return took;
}
