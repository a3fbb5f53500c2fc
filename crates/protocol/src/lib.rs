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
//! | [`metadata`], [`translate`] | event → chunks |
//! | [`history`] | messages → contents |
//! | [`reply`] | the state machine of one assistant message |
//! | [`driver`] | the one way to run it: feed an input, drain the effects in order |
//! | [`dialect`] | a reply as a client of each dialect sees it |
//!
//! Only `translate`, `metadata` and `history` know both vocabularies.

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
pub mod metadata;
pub mod outbox;
pub mod reply;
pub mod sdk;
pub mod time;
pub mod translate;
pub mod wire;
