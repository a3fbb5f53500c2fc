/** A photo that the agent has asked for: the dialog shows it, the user gives one or closes it. */
import { createStore } from '../lib/store';

export interface Photo {
  image: string;
  mediaType: string;
  width: number;
  height: number;
}

export interface PhotoRequest {
  resolve: (photo: Photo) => void;
  reject: (reason: Error) => void;
}

/** The oldest is answered first. */
export const photoRequests = createStore<PhotoRequest[]>([]);

export function askForPhoto(signal: AbortSignal): Promise<Photo> {
  return new Promise((resolve, reject) => {
    const remove = () => photoRequests.set((waiting) => waiting.filter((other) => other !== request));
    const request: PhotoRequest = {
      resolve: (photo) => (remove(), resolve(photo)),
      reject: (reason) => (remove(), reject(reason)),
    };
    signal.addEventListener('abort', remove, { once: true });
    photoRequests.set((waiting) => [...waiting, request]);
  });
}
