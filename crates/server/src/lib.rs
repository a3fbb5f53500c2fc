//! Everything of the bridge that waits: doors, chats, what is stored, and the commands of the binary.
//!
//! ```text
//!   router ──▶ transport ──▶ chat ──┬──▶ agents
//!     │                             ├──▶ tools
//!     └── auth                      └──▶ store, files
//! ```
//!
//! | module | knows |
//! |---|---|
//! | [`router`] | all doors on one page |
//! | [`connections`] | how clients are connected |
//! | [`auth`] | who asks, and from where they may |
//! | [`transport`] | requests in, answers out |
//! | [`chat`] | one task per chat: the reply, the agent's run, tools, readers |
//! | [`sockets`] | open WebSockets, and the tickets that open them |
//! | [`store`] | what survives a restart |
//! | [`files`] | binary content beside the store |
//! | [`metrics`], [`telemetry`] | what is counted, what is logged |
//! | [`config`], [`error`] | what can be set; what is refused |
//! | [`serve`], [`translate`], [`fake_gemini`] | the commands |
//! | [`allocator`] | how freed memory goes back |
//! | `failpoint` | where tests let the process die |

pub mod allocator;
pub mod auth;
pub mod chat;
pub mod config;
pub mod connections;
pub mod error;
mod failpoint;
pub mod fake_gemini;
pub mod files;
pub mod metrics;
pub mod router;
pub mod serve;
pub mod sockets;
pub mod store;
pub mod telemetry;
pub mod translate;
pub mod transport;
