//! `cargo xtask bench guard`: builds a base commit next to the tree, and has both compared by counted work.
//!
//! The base is built in the same target directory: its dependencies are those of the tree, so that only the project's own
//! crates are compiled again, and each commit once.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use crate::process;
use crate::setup;
use crate::workspace::Workspace;

const USAGE: &str = "usage: cargo xtask bench guard [--base REV]";

/// What a release build of the bridge is made from.
const SOURCES: [&str; 6] = [
    "Cargo.lock",
    "Cargo.toml",
    "crates/agents",
    "crates/demo",
    "crates/protocol",
    "crates/server",
];

/// The base branch, by the names that it may have, the most telling first.
const BASE_BRANCHES: [&str; 5] = [
    "origin/HEAD",
    "origin/main",
    "origin/master",
    "main",
    "master",
];

/// Compares the tree with the base that is named, or else with what it began from.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    let named = match arguments {
        [] => None,
        [flag, revision] if flag == "--base" => Some(revision.as_str()),
        _ => return Err(USAGE.to_owned()),
    };
    let root = &workspace.root;
    let base = match named {
        Some(revision) => Some(commit(root, revision).ok_or_else(|| {
            format!("there is no commit `{revision}`; name one that `git rev-parse` knows")
        })?),
        None => default_base(root),
    };
    let Some(base) = base else {
        println!("guard: there is no earlier commit here to compare with; name one with --base");
        return Ok(ExitCode::SUCCESS);
    };
    if named.is_none() && !differs(root, &base)? {
        println!("guard: the server is the one of {base}");
        return Ok(ExitCode::SUCCESS);
    }
    setup::require(&[setup::Need::Valgrind], workspace)?;
    let old = build_base(workspace, &base)?;
    println!("guard: building the tree");
    process::finish(release_build().current_dir(root))?;
    // What counts need not be quick.
    let mut bench = process::cargo();
    bench.args(["build", "--package=adk-bridge-bench"]);
    process::finish(bench.current_dir(root))?;
    let built = |profile: &str, name| workspace.target.join(profile).join(program(name));
    let mut bench = Command::new(built("debug", "adk-bridge-bench"));
    bench
        .arg("guard")
        .args([old, built("release", "adk-bridge")])
        .current_dir(root);
    process::become_program(&mut bench)
}

/// The newest commit that the tree shares with the base branch; on that branch, the one before the newest, or the newest
/// itself while there are changes that are not committed.
fn default_base(root: &Path) -> Option<String> {
    let head = commit(root, "HEAD")?;
    let shared = BASE_BRANCHES
        .iter()
        .find_map(|branch| git(root, &["merge-base", "HEAD", branch]));
    match shared {
        Some(shared) if shared != head => Some(shared),
        _ if differs(root, &head).unwrap_or(false) => Some(head),
        _ => commit(root, "HEAD~1"),
    }
}

/// Whether what the bridge is built from is not what it was in a commit.
fn differs(root: &Path, commit: &str) -> Result<bool, String> {
    let status = Command::new("git")
        .args(["diff", "--quiet", commit, "--"])
        .args(SOURCES)
        .current_dir(root)
        .status()
        .map_err(|e| format!("cannot start git: {e}"))?;
    let is_new = git(
        root,
        &[&["status", "--porcelain", "--"][..], &SOURCES].concat(),
    );
    Ok(!status.success() || is_new.is_some_and(|changes| !changes.is_empty()))
}

/// Builds the bridge of a commit, unless that was done before.
fn build_base(workspace: &Workspace, base: &str) -> Result<PathBuf, String> {
    let kept = workspace.target.join("guard");
    let done = kept.join(base);
    if done.is_file() {
        return Ok(done);
    }
    let tree = kept.join("tree");
    println!("guard: building {base}");
    std::fs::create_dir_all(&kept).map_err(|e| format!("cannot make {}: {e}", kept.display()))?;
    // One that an interrupted run has left.
    remove_tree(workspace, &tree);
    let mut add = Command::new("git");
    add.args(["worktree", "add", "--quiet", "--force", "--detach"])
        .arg(&tree)
        .arg(base)
        .current_dir(&workspace.root);
    process::finish(&mut add)?;
    let mut build = release_build();
    build
        .env("CARGO_TARGET_DIR", &workspace.target)
        .current_dir(&tree);
    let built = process::finish(&mut build);
    remove_tree(workspace, &tree);
    built?;
    let program = workspace.target.join("release").join(program("adk-bridge"));
    // Under another name until it is whole.
    let draft = kept.join("new");
    std::fs::copy(&program, &draft)
        .and_then(|_| std::fs::rename(&draft, &done))
        .map_err(|e| format!("cannot keep the build of {base}: {e}"))?;
    Ok(done)
}

fn remove_tree(workspace: &Workspace, tree: &Path) {
    let mut remove = Command::new("git");
    remove
        .args(["worktree", "remove", "--force"])
        .arg(tree)
        .stderr(std::process::Stdio::null())
        .current_dir(&workspace.root);
    // There may be none.
    let _ = remove.status();
    let _ = std::fs::remove_dir_all(tree);
}

fn release_build() -> Command {
    let mut build = process::cargo();
    build.args(["build", "--release", "--package=adk-bridge"]);
    build
}

fn program(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

fn commit(root: &Path, revision: &str) -> Option<String> {
    git(
        root,
        &[
            "rev-parse",
            "--quiet",
            "--verify",
            &format!("{revision}^{{commit}}"),
        ],
    )
}

/// What git answers, if it succeeds.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let root = root.to_str()?;
    process::answer("git", &[&["-C", root], arguments].concat())
}
