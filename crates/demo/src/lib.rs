//! The demo: an agent that needs no key, its tools, and the scripted Gemini that answers for it.
//!
//! | module | knows |
//! |---|---|
//! | [`agent`] | the agent: the Gemini of production, pointed at the scripted one |
//! | [`tools`] | tools that really do what their names say, on a small scale |
//! | [`scripted_gemini`] | a server that talks like Google's and follows the user's words |
//! | [`picture`] | draws a PNG |

pub mod agent;
pub mod picture;
pub mod scripted_gemini;
pub mod tools;

pub use agent::Demo;
