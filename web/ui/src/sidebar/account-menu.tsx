/** Who is logged in, and how to leave. */
import { CircleUser, LogOut } from 'lucide-react';

import { useTranslate } from '../lib/i18n';
import { logOut, session } from '../lib/session';
import { useStore } from '../lib/store';
import { toast } from '../lib/toasts';
import { IconButton } from '../ui/button';
import { Menu, MenuItem } from '../ui/menu';

export function AccountMenu() {
  const t = useTranslate();
  const current = useStore(session);
  if (current?.user == null || current.via !== 'login') return null;
  const leave = (everywhere: boolean) => void logOut(everywhere).catch(() => toast(t('logOutFailed')));
  const name = current.name ?? current.user;
  return (
    <Menu
      trigger={
        <IconButton label={t('loggedInAs', { name })} data-testid="account">
          <CircleUser />
        </IconButton>
      }
    >
      <p className="max-w-64 truncate px-2.5 pt-2 pb-1 text-xs font-medium text-muted-foreground" data-testid="account-name">
        {name}
      </p>
      <MenuItem icon={<LogOut />} onSelect={() => leave(false)}>
        {t('logOut')}
      </MenuItem>
      <MenuItem icon={<LogOut />} onSelect={() => leave(true)}>
        {t('logOutEverywhere')}
      </MenuItem>
    </Menu>
  );
}
