/** Buttons: with words, or an icon with a label that screen readers and the mouse see. */
import clsx from 'clsx';
import type { ComponentProps, ReactNode } from 'react';

type Look = 'primary' | 'outline' | 'ghost' | 'danger';

const LOOKS: Record<Look, string> = {
  primary: 'bg-primary text-primary-foreground hover:opacity-90',
  outline: 'border border-input bg-raised hover:bg-muted',
  ghost: 'text-muted-foreground hover:bg-accent hover:text-foreground',
  danger: 'border border-input bg-raised text-danger hover:bg-danger-soft',
};

export function Button({ look = 'outline', className, ...rest }: ComponentProps<'button'> & { look?: Look }) {
  return (
    <button
      type="button"
      className={clsx(
        'inline-flex h-9 items-center justify-center gap-1.5 rounded-lg px-3.5 text-sm font-medium whitespace-nowrap transition-colors disabled:opacity-50',
        LOOKS[look],
        className,
      )}
      {...rest}
    />
  );
}

export function IconButton({
  label,
  look = 'ghost',
  size = 'medium',
  round = false,
  className,
  children,
  ...rest
}: Omit<ComponentProps<'button'>, 'aria-label'> & {
  label: string;
  look?: Look;
  size?: 'small' | 'medium';
  round?: boolean;
  children: ReactNode;
}) {
  return (
    <button
      type="button"
      aria-label={label}
      title={label}
      className={clsx(
        'inline-flex shrink-0 items-center justify-center transition-colors disabled:opacity-40',
        round ? 'rounded-full' : 'rounded-lg',
        size === 'small' ? 'size-7 [&_svg]:size-[15px]' : 'size-9 [&_svg]:size-[18px]',
        LOOKS[look],
        className,
      )}
      {...rest}
    >
      {children}
    </button>
  );
}
