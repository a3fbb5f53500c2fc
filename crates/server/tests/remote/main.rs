//! A real bridge before a stand-in for an ADK server, or for a model, that sends whatever a test wants.
//!
//! | module | holds |
//! |---|---|
//! | `apps` | apps of an ADK server that come and go as agents |
//! | `hostile` | recordings gone wrong in every way that a seeded generator finds, and answers that are none |
//! | `gemini` | the same of Gemini: answers that are none |
//! | `collector`, `traces` | a collector of spans, and the trace that leads from a page to a tool |
//! | `credentials` | logins that a user grants, and every other way in which they end |
//! | `openai` | a model behind chat completions: tools, questions, and answers that are none |
//! | `decided` | what an agent is sent when a user decides one of two questions and sends a new message |
//! | `handed_in` | the state that front ends and the configuration hand in |
//! | `later` | results of tools that come after the turn |
//! | `leaks` | agents that quote what they were sent |
//! | `lies` | agents that ask about another call than they made |
//! | `silence` | agents that do not come to an end |
//! | `streaming` | when the words of an agent reach a client |
//! | `history` | histories that front ends change, and what the model is sent of them |
//! | `servers` | ADK servers as they are in every language, made from their sources: what differs is noticed and said |
//! | `shown` | reasons, names and agents that a user must see |
//! | `engine` | agents in Agent Engine |
//! | `tokens` | agents that want a token which expires |
//! | `user_tokens` | agents that are asked with the token of each user |
//! | `requests` | what the bridge sends, and what it does not |
//! | `widgets` | results that an app of an MCP server shows |

#![cfg(feature = "demo")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use adk_bridge_testkit as support;
use adk_bridge_testkit::stand_in;

mod apps;
mod collector;
mod credentials;
mod decided;
mod engine;
mod gemini;
mod handed_in;
mod history;
mod hostile;
mod later;
mod leaks;
mod lies;
mod openai;
mod requests;
mod servers;
mod shown;
mod silence;
mod streaming;
mod tokens;
mod traces;
mod user_tokens;
mod widgets;
