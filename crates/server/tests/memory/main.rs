//! What clients can make a real bridge hold: each attack on its memory, against a process of 2 GB.
//!
//! Alice attacks. The process lives, Bob is served meanwhile, and what was held is given back.
//!
//! | module | holds |
//! |---|---|
//! | `rig` | the bounded process, and what is measured |
//! | `answers` | answers that nobody reads, or that grow by files which are named again and again |
//! | `unread` | answers that nobody reads, over every endpoint |
//! | `requests` | bodies and frames without an end, and requests with very many files |
//! | `histories` | chats that are long, many of them at once |
//! | `sent_files` | files for an agent that does not read, many turns at once |
//! | `idle` | live connections that do nothing |
//! | `values` | JSON of very many small values |
//! | `audit` | an audit with very many rows |

#![cfg(feature = "demo")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub
)]

use adk_bridge_testkit as support;
use adk_bridge_testkit::socket as client;

mod answers;
mod audit;
mod histories;
mod idle;
mod requests;
mod rig;
mod sent_files;
mod unread;
mod values;
