//! The command line of `adk-bridge`.
fn main() {}
