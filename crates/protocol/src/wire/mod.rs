//! The bytes between the bridge and its two sides: SSE, the frames of `/live`, and AI SDK v7's own frames.

pub mod ai_sdk_ws;
#[doc(hidden)]
pub mod chunk_log;
pub mod frame;
pub mod json;
mod lines;
pub mod live;
#[doc(hidden)]
pub mod recording;
pub mod sse;

pub use frame::{FrameError, MAX_TEXT_FRAME_BYTES, Trigger};
pub use lines::{JsonLine, LineReader};
