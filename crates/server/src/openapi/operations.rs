//! What each endpoint does, in one file for each file of handlers in `transport/`.

pub mod agents;
pub mod budget;
pub mod chat;
pub mod chats;
pub mod compat;
pub mod credentials;
pub mod files;
pub mod login;
pub mod page;
pub mod sockets;
pub mod users;
