//! Requests that come to a replica which does not own their chat.
//!
//! | module | holds |
//! |---|---|
//! | `requests` | every endpoint of a chat at the wrong replica |
//! | `trouble` | owners that are gone, die, move or lie; clients that leave or do not read |
//! | `sockets` | WebSockets through a replica, and tickets of another one |
//! | `budget` | budgets that several replicas count together |
//! | `erased` | users and old chats, which are deleted by one replica for all |
//! | `forged` | requests that only say that a replica passes them on |
//! | `unserved` | chats that a replica owns, and has no task for |
//! | `processes` | an owner that is stopped, on a real database |
//! | `rig` | replicas in one process |

#![cfg(feature = "demo")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub,
    reason = "a test that cannot go on has failed"
)]

mod budget;
mod erased;
mod forged;
#[cfg(unix)]
mod processes;
mod requests;
mod rig;
mod sockets;
mod trouble;
mod unserved;
