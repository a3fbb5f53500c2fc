//! Who answers: the agents that the bridge can talk to.

pub mod adk_server;
pub mod agent;
pub mod demo;
pub mod gemini;
pub mod gemini_live;
pub mod live;
mod live_socket;
pub mod tool;
