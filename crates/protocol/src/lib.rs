//! Both ends of the bridge as pure data and state machines; it contains no sockets, no clock and no randomness.
//!
//! ```text
//!   agent ──▶ event ──▶ translate ──▶ chunk ──▶ wire ──▶ front end
//!                          │  ▲
//!                          ▼  │
//!                         reply ── calls, approval        what becomes of tool calls
//!                          │  │
//!                          │  └─▶ outbox                  what is to be done: commit, send, run, ask
//!                          ▼
//!                        message ──▶ dialect ──▶ readers  the stored form, and how each client sees it
//!                          │
//!                          └──▶ history ──▶ agent         what the model is told next
//! ```
//!
//! | module | knows |
//! |---|---|
//! | [`chunk`] | what a front end receives |
//! | [`message`] | UIMessage: parse, fold chunks into it, replay it as chunks |
//! | [`event`], [`args`] | what an ADK agent emits and accepts |
//! | [`translate`], [`metadata`] | event → chunks |
//! | [`history`] | messages → contents |
//! | [`approval`], [`calls`] | a human's decision; a tool call |
//! | [`reply`], [`outbox`] | the state machine of one assistant message, and its effects |
//! | [`dialect`] | a reply as a client of either dialect sees it |
//! | [`wire`] | SSE, `/live` and stock v7 WebSocket frames |
//! | [`audio`], [`base64`](mod@base64) | PCM, WAV; both alphabets |
//!
//! Only `translate` and `history` know both vocabularies.

pub mod approval;
pub mod args;
pub mod audio;
pub mod base64;
pub mod calls;
pub mod chunk;
pub mod dialect;
pub mod event;
pub mod history;
pub mod message;
pub mod metadata;
pub mod outbox;
pub mod reply;
pub mod translate;
pub mod wire;
