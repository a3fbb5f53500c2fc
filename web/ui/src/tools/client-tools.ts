/** The tools that this page runs for the agent: where it is, music, a photo. */
import { defineClientTools } from '@adk-bridge/client';

import { translate } from '../lib/i18n';
import { playTrack } from './music';
import { askForPhoto } from './photo-request';

/** A phone that has to look for satellites takes a while. */
const LOCATION_TIMEOUT_MS = 30_000;
/** Where the user was a minute ago is where the user is. */
const LOCATION_AGE_MS = 60_000;

export const clientTools = defineClientTools({
  get_location: getLocation,
  change_bgm: (input: { track_name?: unknown }) => playTrack(String(input.track_name ?? '')),
  take_photo: (_input: unknown, { signal }) => askForPhoto(signal),
});

function getLocation(): Promise<unknown> {
  return new Promise((resolve, reject) => {
    navigator.geolocation.getCurrentPosition(
      ({ coords }) => resolve({ latitude: coords.latitude, longitude: coords.longitude, accuracy: Math.round(coords.accuracy) }),
      (problem) => {
        const refused = problem.code === problem.PERMISSION_DENIED;
        reject(new Error(translate(refused ? 'locationRefused' : 'locationUnknown')));
      },
      { timeout: LOCATION_TIMEOUT_MS, maximumAge: LOCATION_AGE_MS },
    );
  });
}
