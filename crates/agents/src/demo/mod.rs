//! The demo: its tools, and a scripted Gemini that it is run against.

pub mod picture;
pub mod scripted_gemini;
pub mod tools;
