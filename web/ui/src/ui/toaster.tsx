/** Shows the notes of `lib/toasts`. */
import clsx from 'clsx';

import { useStore } from '../lib/store';
import { toasts } from '../lib/toasts';
import { Button } from './button';

export function Toaster() {
  const shown = useStore(toasts);
  return (
    <div
      role="status"
      aria-live="polite"
      className="pointer-events-none fixed inset-x-0 top-14 z-50 flex flex-col items-center gap-2 px-4"
      data-testid="toasts"
    >
      {shown.map((toast) => (
        <div
          key={toast.id}
          className={clsx(
            'appear pointer-events-auto flex items-center gap-3 rounded-xl border bg-raised py-2 pr-2 pl-4 text-sm shadow-float',
            toast.tone === 'error' && 'border-danger/40 text-danger',
          )}
        >
          <span className="py-1 pr-2">{toast.text}</span>
          {toast.action && (
            <Button className="h-7 px-2.5" onClick={toast.action.run}>
              {toast.action.label}
            </Button>
          )}
        </div>
      ))}
    </div>
  );
}
