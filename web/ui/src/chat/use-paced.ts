/** Draws a growing text less often the longer drawing takes, so that a long answer never holds up the page. */
import { useEffect, useLayoutEffect, useRef, useState } from 'react';

/** Drawing may take this part of the time. */
const SHARE = 1 / 8;
const MAX_PAUSE_MS = 2_000;

/** Returns the text as far as it is to be drawn; all of it as soon as it is complete. */
export function usePaced(text: string, isGrowing: boolean): string {
  const [drawn, setDrawn] = useState(text);
  const pace = useRef({ at: 0, pauseMs: 0 });
  const shown = isGrowing ? drawn : text;

  const began = performance.now();
  // biome-ignore lint/correctness/useExhaustiveDependencies: the beginning belongs to the draw that this effect ends
  useLayoutEffect(() => {
    const now = performance.now();
    pace.current = { at: now, pauseMs: Math.min((now - began) / SHARE, MAX_PAUSE_MS) };
  }, [shown]);

  useEffect(() => {
    if (!isGrowing || text === drawn) return;
    const wait = pace.current.at + pace.current.pauseMs - performance.now();
    const timer = setTimeout(() => setDrawn(text), Math.max(0, wait));
    return () => clearTimeout(timer);
  }, [text, drawn, isGrowing]);

  return shown;
}
