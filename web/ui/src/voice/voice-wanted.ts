/** Whether the user wants to speak. Not kept: a page never opens the microphone by itself. */
import { createStore } from '../lib/store';

export const voiceWanted = createStore(false);
