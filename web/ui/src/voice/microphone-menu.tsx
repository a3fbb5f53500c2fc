/** Chooses the microphone. */
import { ChevronDown } from 'lucide-react';
import { useEffect, useState } from 'react';

import { useTranslate } from '../lib/i18n';
import { IconButton } from '../ui/button';
import { Menu, MenuChoice } from '../ui/menu';

interface Props {
  deviceId: string | undefined;
  /** The names are known only once the user has allowed a microphone. */
  isOpen: boolean;
  onChange: (deviceId: string | undefined) => void;
}

const SYSTEM = 'system';

export function MicrophoneMenu({ deviceId, isOpen, onChange }: Props) {
  const t = useTranslate();
  const devices = useMicrophones(isOpen);
  const options = devices.map(
    ({ deviceId: id, label }, index) => [id, label || t('microphoneNumber', { number: index + 1 })] as const,
  );
  return (
    <Menu
      trigger={
        <IconButton label={t('microphone')} size="small" data-testid="voice-device">
          <ChevronDown />
        </IconButton>
      }
    >
      <MenuChoice<string>
        label={t('microphone')}
        value={deviceId ?? SYSTEM}
        options={[[SYSTEM, t('microphoneDefault')], ...options]}
        onChange={(next) => onChange(next === SYSTEM ? undefined : next)}
      />
    </Menu>
  );
}

function useMicrophones(isOpen: boolean): MediaDeviceInfo[] {
  const [devices, setDevices] = useState<MediaDeviceInfo[]>([]);
  useEffect(() => {
    const { mediaDevices } = navigator;
    if (mediaDevices === undefined) return undefined;
    const read = async () => {
      const all = await mediaDevices.enumerateDevices();
      setDevices(all.filter(({ kind, deviceId: id }) => kind === 'audioinput' && id !== '' && id !== 'default'));
    };
    void read();
    mediaDevices.addEventListener('devicechange', read);
    return () => mediaDevices.removeEventListener('devicechange', read);
  }, [isOpen]);
  return devices;
}
