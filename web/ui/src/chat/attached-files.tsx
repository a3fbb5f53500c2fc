/** The files that will go with the next message, with a preview of pictures. */
import { File as FileIcon, X } from 'lucide-react';

import { bytes } from '../lib/format';
import { useTranslate } from '../lib/i18n';
import { IconButton } from '../ui/button';

export interface Attached {
  file: File;
  /** Of pictures. */
  preview: string | undefined;
}

export function attach(files: readonly File[]): Attached[] {
  return files.map((file) => ({
    file,
    preview: file.type.startsWith('image/') ? URL.createObjectURL(file) : undefined,
  }));
}

export function release(files: readonly Attached[]): void {
  for (const { preview } of files) if (preview !== undefined) URL.revokeObjectURL(preview);
}

export function AttachedFiles({ files, onRemove }: { files: Attached[]; onRemove: (file: Attached) => void }) {
  const t = useTranslate();
  if (files.length === 0) return null;
  return (
    <ul className="flex flex-wrap gap-2 px-4 pt-4" data-testid="attached">
      {files.map((attached, index) => (
        <li key={index} className="relative">
          {attached.preview === undefined ? (
            <span className="flex h-16 max-w-56 items-center gap-2 rounded-xl border bg-muted px-3 pr-9 text-sm">
              <FileIcon className="size-4 shrink-0" aria-hidden />
              <span className="min-w-0">
                <span className="block truncate">{attached.file.name}</span>
                <span className="text-xs text-muted-foreground">{bytes(attached.file.size)}</span>
              </span>
            </span>
          ) : (
            <img src={attached.preview} alt={attached.file.name} className="h-16 w-20 rounded-xl border object-cover" />
          )}
          <IconButton
            size="small"
            look="outline"
            label={t('removeFile', { name: attached.file.name })}
            className="absolute -top-2 -right-2 size-6"
            round
            onClick={() => onRemove(attached)}
          >
            <X />
          </IconButton>
        </li>
      ))}
    </ul>
  );
}
