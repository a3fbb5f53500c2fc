//! Both ends of the bridge as pure data and state machines; it contains no sockets, no clock and no randomness.

pub mod chunk;
pub mod message;
