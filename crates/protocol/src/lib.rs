//! Both ends of the bridge as pure data and state machines; it contains no sockets, no clock and no randomness.

pub mod audio;
pub mod base64;
pub mod wire;
