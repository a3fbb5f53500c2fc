//! The traits of an agent and of a tool, and the agents that come with the bridge.
//!
//! | module | knows |
//! |---|---|
//! | [`agent`], [`error`] | what an agent is, what it is asked, and why it does not answer |
//! | [`live`] | agents that support speech |
//! | [`tool`], [`tool_registry`] | what a tool is; the tools that a server is built with |
//! | [`gemini`], [`gemini_live`] | a Gemini model, over REST and live |
//! | [`openai`] | a model behind OpenAI's chat completions, such as a local one |
//! | [`adk_server`] | an app of any ADK server |
//! | [`mcp`] | tools of MCP servers |
//! | [`token`] | tokens that expire, for requests to an agent |
//! | [`trust`] | certificate authorities, and what every client over HTTP begins with |
//! | [`trace_context`] | the trace that a request belongs to, which is passed on |
//! | [`secrets`] | hides secrets in foreign texts, and the agent's address from users |

pub mod adk_server;
pub mod agent;
pub mod error;
#[doc(hidden)]
pub mod fuzzing;
pub mod gemini;
pub mod gemini_live;
mod http;
pub mod live;
mod live_socket;
mod loopback;
pub mod mcp;
pub mod openai;
pub mod secrets;
mod silence;
pub mod token;
pub mod tool;
pub mod tool_registry;
pub mod trace_context;
pub mod trust;

pub use agent::{Agent, AgentInfo, AgentRequest, AgentRun, BoxFuture, MemoryModel};
pub use error::{AgentError, AgentErrorKind};
pub use live::{LiveAgent, LiveConnection};
pub use tool::{ServerTool, ToolCall, ToolSource, ToolSpec};
pub use tool_registry::ToolRegistry;
pub use trace_context::TraceContext;
