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
//!                          └──▶ history ──▶ agent         what the model gets next
//! ```
//!
//! # Start here
//!
//! | to | take |
//! |---|---|
//! | turn a run of an agent into the stream of a front end, with its tool calls and approvals | a [`Driver`] of a [`Reply`], and feed it [`Event`]s |
//! | read and write what a front end receives | [`Chunk`], [`wire::sse`] |
//! | build the message that chunks amount to, as `useChat` does | [`Fold`], which makes a [`Message`] |
//! | show a stored reply to a client | [`Dialect`] |
//! | tell an agent what was said | [`history::contents`] |
//!
//! ```
//! use adk_bridge_protocol::wire::sse::SseParser;
//! use adk_bridge_protocol::{Chunk, Fold, Sdk, history};
//!
//! let stream = r#"data: {"type":"start","messageId":"m1"}
//!
//! data: {"type":"text-start","id":"t0"}
//!
//! data: {"type":"text-delta","id":"t0","delta":"Hello"}
//!
//! data: {"type":"text-end","id":"t0"}
//!
//! data: {"type":"finish"}
//!
//! data: [DONE]
//!
//! "#;
//! let (mut parser, mut fold) = (SseParser::default(), Fold::new(Sdk::NEWEST, "m1"));
//! let mut rest = stream.as_bytes();
//! while let Some(event) = parser.next(&mut rest)? {
//!     if event.data != "[DONE]" {
//!         fold.apply(&Chunk::parse(event.data)?)?;
//!     }
//! }
//! let message = fold.into_message();
//! let contents = history::contents([&message]);
//! assert_eq!(contents[0].role.as_deref(), Some("model"));
//! assert_eq!(contents[0].parts[0].text.as_deref(), Some("Hello"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! The other direction, from an agent's events to such a stream, is the example of [`driver`]; that of [`reply`] has an approval.
//!
//! # The modules
//!
//! A module uses only modules above it in this table:
//!
//! | module | knows |
//! |---|---|
//! | [`base64`](mod@base64), [`audio`] | both alphabets; PCM, WAV |
//! | [`id`], [`time`] | the names of things; moments |
//! | [`sdk`] | the versions of the AI SDK, and what each of them knows |
//! | [`wire::json`], [`json_text`] | JSON as browsers write it; JSON that is kept as text |
//! | [`chunk`] | what a front end receives |
//! | [`message`] | UIMessage: parse, fold chunks into it, replay it as chunks |
//! | [`event`], [`args`] | what an ADK agent emits and accepts |
//! | [`credentials`] | what is withheld of it: secrets of logins |
//! | [`form`] | what fits the form that a user is asked to fill in |
//! | [`wire`] | SSE, `/live` and stock v7 WebSocket frames |
//! | [`approval`], [`calls`] | a human's decision; a tool call |
//! | [`outbox`] | the effects of a reply, and its encoded frames |
//! | [`metadata`](self), [`translate`](self) | event → chunks |
//! | [`history`] | messages → contents |
//! | [`reply`] | the state machine of one assistant message |
//! | [`driver`] | the one way to run it: feed an input, drain the effects in order |
//! | [`dialect`] | a reply as a client of each dialect sees it |
//!
//! Only `translate`, `metadata` and `history` know both vocabularies. What is left out of this documentation serves the bridge's own
//! store and commands, and nobody else.

#![warn(missing_docs)]

pub mod approval;
pub mod args;
pub mod audio;
pub mod base64;
pub mod calls;
pub mod chunk;
pub mod credentials;
pub mod dialect;
pub mod driver;
pub mod event;
pub mod form;
pub mod history;
pub mod id;
pub mod json_text;
pub mod message;
mod metadata;
pub mod outbox;
pub mod reply;
pub mod sdk;
pub mod time;
mod translate;
pub mod wire;

pub use chunk::Chunk;
pub use dialect::Dialect;
pub use driver::Driver;
pub use event::Event;
pub use message::Message;
pub use message::fold::Fold;
pub use reply::Reply;
pub use sdk::Sdk;
