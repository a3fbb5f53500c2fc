/** How loud the microphone is, as a dot that grows; it renders alone, many times a second. */
import type { Observable } from '@adk-bridge/client';
import { useObservable } from '@adk-bridge/client/react';

const BARS = [0.04, 0.1, 0.2, 0.35];

export function LevelMeter({ level, isActive }: { level: Observable<number>; isActive: boolean }) {
  const loudness = useObservable(level);
  return (
    <span className="ml-2 flex h-5 items-end gap-0.5" aria-hidden data-testid="voice-level" data-level={loudness.toFixed(3)}>
      {BARS.map((least, index) => (
        <span
          key={least}
          className={`w-1 rounded-full transition-colors ${['h-2', 'h-3', 'h-4', 'h-5'][index]} ${
            loudness >= least ? (isActive ? 'bg-primary' : 'bg-success') : 'bg-accent'
          }`}
        />
      ))}
    </span>
  );
}
