//! A real bridge before a stand-in for an ADK server, or for Gemini, that sends whatever a test wants.
//!
//! | module | holds |
//! |---|---|
//! | `stand_in` | the server, as bytes: an answer may be as wrong as a test wants |
//! | `hostile` | recordings gone wrong in every way that a seeded generator finds, and answers that are none |
//! | `gemini` | the same of Gemini: answers that are none |
//! | `requests` | what the bridge sends, and what it does not |

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod gemini;
mod hostile;
mod requests;
mod stand_in;
#[path = "../support/mod.rs"]
mod support;
