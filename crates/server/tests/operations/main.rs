//! What the operator of a bridge has: checks, another configuration while it runs, backups, a doctor, documents that are true.

#![cfg(all(unix, feature = "demo"))]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

mod backup;
mod check;
mod doctor;
mod documents;
mod reload;

use std::path::Path;
use std::process::{Command, Output, Stdio};

use adk_bridge_testkit::process::binary;

/// Runs a command of the program in a directory to its end.
fn run(directory: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(binary());
    command
        .args(arguments)
        .current_dir(directory)
        .env_remove("RUST_LOG")
        .stdin(Stdio::null());
    for (name, value) in variables {
        command.env(name, value);
    }
    command.output().unwrap()
}

/// What it printed for the person who ran it.
fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// What it said besides.
fn said(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
