/** A small menu under a button. */
import { ExternalLink } from 'lucide-react';
import { DropdownMenu as Radix } from 'radix-ui';
import type { ReactNode } from 'react';

const ITEM =
  'flex cursor-pointer items-center gap-2.5 rounded-md px-2.5 py-1.5 text-sm outline-none data-[highlighted]:bg-accent [&_svg]:size-4';

export function Menu({ trigger, children }: { trigger: ReactNode; children: ReactNode }) {
  return (
    <Radix.Root modal={false}>
      <Radix.Trigger asChild>{trigger}</Radix.Trigger>
      <Radix.Portal>
        <Radix.Content
          align="end"
          sideOffset={4}
          className="scroll-quiet appear z-50 max-h-(--radix-dropdown-menu-content-available-height) max-w-[calc(100vw-1rem)] min-w-44 overflow-y-auto rounded-xl border bg-raised p-1 text-foreground shadow-float"
        >
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

export function MenuItem({
  icon,
  danger = false,
  onSelect,
  children,
}: {
  icon?: ReactNode;
  danger?: boolean;
  onSelect: () => void;
  children: ReactNode;
}) {
  return (
    <Radix.Item className={`${ITEM} ${danger ? 'text-danger' : ''}`} onSelect={onSelect}>
      {icon}
      {children}
    </Radix.Item>
  );
}

/** Links that open beside the page, which goes on meanwhile. */
export function MenuLinks({ label, links }: { label: string; links: readonly (readonly [string, string])[] }) {
  return (
    <Radix.Group>
      <Radix.Label className="px-2.5 pt-2 pb-1 text-xs font-medium text-muted-foreground">{label}</Radix.Label>
      {links.map(([href, text]) => (
        <Radix.Item key={href} asChild className={`${ITEM} justify-between`}>
          <a href={href} target="_blank" rel="noopener">
            {text}
            <ExternalLink className="text-muted-foreground" />
          </a>
        </Radix.Item>
      ))}
    </Radix.Group>
  );
}

export function MenuChoice<T extends string>({
  label,
  value,
  options,
  stays = false,
  onChange,
}: {
  label: string;
  value: T;
  options: readonly (readonly [T, string])[];
  /** Whether the menu is still there after a choice. */
  stays?: boolean;
  onChange: (value: T) => void;
}) {
  return (
    <Radix.Group>
      <Radix.Label className="px-2.5 pt-2 pb-1 text-xs font-medium text-muted-foreground">{label}</Radix.Label>
      <Radix.RadioGroup value={value} onValueChange={(next) => onChange(next as T)}>
        {options.map(([option, text]) => (
          <Radix.RadioItem
            key={option}
            value={option}
            className={`${ITEM} justify-between`}
            onSelect={(event) => stays && event.preventDefault()}
          >
            {text}
            <Radix.ItemIndicator className="text-primary">✓</Radix.ItemIndicator>
          </Radix.RadioItem>
        ))}
      </Radix.RadioGroup>
    </Radix.Group>
  );
}
