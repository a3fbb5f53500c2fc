//! A program that was built without the demo: what only the demo has is refused, in words that say why.

#![cfg(not(feature = "demo"))]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::process::Command;

use adk_bridge_testkit::process::binary;
use tempfile::TempDir;

/// What the program says when it ends with a failure.
fn refused(arguments: &[&str]) -> String {
    let directory = TempDir::new().unwrap();
    let ended = Command::new(binary())
        .args(arguments)
        .current_dir(directory.path())
        .output()
        .unwrap();
    assert!(!ended.status.success());
    assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 0);
    String::from_utf8(ended.stderr).unwrap()
}

#[test]
fn the_demo_is_refused_with_the_reason() {
    let named = ["serve", "--agent", "demo"];
    for arguments in [&["serve"][..], &named, &["fake-gemini"]] {
        let said = refused(arguments);
        assert!(
            said.contains("cargo feature `demo`"),
            "{arguments:?}: {said}"
        );
    }
    let said = refused(&named);
    assert!(
        said.contains("agent.kind") && said.contains("adk, agent-engine, gemini, openai"),
        "{said}"
    );
}
