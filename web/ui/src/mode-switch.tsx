/** Chooses between requests and one live connection; the conversation stays the same. */
import { ArrowLeftRight, Radio } from 'lucide-react';

import { useTranslate } from './lib/i18n';
import { changeSettings, type Mode, useSettings } from './lib/settings';
import { IconButton } from './ui/button';
import { Menu, MenuChoice } from './ui/menu';

export function ModeSwitch() {
  const t = useTranslate();
  const { mode } = useSettings();
  const Icon = mode === 'live' ? Radio : ArrowLeftRight;
  return (
    <Menu
      trigger={
        <IconButton label={`${t('mode')}: ${t(mode === 'live' ? 'modeLive' : 'modeSse')}`} data-testid="mode">
          <Icon className={mode === 'live' ? 'text-primary' : ''} />
        </IconButton>
      }
    >
      <MenuChoice<Mode>
        label={t('mode')}
        value={mode}
        options={[
          ['sse', t('modeSse')],
          ['live', t('modeLive')],
        ]}
        onChange={(next) => changeSettings({ mode: next })}
      />
    </Menu>
  );
}
