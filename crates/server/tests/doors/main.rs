//! The doors of a real bridge, in a process of its own, reached as any client reaches them.
//!
//! | module | holds |
//! |---|---|
//! | `plain` | what every door answers |
//! | `bad_input` | what is refused, with which code |
//! | `forms` | the forms in which requests are taken |
//! | `mutated` | requests gone wrong in every way that a seeded generator finds |
//! | `security` | keys, users, origins, hosts, and what is refused at start |
//! | `late` | answers that ride along with a later message |
//! | `readers` | clients that are slow, absent, many, or leave |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod bad_input;
mod forms;
mod late;
mod mutated;
mod plain;
mod readers;
mod security;
#[path = "../support/mod.rs"]
mod support;
