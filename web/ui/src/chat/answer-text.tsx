/** Text of an answer; plain for the moment until the Markdown renderer has been fetched. */
import { lazy, memo, Suspense } from 'react';

const Markdown = lazy(() => import('../markdown/markdown'));

/** Fetches the renderer before it is needed. */
export function prepareMarkdown(): void {
  void import('../markdown/markdown');
}

export const AnswerText = memo(function AnswerText({ text, isStreaming }: { text: string; isStreaming: boolean }) {
  return (
    <Suspense fallback={<div className="whitespace-pre-wrap">{text}</div>}>
      <Markdown text={text} isStreaming={isStreaming} />
    </Suspense>
  );
});
