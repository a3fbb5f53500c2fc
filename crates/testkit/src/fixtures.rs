//! Where the fixtures are.

use std::path::{Path, PathBuf};

/// The folders of recordings; the last holds those written by hand.
pub const RECORDED: [&str; 6] = [
    "scripted",
    "gemini",
    "gemini_answers",
    "agents",
    "live",
    "odd",
];

/// The directory of the recordings of ADK servers.
pub fn recordings() -> PathBuf {
    directory().join("adk")
}

/// The recordings of one folder, in order, without the expected streams.
pub fn recordings_in(folder: &str) -> Vec<PathBuf> {
    let is_recording = |path: &PathBuf| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        !matches!(extension, Some("md" | "snap" | "new"))
    };
    let mut paths: Vec<PathBuf> = std::fs::read_dir(recordings().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(is_recording)
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "{folder} is empty");
    paths
}

pub(crate) fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures")
}
