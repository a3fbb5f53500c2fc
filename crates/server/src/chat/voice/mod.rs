//! The voice conversation of a chat: the connection to a live agent, and the decisions about it.
//!
//! ```text
//!   live client ── LiveInput ──▶ task/live.rs ──┐                            ┌─▶ VoiceSession ──▶ connection
//!   reply ─────── asks, cancels ────────────────┼─▶ VoiceMachine ── effects ─┤   (task/voice.rs performs them)
//!   connection ── VoiceEvent ──▶ task/voice.rs ─┘         ▲                  └─▶ a turn ────────▶ reply
//!                                                         └──── what came of them ────┘
//! ```
//!
//! | file | what it is for |
//! |---|---|
//! | `machine.rs`, `machine/` | every decision, without I/O |
//! | `session.rs` | the machine with its connection: what is sent to the agent, and what it sends |
//! | `utterance.rs`, `recording.rs` | what the user says in a turn, as words; both sides, as sound |
//!
//! A chat has a [`VoiceSession`] once its live client has sent speech, a picture or a modality. It belongs to the chat,
//! not to a socket. The agent's messages are fed to the reply like the events of a run, so tools and approvals work as
//! in any other turn.

pub(super) mod machine;
pub(super) mod recording;
pub(super) mod session;
pub(super) mod utterance;

pub(super) use machine::VoiceInput;
pub(super) use session::{VoiceSession, next_event};
