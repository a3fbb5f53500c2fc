//! Every target takes everything that was recorded, whole and damaged, and libFuzzer itself runs one.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::path::{Path, PathBuf};
use std::process::Command;

use adk_bridge_fuzz::{TARGETS, Target};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}

/// The files that the search of a target begins with.
fn seeds(target: &Target) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    for seed in target.seeds {
        let path = fixtures().join(seed);
        for entry in std::fs::read_dir(&path).unwrap() {
            let file = entry.unwrap().path();
            if file.is_file() {
                found.push(std::fs::read(file).unwrap());
            }
        }
    }
    found
}

#[test]
fn every_target_takes_what_was_recorded_whole_and_damaged() {
    for target in TARGETS {
        let seeds = seeds(target);
        assert_eq!(seeds.is_empty(), target.seeds.is_empty(), "{}", target.name);
        for seed in seeds
            .iter()
            .map(Vec::as_slice)
            .chain([&b""[..], b"\0", b"{}", b"\xff\xfe"])
        {
            (target.run)(seed);
            (target.run)(&seed[..seed.len() / 2]);
            let flipped: Vec<u8> = seed.iter().map(|byte| byte ^ (byte & 1)).collect();
            (target.run)(&flipped);
        }
    }
}

#[test]
fn targets_have_names_of_their_own_in_order() {
    assert!(TARGETS.is_sorted_by(|a, b| a.name < b.name));
}

#[test]
fn the_program_runs_the_target_that_is_named() {
    let seed = fixtures().join("adk/odd");
    let file = std::fs::read_dir(seed)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let run = |name: &str| {
        let mut program = Command::new(env!("CARGO_BIN_EXE_adk-bridge-fuzz"));
        program.env("ADK_BRIDGE_FUZZ_TARGET", name).arg(&file);
        program.output().unwrap().status.success()
    };
    assert!(run("json"));
    assert!(!run("no-such-target"));
}
