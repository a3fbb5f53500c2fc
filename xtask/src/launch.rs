//! `cargo xtask run` and `cargo xtask bench`: prepare, then hand over to cargo.

use std::path::Path;
use std::process::ExitCode;
use std::time::SystemTime;

use crate::process::{self, Log};
use crate::setup;
use crate::workspace::Workspace;

/// Builds the page and the server, and becomes `adk-bridge serve`.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    if workspace.has("web/ui/package.json") {
        build_page(workspace)?;
    }
    let mut cargo = process::cargo();
    cargo
        .args(["run", "--release", "--package=adk-bridge", "--", "serve"])
        .args(arguments);
    process::become_program(&mut cargo)
}

/// Becomes `cargo bench` for the protocol crate.
pub(crate) fn bench(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    let mut cargo = process::cargo();
    cargo
        .args(["bench", "--package=adk-bridge-protocol"])
        .args(arguments)
        .current_dir(&workspace.root);
    process::become_program(&mut cargo)
}

/// Builds the page when a source is newer than the last build.
fn build_page(workspace: &Workspace) -> Result<(), String> {
    let ui = workspace.root.join("web/ui");
    let built = modified(&ui.join("dist/index.html"));
    let sources = [ui.as_path(), &workspace.root.join("web/client")]
        .into_iter()
        .filter_map(newest)
        .max();
    if built.is_some() && built >= sources {
        return Ok(());
    }
    setup::require_node().map_err(|problem| {
        format!(
            "the page cannot be built: {problem}\n\
             (`cargo run --release -p adk-bridge -- serve` starts the server without it)"
        )
    })?;
    let mut log = Log::create(workspace.log("page"))?;
    println!("building the page in web/ui");
    let mut npm = process::script("npm");
    npm.args(["run", "build"]).current_dir(&ui);
    setup::npm_packages(&ui, &mut log)
        .and_then(|()| log.run(&mut npm))
        .map_err(|problem| format!("{}the page cannot be built: {problem}", log.text()))
}

/// When the newest source file in this directory was written.
fn newest(directory: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(directory).ok()?;
    entries
        .flatten()
        .filter(|entry| entry.file_name() != "node_modules" && entry.file_name() != "dist")
        .filter_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => newest(&entry.path()),
            _ => modified(&entry.path()),
        })
        .max()
}

fn modified(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|data| data.modified()).ok()
}
