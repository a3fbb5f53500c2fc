//! The project's commands: `cargo xtask run | test | bench`.
fn main() {}
