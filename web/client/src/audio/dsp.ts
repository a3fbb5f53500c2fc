/** The arithmetic of sound that worklets and recordings are made with, for whoever works with samples directly. */

export { floatToPcm16, levelOf, pcm16ToFloat, wavOf } from './pcm.js';
export { Resampler } from './resampler.js';
