/** Takes pictures of the camera or the screen, about one a second, as JPEG. */

import { Opening, type OnClose } from './opening.js';

/** Options of {@link CameraFrames}. */
export interface CameraFramesOptions {
  /** Takes each picture. */
  onFrame: (jpeg: Uint8Array) => void;
  /** What is shown; the camera if left out. */
  source?: 'camera' | 'screen' | undefined;
  deviceId?: string | undefined;
  /** Between two pictures; a second if left out, which is what models look at. */
  intervalMs?: number | undefined;
  /** The longer side at most; 640 if left out. */
  maxPixels?: number | undefined;
  /** Of the JPEG, 0 to 1; 0.7 if left out. */
  quality?: number | undefined;
  /** The user or the system has ended the picture. */
  onEnded?: (() => void) | undefined;
}

/** A camera or a shared screen as a row of pictures. */
export class CameraFrames {
  readonly #options: CameraFramesOptions;
  readonly #opening = new Opening();
  #stream: MediaStream | undefined;
  #isEncoding = false;

  constructor(options: CameraFramesOptions) {
    this.#options = options;
  }

  /** What a `<video>` can show meanwhile. */
  get stream(): MediaStream | undefined {
    return this.#stream;
  }

  /** Asks for the camera or the screen, and begins. Call it in a click or key press. */
  open(): Promise<void> {
    return this.#opening.open((onClose, signal) => this.#open(onClose, signal));
  }

  /** Ends the pictures and lets go of the camera. */
  close(): void {
    this.#opening.close();
  }

  async #open(onClose: OnClose, signal: AbortSignal): Promise<void> {
    const stream = await this.#ask();
    onClose(() => stream.getTracks().forEach((track) => track.stop()));
    signal.throwIfAborted();
    this.#stream = stream;
    onClose(() => (this.#stream = undefined));
    stream.getVideoTracks()[0]?.addEventListener('ended', () => {
      this.close();
      this.#options.onEnded?.();
    });
    const video = Object.assign(document.createElement('video'), { muted: true, playsInline: true, srcObject: stream });
    await video.play();
    const canvas = document.createElement('canvas');
    const take = () => this.#take(video, canvas, signal);
    const timer = setInterval(() => void take(), this.#options.intervalMs ?? 1000);
    onClose(() => clearInterval(timer));
    await take();
  }

  #ask(): Promise<MediaStream> {
    const { source, deviceId, maxPixels = 640 } = this.#options;
    if (source === 'screen') return navigator.mediaDevices.getDisplayMedia({ video: true });
    const size = { width: { ideal: maxPixels }, height: { ideal: (maxPixels * 3) / 4 } };
    const video = deviceId === undefined ? size : { ...size, deviceId: { exact: deviceId } };
    return navigator.mediaDevices.getUserMedia({ video });
  }

  async #take(video: HTMLVideoElement, canvas: HTMLCanvasElement, signal: AbortSignal): Promise<void> {
    const { maxPixels = 640, quality = 0.7, onFrame } = this.#options;
    const { videoWidth, videoHeight } = video;
    // A slow machine leaves pictures out.
    if (this.#isEncoding || videoWidth === 0) return;
    this.#isEncoding = true;
    try {
      const scale = Math.min(1, maxPixels / Math.max(videoWidth, videoHeight));
      canvas.width = Math.round(videoWidth * scale);
      canvas.height = Math.round(videoHeight * scale);
      canvas.getContext('2d')?.drawImage(video, 0, 0, canvas.width, canvas.height);
      const blob = await new Promise<Blob | null>((resolve) => canvas.toBlob(resolve, 'image/jpeg', quality));
      const bytes = await blob?.arrayBuffer();
      if (bytes !== undefined && !signal.aborted) onFrame(new Uint8Array(bytes));
    } finally {
      this.#isEncoding = false;
    }
  }
}
