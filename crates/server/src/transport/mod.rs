//! HTTP and WebSockets: handlers read requests, ask the chat, and write answers.
//!
//! None of them names an agent or the store.

pub mod access;
pub mod adk_stream_protocol;
pub mod agents;
pub mod ai_sdk_ws;
pub(crate) mod base;
pub mod body;
pub mod budget;
pub mod chat;
pub mod chats;
pub mod cors;
pub mod credentials;
pub mod error;
pub mod error_body;
pub mod files;
pub mod forward;
pub mod handshake;
mod incoming;
pub mod live;
pub mod login;
pub mod page;
pub(crate) mod percent;
pub mod schemas;
mod socket;
mod state;
mod text;
pub mod users;

pub use state::App;
