/** The camera: the user sees the picture before it is sent, and nothing is sent without a press. */
import { Camera, Check, RotateCcw } from 'lucide-react';
import { useEffect, useRef, useState } from 'react';

import { useTranslate } from '../lib/i18n';
import { Button } from '../ui/button';
import { Dialog } from '../ui/dialog';
import type { Photo, PhotoRequest } from './photo-request';

/** Enough for a model to see with, and small enough to travel in a message. */
const MAX_WIDTH = 1024;
const QUALITY = 0.82;

export default function PhotoDialog({ request }: { request: PhotoRequest }) {
  const t = useTranslate();
  const video = useRef<HTMLVideoElement>(null);
  const [photo, setPhoto] = useState<Photo>();
  const [problem, setProblem] = useState<string>();
  const [isReady, setReady] = useState(false);

  useEffect(() => {
    let stream: MediaStream | undefined;
    let closed = false;
    const constraints = { video: { facingMode: 'user', width: { ideal: 1280 } } };
    const open = navigator.mediaDevices
      ? navigator.mediaDevices.getUserMedia(constraints)
      : Promise.reject(new Error('this browser does not offer a camera here'));
    open.then(
      (opened) => {
        stream = opened;
        if (closed) opened.getTracks().forEach((track) => track.stop());
        else if (video.current) video.current.srcObject = opened;
      },
      (reason: Error) => setProblem(reason.message || reason.name),
    );
    return () => {
      closed = true;
      stream?.getTracks().forEach((track) => track.stop());
    };
  }, []);

  const shoot = () => video.current && setPhoto(capture(video.current));
  const cancel = () =>
    request.reject(new Error(problem === undefined ? t('photoRefused') : t('cameraMissing', { reason: problem })));

  return (
    <Dialog title={t('takePhoto')} description={t('photoAsk')} onClose={cancel}>
      <div className="overflow-hidden rounded-xl bg-black" data-testid="photo-dialog">
        {problem !== undefined && (
          <p className="p-6 text-center text-sm text-white" role="alert">
            {t('cameraMissing', { reason: problem })}
          </p>
        )}
        {photo && <img src={photo.image} alt={t('picture')} className="w-full" data-testid="photo-preview" />}
        <video
          ref={video}
          autoPlay
          playsInline
          muted
          onPlaying={() => setReady(true)}
          className={photo !== undefined || problem !== undefined ? 'hidden' : 'w-full'}
        />
      </div>
      <div className="mt-4 flex justify-end gap-2">
        {photo ? (
          <>
            <Button onClick={() => setPhoto(undefined)}>
              <RotateCcw className="size-4" /> {t('shootAgain')}
            </Button>
            <Button look="primary" onClick={() => request.resolve(photo)} data-testid="photo-use">
              <Check className="size-4" /> {t('usePhoto')}
            </Button>
          </>
        ) : (
          <>
            <Button onClick={cancel}>{t('cancel')}</Button>
            <Button look="primary" disabled={!isReady} onClick={shoot} data-testid="photo-shoot">
              <Camera className="size-4" /> {t('shoot')}
            </Button>
          </>
        )}
      </div>
    </Dialog>
  );
}

function capture(video: HTMLVideoElement): Photo {
  const scale = Math.min(1, MAX_WIDTH / video.videoWidth);
  const canvas = document.createElement('canvas');
  canvas.width = Math.round(video.videoWidth * scale);
  canvas.height = Math.round(video.videoHeight * scale);
  canvas.getContext('2d')?.drawImage(video, 0, 0, canvas.width, canvas.height);
  const mediaType = 'image/jpeg';
  return { image: canvas.toDataURL(mediaType, QUALITY), mediaType, width: canvas.width, height: canvas.height };
}
