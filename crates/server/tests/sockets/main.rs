//! The WebSocket doors of a real bridge, reached by a client that writes every byte itself.
//!
//! | module | holds |
//! |---|---|
//! | `client` | the client |
//! | `handshake` | keys, tickets, origins, limits, and what is no handshake |
//! | `wire` | the WebSocket protocol itself: fragments, control frames, closing, broken rules |
//! | `frames` | frames that cannot be understood |
//! | `scenarios` | `fixtures/scenarios` over `/live` |
//! | `live` | turns, tool results, interruption, take-over, coming back |
//! | `stock` | the frames of the AI SDK's own transport |
//! | `voice` | spoken conversations |
//! | `endings` | connections to the model that end, in every way at every moment of a call |
//! | `relay` | what ends them |
//! | `renewal` | conversations that outlive their connections and the process |
//! | `many` | fifty connections at once, and what is left of them |

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub
)]

mod client;
mod endings;
mod frames;
mod handshake;
mod live;
mod many;
mod relay;
mod renewal;
mod scenarios;
mod stock;
#[path = "../support/mod.rs"]
mod support;
mod voice;
mod wire;
