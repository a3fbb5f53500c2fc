/** The controls of a spoken conversation: what it does, how loud it is, and who may speak when. */
import type { LiveChatTransport } from '@adk-bridge/client';
import { useVoice, type Voice } from '@adk-bridge/client/react';
import { Hand, Mic, MicOff, Volume2, X } from 'lucide-react';
import { useEffect, useState } from 'react';

import { type Key, useTranslate } from '../lib/i18n';
import { IconButton } from '../ui/button';
import { CameraControls } from './camera-controls';
import { LevelMeter } from './level-meter';
import { MicrophoneMenu } from './microphone-menu';
import { voiceWanted } from './voice-wanted';
import playerWorkletUrl from '@adk-bridge/client/worklets/player.worklet.ts?worker&url';
import recorderWorkletUrl from '@adk-bridge/client/worklets/recorder.worklet.ts?worker&url';

export default function VoiceBar({ live }: { live: LiveChatTransport }) {
  const t = useTranslate();
  const [deviceId, setDeviceId] = useState<string>();
  const [isSpoken, setSpoken] = useState(true);
  const voice = useVoice(live, { deviceId, recorderWorkletUrl, playerWorkletUrl });
  const { start, stop, state } = voice;
  useEffect(() => void start(), [start]);
  useConnected(live, start, stop);
  useEffect(() => live.on('modality', ({ modality }) => setSpoken(modality === 'audio')), [live]);
  const isHandsFree = voice.mode === 'hands-free';

  return (
    <section
      aria-label={t('voice')}
      data-testid="voice-bar"
      className="appear mb-2 rounded-2xl border bg-raised p-2 shadow-float"
    >
      <div className="flex flex-wrap items-center gap-1">
        <LevelMeter level={voice.inputLevel} isActive={state.status === 'listening'} />
        <p
          role="status"
          data-testid="voice-status"
          data-status={state.status}
          data-playing={voice.playing}
          className="min-w-32 flex-1 px-1.5 text-sm text-muted-foreground"
        >
          {state.error ? t('voiceFailed', { reason: state.error.message }) : t(statusOf(voice))}
        </p>
        <Toggle
          isOn={isHandsFree}
          label={t('handsFree')}
          testId="voice-handsfree"
          onChange={(on) => voice.setMode(on ? 'hands-free' : 'push-to-talk')}
        >
          <Hand />
        </Toggle>
        <Toggle
          isOn={isSpoken}
          label={t('spokenAnswers')}
          testId="voice-spoken"
          onChange={(on) => {
            setSpoken(on);
            live.setModality(on ? 'audio' : 'text');
          }}
        >
          <Volume2 />
        </Toggle>
        <IconButton
          label={t(voice.isMuted ? 'unmute' : 'mute')}
          aria-pressed={voice.isMuted}
          onClick={() => voice.setMuted(!voice.isMuted)}
          data-testid="voice-mute"
        >
          {voice.isMuted ? <MicOff className="text-danger" /> : <Mic />}
        </IconButton>
        <MicrophoneMenu deviceId={deviceId} onChange={setDeviceId} isOpen={state.status !== 'off'} />
        <CameraControls live={live} />
        <IconButton label={t('stopVoice')} onClick={() => voiceWanted.set(false)}>
          <X />
        </IconButton>
      </div>
      {!isHandsFree && state.status !== 'off' && (
        <button
          type="button"
          disabled={voice.isMuted || state.status === 'starting'}
          onPointerDown={voice.press}
          onPointerUp={voice.release}
          onPointerLeave={voice.release}
          onPointerCancel={voice.release}
          onKeyDown={(event) => event.key === ' ' && !event.repeat && voice.press()}
          onKeyUp={(event) => event.key === ' ' && voice.release()}
          data-testid="voice-talk"
          className="mt-2 h-10 w-full touch-none rounded-xl bg-muted text-sm font-medium select-none active:bg-primary active:text-primary-foreground disabled:opacity-50"
        >
          {t('holdToTalk')}
        </button>
      )}
    </section>
  );
}

/** A chat that another window has taken over must not go on hearing here; it does when it is taken back. */
function useConnected(live: LiveChatTransport, start: () => Promise<void>, stop: () => void): void {
  useEffect(() => {
    let isTaken = false;
    return live.connection.subscribe(() => {
      const { status } = live.connection.get();
      if (status === 'closed') stop();
      else if (status === 'open' && isTaken) void start();
      isTaken = status === 'closed' || (isTaken && status !== 'open');
    });
  }, [live, start, stop]);
}

function statusOf({ state, mode, isMuted, playing }: Voice): Key {
  if (state.status === 'listening') return 'voiceListening';
  if (state.status === 'off') return 'voiceOff';
  if (state.status !== 'ready') return 'voiceStarting';
  if (isMuted) return 'voiceMuted';
  if (playing === 'playing') return 'voiceSpeaking';
  return mode === 'hands-free' ? 'voiceReadyHandsFree' : 'voiceReadyKey';
}

interface ToggleProps {
  isOn: boolean;
  label: string;
  testId: string;
  onChange: (isOn: boolean) => void;
  children: React.ReactNode;
}

function Toggle({ isOn, label, testId, onChange, children }: ToggleProps) {
  return (
    <IconButton
      label={label}
      aria-pressed={isOn}
      onClick={() => onChange(!isOn)}
      data-testid={testId}
      className={isOn ? 'bg-primary-soft text-primary' : ''}
    >
      {children}
    </IconButton>
  );
}
