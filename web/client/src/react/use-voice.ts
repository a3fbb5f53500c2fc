/** Speaking with a live chat, as a hook over `VoiceSession`. */

import type { UIMessage } from 'ai';
import { useCallback, useEffect, useMemo, useState } from 'react';

import { PushToTalk } from '../audio/push-to-talk.js';
import type { PlayerState } from '../audio/player-core.js';
import { VoiceSession, type TalkMode, type VoiceSessionOptions, type VoiceState } from '../audio/voice-session.js';
import type { LiveChatTransport } from '../live/live-chat-transport.js';
import type { Observable } from '../value.js';
import { constant, useObservable } from './use-observable.js';

/** Options of {@link useVoice}. */
export interface UseVoiceOptions extends Omit<VoiceSessionOptions, 'mode'> {
  /** The mode to begin with; `push-to-talk` if left out. */
  mode?: TalkMode;
  /** Whether holding Cmd or Ctrl speaks; true if left out. */
  pushToTalkKeys?: boolean;
}

/** What {@link useVoice} returns. */
export interface Voice {
  readonly state: VoiceState;
  readonly mode: TalkMode;
  readonly isMuted: boolean;
  /** Whether the model is heard. */
  readonly playing: PlayerState;
  /** How loud the user and the model are; observables, so that a meter does not render the whole page. */
  readonly inputLevel: Observable<number>;
  readonly outputLevel: Observable<number>;
  /** Call it in a click: opens microphone, player and connection. */
  readonly start: () => Promise<void>;
  readonly stop: () => void;
  readonly setMode: (mode: TalkMode) => void;
  readonly setMuted: (isMuted: boolean) => void;
  /** For a button that is held to speak. */
  readonly press: () => void;
  readonly release: () => void;
}

/** Voice for a chat of `useBridgeChat` in mode `live`; without a live connection it stays off. */
export function useVoice<Message extends UIMessage>(
  live: LiveChatTransport<Message> | undefined,
  options: UseVoiceOptions = {},
): Voice {
  const { pushToTalkKeys = true, deviceId } = options;
  const [mode, setModeState] = useState<TalkMode>(options.mode ?? 'push-to-talk');
  const [isMuted, setMutedState] = useState(false);
  // biome-ignore lint/correctness/useExhaustiveDependencies: a session has the options that it was made with; another device is another session
  const session = useMemo(() => {
    if (live === undefined) return undefined;
    const session = new VoiceSession(live as LiveChatTransport, { ...options, mode });
    session.setMuted(isMuted);
    return session;
  }, [live, deviceId]);
  useEffect(() => () => session?.stop(), [session]);

  const state = useObservable(session?.state ?? OFF);
  const playing = useObservable(session?.playing ?? SILENT);
  const isOn = state.status !== 'off';
  useEffect(() => {
    if (session === undefined || !isOn || !pushToTalkKeys || mode !== 'push-to-talk') return undefined;
    const keys = new PushToTalk({ onPress: () => session.press(), onRelease: () => session.release() });
    return () => keys.close();
  }, [session, isOn, pushToTalkKeys, mode]);

  return {
    state,
    mode,
    isMuted,
    playing,
    inputLevel: session?.inputLevel ?? NO_LEVEL,
    outputLevel: session?.outputLevel ?? NO_LEVEL,
    start: useCallback(async () => session?.start(), [session]),
    stop: useCallback(() => session?.stop(), [session]),
    press: useCallback(() => session?.press(), [session]),
    release: useCallback(() => session?.release(), [session]),
    setMode: useCallback(
      (next: TalkMode) => {
        setModeState(next);
        session?.setMode(next);
      },
      [session],
    ),
    setMuted: useCallback(
      (next: boolean) => {
        setMutedState(next);
        session?.setMuted(next);
      },
      [session],
    ),
  };
}

const OFF = constant<VoiceState>({ status: 'off' });
const SILENT = constant<PlayerState>('idle');
const NO_LEVEL = constant(0);
