/** A dialog over the page, with a title, closed by Escape or a click outside of it. */
import clsx from 'clsx';
import { X } from 'lucide-react';
import { Dialog as Radix } from 'radix-ui';
import type { ReactNode } from 'react';

import { isComposing } from '../lib/composing';
import { useTranslate } from '../lib/i18n';
import { IconButton } from './button';

interface Props {
  title: string;
  description?: string;
  /** Left out where the page cannot go on without an answer. */
  onClose?: () => void;
  wide?: boolean;
  children: ReactNode;
}

export function Dialog({ title, description, onClose, wide = false, children }: Props) {
  const t = useTranslate();
  return (
    <Radix.Root open onOpenChange={(open) => !open && onClose?.()}>
      <Radix.Portal>
        {/* Not Radix' own overlay, which needs an inline style that the page's policy forbids. */}
        <div className="fixed inset-0 z-40 bg-black/40 backdrop-blur-[1px]" aria-hidden />
        <Radix.Content
          className={clsx(
            'appear fixed top-1/2 left-1/2 z-50 flex max-h-[90dvh] w-[calc(100vw-2rem)] -translate-x-1/2 -translate-y-1/2 flex-col rounded-2xl border bg-raised p-5 shadow-float',
            wide ? 'max-w-4xl' : 'max-w-md',
          )}
          onEscapeKeyDown={(event) => isComposing(event) && event.preventDefault()}
          {...(description === undefined && { 'aria-describedby': undefined })}
        >
          <div className="mb-3 flex items-start justify-between gap-4">
            <div>
              <Radix.Title className="text-base font-semibold">{title}</Radix.Title>
              {description !== undefined && (
                <Radix.Description className="mt-1 text-sm text-muted-foreground">{description}</Radix.Description>
              )}
            </div>
            {onClose !== undefined && (
              <IconButton label={t('close')} onClick={onClose} className="-mt-1.5 -mr-2">
                <X />
              </IconButton>
            )}
          </div>
          <div className="scroll-quiet min-h-0 overflow-y-auto">{children}</div>
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}
