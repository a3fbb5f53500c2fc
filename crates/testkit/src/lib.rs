//! What the tests of several crates share.
//!
//! | module | holds |
//! |---|---|
//! | [`random`] | random numbers that are the same everywhere |
//! | [`fixtures`] | where the fixtures are |
//! | [`conversations`] | conversations with every kind of part that a model can be sent |
//! | [`scenarios`] | conversations as data, one for each row of their matrices |
//! | [`sim`] | a simulation of a reply, its store, an agent and a client, without I/O |
//!
//! With the feature `server`, the real binary, tested from outside:
//!
//! | module | holds |
//! |---|---|
//! | `process` | starts it, and reads what the operating system knows about it |
//! | `bridge` | a bridge with its own directory, and requests that may be as invalid as a test needs |
//! | `http`, `socket` | HTTP and WebSockets as bytes |
//! | `postgres` | a PostgreSQL server and pgbouncer |
//! | `fleet` | several bridges on one PostgreSQL |
//! | `served` | a bridge in a directory that the test keeps, with an ordinary client |
//! | `stand_in` | a stand-in for an ADK server that answers as a test needs |
//! | `users` | two users with their keys |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[cfg(feature = "server")]
pub mod bridge;
pub mod conversations;
pub mod fixtures;
#[cfg(feature = "server")]
pub mod fleet;
#[cfg(feature = "server")]
pub mod http;
#[cfg(all(feature = "server", unix))]
pub mod postgres;
#[cfg(feature = "server")]
pub mod process;
pub mod random;
pub mod scenarios;
#[cfg(feature = "server")]
pub mod served;
pub mod sim;
#[cfg(feature = "server")]
pub mod socket;
#[cfg(feature = "server")]
pub mod stand_in;
#[cfg(feature = "server")]
pub mod users;

#[cfg(feature = "server")]
pub use bridge::{
    Bridge, JSON, asking, command, command_without_address, folded, refused, refused_in, text_of,
    types, within, words,
};
pub use random::Random;
