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
            if seed.len() <= SMALL {
                damaged(seed).for_each(|seed| (target.run)(&seed));
            }
        }
    }
}

/// Up to this size, seeds are damaged in many ways: it takes no time.
const SMALL: usize = 2 * 1024;
/// In how many ways.
const WAYS: usize = 64;

/// Seeds with some bytes changed, left out or repeated; always the same ones.
fn damaged(seed: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut dice = move |sides: usize| {
        state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        usize::try_from(state >> 33).unwrap() % sides.max(1)
    };
    (0..WAYS).map(move |_| {
        let mut text = seed.to_vec();
        for _ in 0..=dice(3) {
            let at = dice(text.len() + 1);
            let end = (at + dice(8)).min(text.len());
            match dice(4) {
                0 => text[at..end]
                    .iter_mut()
                    .for_each(|byte| *byte ^= 1 << (at % 8)),
                1 => drop(text.drain(at..end)),
                2 => text
                    .splice(at..at, seed[..end.min(seed.len())].to_vec())
                    .for_each(drop),
                _ => text.splice(at..end, *b"true").for_each(drop),
            }
        }
        text
    })
}

#[test]
fn every_target_has_something_to_begin_from() {
    let without: Vec<&str> = (TARGETS.iter().filter(|it| it.seeds.is_empty()))
        .map(|target| target.name)
        .collect();
    // These read anything.
    let expected = ["lines", "live-binary"];
    assert_eq!(without, expected);
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
