/** Pictures, sounds and files of a message. */
import { Download, File as FileIcon } from 'lucide-react';
import { useEffect, useState } from 'react';

import { apiKey, authorizedFetch, localUrl } from '../lib/api';
import { useTranslate } from '../lib/i18n';
import { Dialog } from '../ui/dialog';
import { Recording } from './recording';

interface Media {
  url: string;
  mediaType: string;
  filename?: string | undefined;
}

export function MediaPart({ url, mediaType, filename }: Media) {
  const source = useSource(url);
  if (source === undefined) return null;
  if (mediaType.startsWith('image/')) return <Image source={source} name={filename} />;
  if (mediaType.startsWith('audio/')) return <Recording source={source} />;
  return (
    <a
      href={source}
      download={filename ?? true}
      className="my-1 inline-flex max-w-full items-center gap-2 rounded-xl border bg-raised px-3 py-2 text-sm hover:bg-muted"
    >
      <FileIcon className="size-4 shrink-0 text-muted-foreground" aria-hidden />
      <span className="truncate">{filename ?? mediaType}</span>
    </a>
  );
}

function Image({ source, name }: { source: string; name: string | undefined }) {
  const t = useTranslate();
  const [isLarge, setLarge] = useState(false);
  const alt = name ?? t('picture');
  return (
    <>
      <button
        type="button"
        aria-label={`${t('enlarge')}: ${alt}`}
        onClick={() => setLarge(true)}
        className="my-1 block overflow-hidden rounded-xl border transition-opacity hover:opacity-90"
        data-testid="picture"
      >
        <img src={source} alt={alt} className="max-h-72 max-w-full object-contain" />
      </button>
      {isLarge && (
        <Dialog wide title={alt} onClose={() => setLarge(false)}>
          <img src={source} alt={alt} className="mx-auto max-h-[70dvh] rounded-lg" data-testid="picture-large" />
          <div className="mt-3 text-right">
            <a
              href={source}
              download={name ?? 'picture'}
              className="inline-flex items-center gap-1.5 text-sm text-primary hover:underline"
            >
              <Download className="size-4" aria-hidden /> {t('download')}
            </a>
          </div>
        </Dialog>
      )}
    </>
  );
}

/** An address that a tag can load: with a key set, files are fetched here, because tags send no header. */
function useSource(url: string): string | undefined {
  const isPlain = apiKey.get() === '' || !url.startsWith('/api/');
  const [made, setMade] = useState<string>();
  useEffect(() => {
    if (isPlain) return;
    let address: string | undefined;
    let isGone = false;
    void authorizedFetch(localUrl(url))
      .then((response) => response.blob())
      .then((blob) => {
        if (isGone) return;
        address = URL.createObjectURL(blob);
        setMade(address);
      });
    return () => {
      isGone = true;
      if (address !== undefined) URL.revokeObjectURL(address);
    };
  }, [url, isPlain]);
  return isPlain ? localUrl(url) : made;
}
