/** Colours, language, and where to read more. */
import { Settings } from 'lucide-react';

import { useTranslate } from '../lib/i18n';
import { changeSettings, type Language, type Theme, useSettings } from '../lib/settings';
import { IconButton } from '../ui/button';
import { Menu, MenuChoice, MenuLinks } from '../ui/menu';

export function SettingsMenu() {
  const t = useTranslate();
  const { theme, language } = useSettings();
  return (
    <Menu
      trigger={
        <IconButton label={t('settings')} data-testid="settings">
          <Settings />
        </IconButton>
      }
    >
      <MenuChoice<Theme>
        label={t('theme')}
        stays
        value={theme}
        options={[
          ['system', t('themeSystem')],
          ['light', t('themeLight')],
          ['dark', t('themeDark')],
        ]}
        onChange={(next) => changeSettings({ theme: next })}
      />
      <MenuChoice<Language | 'browser'>
        label={t('language')}
        stays
        value={language ?? 'browser'}
        options={[
          ['browser', t('languageBrowser')],
          ['en', 'English'],
          ['ja', '日本語'],
        ]}
        onChange={(next) => changeSettings({ language: next === 'browser' ? null : next })}
      />
      <MenuLinks
        label={t('help')}
        links={[
          ['docs/', t('documents')],
          ['api/docs', 'API'],
        ]}
      />
    </Menu>
  );
}
