/** Scrolling that follows a growing answer until the user scrolls away, and again when the user comes back to its end. */
import { type RefObject, useCallback, useEffect, useRef, useState } from 'react';

/** So near to the end counts as the end. */
const NEAR_PIXELS = 48;

interface Stick {
  scroller: RefObject<HTMLDivElement | null>;
  content: RefObject<HTMLDivElement | null>;
  isAtEnd: boolean;
  toEnd: () => void;
}

/** `isOn` is false for what is read from its beginning: a page that has no messages yet. */
export function useStickToEnd(chat: string, isOn: boolean): Stick {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const follows = useRef(true);
  const isSticky = useRef(isOn);
  isSticky.current = isOn;
  const [isAtEnd, setAtEnd] = useState(true);

  const toEnd = useCallback(() => {
    follows.current = true;
    setAtEnd(true);
    const box = scroller.current;
    if (box) box.scrollTop = box.scrollHeight;
  }, []);

  useEffect(() => {
    if (isSticky.current) toEnd();
  }, [chat, toEnd]);

  useEffect(() => {
    const box = scroller.current;
    const inner = content.current;
    if (!box || !inner) return;
    let top = box.scrollTop;
    const distance = () => box.scrollHeight - box.scrollTop - box.clientHeight;
    const onScroll = () => {
      // Only a movement upwards is the user's wish to read: growth alone moves nothing up.
      if (box.scrollTop < top - 1 && distance() > NEAR_PIXELS) follows.current = false;
      else if (distance() <= NEAR_PIXELS) follows.current = true;
      top = box.scrollTop;
      setAtEnd(distance() <= NEAR_PIXELS);
    };
    const observer = new ResizeObserver(() => {
      if (follows.current && isSticky.current) box.scrollTop = box.scrollHeight;
      else setAtEnd(distance() <= NEAR_PIXELS);
    });
    observer.observe(inner);
    observer.observe(box);
    box.addEventListener('scroll', onScroll, { passive: true });
    return () => {
      observer.disconnect();
      box.removeEventListener('scroll', onScroll);
    };
  }, []);

  return { scroller, content, isAtEnd: isAtEnd || !isOn, toEnd };
}
