/** Copies text, and tells for a moment that it did. */
import { useCallback, useEffect, useRef, useState } from 'react';

import { copyText } from '../lib/copy-text';
import { toast } from '../lib/toasts';

const SHOWN_MS = 1_600;

export function useCopy(): [copied: boolean, copy: (text: string) => void] {
  const [copied, setCopied] = useState(false);
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  useEffect(() => () => clearTimeout(timer.current), []);
  const copy = useCallback((text: string) => {
    copyText(text).then(
      () => {
        setCopied(true);
        clearTimeout(timer.current);
        timer.current = setTimeout(() => setCopied(false), SHOWN_MS);
      },
      (problem: unknown) => toast(problem instanceof Error ? problem.message : String(problem), { tone: 'error' }),
    );
  }, []);
  return [copied, copy];
}
