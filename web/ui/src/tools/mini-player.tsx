/** The small player that is there while the agent's music is. */
import { Music, Pause, Play, X } from 'lucide-react';

import { useTranslate } from '../lib/i18n';
import { useStore } from '../lib/store';
import { IconButton } from '../ui/button';
import { playing, setVolume, stopMusic, togglePause } from './music';

export function MiniPlayer() {
  const t = useTranslate();
  const now = useStore(playing);
  if (now === null) return null;
  return (
    <section
      aria-label={t('nowPlaying', { track: now.track })}
      data-testid="mini-player"
      className="appear mx-auto mb-2 flex w-full max-w-sm items-center gap-2 rounded-full border bg-raised py-1 pr-1.5 pl-4 shadow-float"
    >
      <Music className={`size-4 shrink-0 text-primary ${now.isPaused ? '' : 'breathe'}`} aria-hidden />
      <span className="min-w-0 flex-1 truncate text-sm">{now.track}</span>
      <input
        type="range"
        min={0}
        max={1}
        step={0.05}
        value={now.volume}
        aria-label={t('volume')}
        className="w-20 accent-(--primary)"
        onChange={(event) => setVolume(Number(event.target.value))}
      />
      <IconButton
        size="small"
        label={t(now.isPaused ? 'playMusic' : 'pauseMusic')}
        onClick={() => void togglePause()}
        data-testid="mini-player-toggle"
      >
        {now.isPaused ? <Play /> : <Pause />}
      </IconButton>
      <IconButton size="small" label={t('closePlayer')} onClick={stopMusic}>
        <X />
      </IconButton>
    </section>
  );
}
