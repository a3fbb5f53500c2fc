/** The framework-free part of the library. */

export type { AudioDeviceOptions } from './audio/audio-device.js';
export { AudioPlayer, type AudioPlayerOptions } from './audio/audio-player.js';
export { AudioRecorder, type AudioRecorderOptions } from './audio/audio-recorder.js';
export { CameraFrames, type CameraFramesOptions } from './audio/camera-frames.js';
export type { PlayerState } from './audio/player-core.js';
export { PushToTalk, type PushToTalkOptions } from './audio/push-to-talk.js';
export type { Gate, RecordedChunk } from './audio/recorder-core.js';
export type { SileroFiles } from './audio/silero-detector.js';
export { VoiceActivityDetector, type VoiceActivityOptions } from './audio/voice-activity-detector.js';
export {
  VoiceSession,
  type TalkMode,
  type VoiceConnection,
  type VoiceSessionOptions,
  type VoiceState,
} from './audio/voice-session.js';
export {
  BridgeError,
  fetchTicket,
  listAgents,
  loadMessages,
  sendToolOutput,
  stopTurn,
  type BridgeAddress,
  type AdkServer,
  type BridgeAgent,
  type Dialect,
  type HeadersSource,
} from './bridge-requests.js';
export {
  buildUseChatOptions,
  type BridgeChatInit,
  type BuildUseChatOptions,
  type LiveOptions,
  type SseOptions,
} from './build-use-chat-options.js';
export type { JournalStorage } from './call-journal.js';
export {
  ChunkLog,
  parseChunkLog,
  playChunkLog,
  type ChunkLogEntry,
  type PlayChunkLogOptions,
} from './chunk-log.js';
export {
  ClientTools,
  defineClientTools,
  type ClientToolContext,
  type ClientToolDefinition,
  type ClientToolFunction,
  type ClientToolsOptions,
  type ToolChat,
} from './client-tools.js';
export type { DeclaredTool, DeclaredTools } from './declared-tools.js';
export {
  authorize,
  sendCredential,
  type AuthorizationEnd,
  type AuthorizeOptions,
  type CredentialRequest,
  type GivenCredential,
} from './credentials.js';
export {
  DecisionSender,
  type DecidingChat,
  type DecisionSenderOptions,
  type UserDecision,
} from './decision-sender.js';
export { followServerTurns, type FollowingChat } from './live/follow-server-turns.js';
export type { AudioWire, Modality } from './live/frames.js';
export {
  LiveChatTransport,
  type LiveChatTransportOptions,
  type LiveEvents,
  type ModelAudio,
} from './live/live-chat-transport.js';
export type { ConnectionState } from './live/live-socket.js';
export { progressOf, type ToolProgress } from './tool-progress.js';
export { transcriptionOf, withTranscription, type SpokenMessage, type Transcription } from './live/transcription.js';
export type { SdkVersion } from './sdk-version.js';
export {
  createSendAutomaticallyWhen,
  sendAutomaticallyWhen,
  type CreateSendAutomaticallyWhenOptions,
  type SendAutomaticallyWhen,
  type SendAutomaticallyWhenOptions,
} from './send-automatically-when.js';
export { createSseChatTransport, type AgentChoice, type SseChatTransportOptions } from './sse-chat-transport.js';
export {
  CONFIRMATION_TOOL,
  CREDENTIAL_TOOL,
  type MessageLike,
  type PartLike,
  type ToolNames,
  type ToolPart,
} from './tool-parts.js';
export type {
  BridgeDataParts,
  BridgeMetadata,
  BridgeTools,
  BridgeUIMessage,
  BridgeUsage,
} from './ui-message.js';
export type { Observable } from './value.js';
