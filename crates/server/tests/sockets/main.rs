//! The WebSocket endpoints of a real bridge, reached by a client that writes every byte itself.
//!
//! | module | holds |
//! |---|---|
//! | `handshake` | keys, tickets, origins, limits, and what is no handshake |
//! | `wire` | the WebSocket protocol itself: fragments, control frames, closing, broken rules |
//! | `frames` | frames that cannot be understood |
//! | `scenarios` | `fixtures/scenarios` over `/live` |
//! | `live` | turns, tool results, interruption, take-over, coming back |
//! | `stock` | the frames of the AI SDK's own transport |
//! | `budget` | budgets that are used up, by writing and by speaking |
//! | `full` | chats that are as long as they may be, and chats that rest |
//! | `consent` | every way of answering an approval, clearly and not |
//! | `written_on` | answers that come with a newer message |
//! | `voice` | spoken conversations |
//! | `endings` | connections to the model that end, in every way at every moment of a call |
//! | `relay` | what ends them |
//! | `refusals` | live models that refuse or hang up |
//! | `renewal` | conversations that outlive their connections and the process |
//! | `drained` | a spoken conversation whose replica stops |
//! | `memory` | JSON that costs much more than its bytes, over every transport, in a process with little memory |
//! | `many` | fifty connections at once, and what is left of them |

#![cfg(feature = "demo")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    unreachable_pub
)]

use adk_bridge_testkit as support;
use adk_bridge_testkit::socket as client;

mod budget;
mod consent;
#[cfg(unix)]
mod drained;
mod endings;
mod frames;
mod full;
mod generations;
mod handshake;
mod live;
mod many;
mod memory;
mod refusals;
mod relay;
mod renewal;
mod scenarios;
mod stock;
mod voice;
mod wire;
mod written_on;
