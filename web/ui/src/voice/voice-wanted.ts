/** Whether the user wants to speak. Not stored: a page never opens the microphone on its own. */
import { createStore } from '../lib/store';

export const voiceWanted = createStore(false);
