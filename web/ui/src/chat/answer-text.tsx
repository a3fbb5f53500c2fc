/** Text of an answer; plain for the moment until the Markdown renderer has been fetched. */
import { lazy, memo, Suspense } from 'react';

import { usePaced } from './use-paced';

const Markdown = lazy(() => import('../markdown/markdown'));

/** Fetches the renderer before it is needed. */
export function prepareMarkdown(): void {
  void import('../markdown/markdown');
}

export const AnswerText = memo(function AnswerText({ text, isStreaming }: { text: string; isStreaming: boolean }) {
  const shown = usePaced(text, isStreaming);
  return (
    <Suspense fallback={<div className="whitespace-pre-wrap">{shown}</div>}>
      <Markdown text={shown} isStreaming={isStreaming} />
    </Suspense>
  );
});
