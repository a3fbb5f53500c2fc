/** Begins and ends speaking, where the agent can hear. */
import { AudioLines } from 'lucide-react';

import { agent } from '../lib/agents';
import { useTranslate } from '../lib/i18n';
import { changeSettings } from '../lib/settings';
import { useStore } from '../lib/store';
import { IconButton } from '../ui/button';
import { voiceWanted } from './voice-wanted';

export function VoiceButton() {
  const t = useTranslate();
  const isOn = useStore(voiceWanted);
  const canHear = (useStore(agent)?.liveModel ?? null) !== null;
  if (!canHear) return null;
  const toggle = () => {
    // Speech travels over the live connection only.
    if (!isOn) changeSettings({ mode: 'live' });
    voiceWanted.set(!isOn);
  };
  return (
    <IconButton
      round
      look={isOn ? 'outline' : 'ghost'}
      label={t(isOn ? 'stopVoice' : 'startVoice')}
      aria-pressed={isOn}
      onClick={toggle}
      data-testid="voice-toggle"
    >
      <AudioLines className={isOn ? 'text-primary' : ''} />
    </IconButton>
  );
}
