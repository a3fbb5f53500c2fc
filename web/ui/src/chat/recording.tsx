/** What was said, to be heard again: one button with the length of it. */
import { Pause, Play } from 'lucide-react';
import { useRef, useState } from 'react';

import { countdown } from '../lib/format';
import { useTranslate } from '../lib/i18n';

export function Recording({ source }: { source: string }) {
  const t = useTranslate();
  const audio = useRef<HTMLAudioElement>(null);
  const [isPlaying, setPlaying] = useState(false);
  const [seconds, setSeconds] = useState<number>();
  const toggle = () => {
    const sound = audio.current;
    if (sound === null) return;
    if (sound.paused) void sound.play();
    else sound.pause();
  };
  const Icon = isPlaying ? Pause : Play;
  return (
    <>
      <button
        type="button"
        onClick={toggle}
        title={t(isPlaying ? 'pauseRecording' : 'playRecording')}
        data-testid="recording"
        className="my-1 inline-flex h-8 items-center gap-2 rounded-full border bg-raised px-3 text-xs text-muted-foreground tabular-nums transition-colors hover:bg-muted hover:text-foreground"
      >
        <Icon className="size-3.5" aria-hidden />
        <span className="sr-only">{t(isPlaying ? 'pauseRecording' : 'playRecording')}</span>
        {seconds === undefined ? '–:––' : countdown(seconds * 1_000)}
      </button>
      {/* biome-ignore lint/a11y/useMediaCaption: the message next to it is what was said */}
      <audio
        ref={audio}
        src={source}
        preload="metadata"
        onLoadedMetadata={(event) => setSeconds(event.currentTarget.duration)}
        onPlay={() => setPlaying(true)}
        onPause={() => setPlaying(false)}
        onEnded={() => setPlaying(false)}
      />
    </>
  );
}
