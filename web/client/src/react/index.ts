/** The React layer over the core. */

export { useBridgeChat, type BridgeChat, type UseBridgeChatOptions } from './use-bridge-chat.js';
export { useObservable } from './use-observable.js';
export { useVoice, type UseVoiceOptions, type Voice } from './use-voice.js';
