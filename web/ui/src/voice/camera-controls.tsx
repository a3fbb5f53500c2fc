/** Lets the agent see the camera or the screen, with a preview of what it sees. */
import { CameraFrames, type LiveChatTransport } from '@adk-bridge/client';
import { MonitorUp, Video } from 'lucide-react';
import { useEffect, useRef, useState } from 'react';

import { useTranslate } from '../lib/i18n';
import { toast } from '../lib/toasts';
import { IconButton } from '../ui/button';

type Source = 'camera' | 'screen';

export function CameraControls({ live }: { live: LiveChatTransport }) {
  const t = useTranslate();
  const [source, setSource] = useState<Source>();
  const [stream, setStream] = useState<MediaStream>();
  const frames = useRef<CameraFrames>(undefined);
  useEffect(() => () => frames.current?.close(), []);

  const close = () => {
    frames.current?.close();
    frames.current = undefined;
    setSource(undefined);
    setStream(undefined);
  };

  const toggle = async (wanted: Source) => {
    close();
    if (wanted === source) return;
    const opened = new CameraFrames({
      source: wanted,
      onFrame: (jpeg) => live.sendPicture(jpeg),
      onEnded: close,
    });
    frames.current = opened;
    setSource(wanted);
    try {
      await opened.open();
      setStream(opened.stream);
    } catch (problem) {
      close();
      toast(t('cameraMissing', { reason: problem instanceof Error ? problem.message : '' }), { tone: 'error' });
    }
  };

  return (
    <>
      <IconButton
        label={t(source === 'camera' ? 'cameraOff' : 'camera')}
        aria-pressed={source === 'camera'}
        className={source === 'camera' ? 'bg-primary-soft text-primary' : ''}
        onClick={() => void toggle('camera')}
        data-testid="camera-toggle"
      >
        <Video />
      </IconButton>
      <IconButton
        label={t(source === 'screen' ? 'screenOff' : 'screen')}
        aria-pressed={source === 'screen'}
        className={source === 'screen' ? 'bg-primary-soft text-primary' : ''}
        onClick={() => void toggle('screen')}
        data-testid="screen-toggle"
      >
        <MonitorUp />
      </IconButton>
      {stream && <Preview stream={stream} label={t('pictureSent')} />}
    </>
  );
}

function Preview({ stream, label }: { stream: MediaStream; label: string }) {
  const video = useRef<HTMLVideoElement>(null);
  useEffect(() => {
    if (video.current) video.current.srcObject = stream;
  }, [stream]);
  return (
    <video
      ref={video}
      autoPlay
      muted
      playsInline
      aria-label={label}
      title={label}
      data-testid="camera-preview"
      className="order-last mt-2 max-h-40 w-full rounded-xl bg-black object-contain"
    />
  );
}
