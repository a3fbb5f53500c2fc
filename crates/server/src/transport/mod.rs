//! Doors: they read requests, ask the chat, and write answers.
//!
//! None of them names an agent or the store.

pub mod ai_sdk_ws;
pub mod body;
pub mod chat;
pub mod chats;
pub mod files;
pub mod handshake;
pub mod live;
pub mod page;
mod socket;
