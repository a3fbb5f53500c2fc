/** The React layer over the core. */

export { useBridgeChat, type BridgeChat, type UseBridgeChatOptions } from './use-bridge-chat.js';
