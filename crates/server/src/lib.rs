//! The bridge as a library, and everything of it that waits: endpoints, chats, what is stored, the commands of the binary.
//!
//! ```text
//!   router ──▶ transport ──▶ chat ──┬──▶ agents
//!     │                             ├──▶ tools
//!     └── auth                      └──▶ store, files
//! ```
//!
//! A program with agents or tools of its own begins with [`Server::builder`]; `examples/rust` of the
//! project and `examples/own_agent.rs` are two that can be copied. The crates behind it are [`agents`] and [`protocol`].
//!
//! | module | knows |
//! |---|---|
//! | [`server`] | how a server is put together, started and stopped |
//! | [`agent_kinds`] | which agents `agent.kind` can name |
//! | [`agent_list`] | the agents of a server, each with its tools and rules |
//! | [`mcp`] | the MCP servers, whose tools agents are offered |
//! | [`router`] | all endpoints on one page |
//! | [`openapi`] | what every endpoint takes and answers, as a document and as a page |
//! | [`connections`] | how clients are connected |
//! | [`auth`] | who asks, and from where they may |
//! | [`known_users`] | what their requests tell of them: claims and tokens |
//! | [`audit`] | the audit as evidence: chains, seals, what `adk-bridge audit` finds |
//! | [`admission`] | what may begin, for one user and for all |
//! | [`transport`] | requests in, answers out |
//! | [`chat`] | one task per chat: the reply, the agent's run, tools, readers |
//! | [`budget`] | memory that clients decide about |
//! | [`spending`] | the budgets of users: tokens and what they cost, by day |
//! | [`sockets`] | open WebSockets, and the tickets that open them |
//! | [`store`] | what survives a restart |
//! | [`cluster`] | which replica owns which chat |
//! | [`forwarding`] | requests for chats of other replicas |
//! | [`files`] | binary content next to the store |
//! | [`credentials`] | what users grant to agents, sealed as long as it is needed |
//! | `nonce` | what may be used once |
//! | [`parsing`] | how much JSON is read at once |
//! | [`process_memory`] | how much memory the process uses, and may use |
//! | [`retention`] | what is deleted because of its age |
//! | [`metrics`], [`telemetry`] | what is counted, logged and traced |
//! | [`secrets`] | what is shown to nobody |
//! | [`config`], [`error`] | what can be set; what is refused |
//! | [`serve`], [`check_config`], [`doctor`], [`backup`], [`migrate_store`], [`translate`], [`fake_gemini`] | the commands |
//! | [`findings`] | what they have found, as people read it |
//! | [`reload`] | another configuration while it runs |
//! | [`shutdown`] | when the process is asked to stop, or to load its configuration again |
//! | [`descriptors`] | how many files may be open, and who gets them |
//! | [`allocator`] | how freed memory goes back |
//! | `failpoint` | where tests let the process die |

pub mod admission;
pub mod agent_kinds;
pub mod agent_list;
pub mod allocator;
pub mod audit;
pub mod auth;
pub mod backup;
pub mod budget;
pub mod chat;
pub mod check_config;
pub mod cluster;
pub mod config;
pub mod connections;
pub mod credentials;
pub mod descriptors;
pub mod doctor;
mod failpoint;
pub mod fake_gemini;
pub mod files;
pub mod findings;
pub mod forwarding;
#[doc(hidden)]
pub mod fuzzing;
pub mod known_users;
pub mod mcp;
pub mod metrics;
pub mod migrate_store;
mod nonce;
pub mod openapi;
pub mod parsing;
pub mod process_memory;
pub mod reload;
pub mod retention;
pub mod router;
pub mod secrets;
pub mod serve;
pub mod server;
pub mod shutdown;
pub mod sockets;
pub mod spending;
pub mod store;
pub mod telemetry;
pub mod translate;
pub mod transport;

pub use adk_bridge_agents as agents;
pub use adk_bridge_protocol as protocol;

pub use server::{Server, ServerBuilder, StartError};
pub use transport::error;
