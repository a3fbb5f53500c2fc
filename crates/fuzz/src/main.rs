//! libFuzzer with one of the targets: `cargo xtask fuzz TARGET`.
//!
//! The environment names the target, because the command line is libFuzzer's. Built as any other program it searches blindly;
//! files in its arguments are run and nothing else, which is how the tests try every recording.

#![no_main]

use std::sync::LazyLock;

use adk_bridge_fuzz::{Target, target};

/// The variable that names the target.
const TARGET: &str = "ADK_BRIDGE_FUZZ_TARGET";

static CHOSEN: LazyLock<&Target> =
    LazyLock::new(|| target(&std::env::var(TARGET).unwrap_or_default()));

libfuzzer_sys::fuzz_target!(|data: &[u8]| (CHOSEN.run)(data));
