//! `cargo xtask run`, `format`, `fleet`, `bench` and `release`: prepare, then hand over.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::SystemTime;

use crate::guard;
use crate::process::{self, Log};
use crate::setup;
use crate::steps::{BIOME, FLEET_NEEDS};
use crate::workspace::Workspace;

/// Builds the page and the server, and becomes `adk-bridge serve`.
///
/// Without `--release` it is the build that the tests use, too: it is there much sooner, and fast enough for trying out.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    build_page(workspace)?;
    let (profile, arguments) = match arguments.split_first() {
        Some((first, rest)) if first == "--release" => (Some("--release"), rest),
        _ => (None, arguments),
    };
    println!("building the server: minutes the first time, seconds after that");
    let mut cargo = process::cargo();
    cargo
        .arg("run")
        .args(profile)
        .args(["--package=adk-bridge", "--", "serve"])
        .args(arguments);
    process::become_program(&mut cargo)
}

/// Formats the code in every language, and mends what its linters can.
pub(crate) fn format(workspace: &Workspace) -> Result<ExitCode, String> {
    setup::require(&[setup::Need::Node, setup::Need::Linters], workspace)?;
    let mut rust = process::cargo();
    rust.args(["fmt", "--all"]);
    process::finish(rust.current_dir(&workspace.root))?;
    let mut biome = Command::new(workspace.root.join(BIOME));
    biome.args(["check", "--write"]);
    process::finish(biome.current_dir(&workspace.root))?;
    for arguments in [&["check", "--fix"][..], &["format"]] {
        let mut ruff = Command::new(workspace.linters_python());
        ruff.args(["-m", "ruff"]).args(arguments);
        process::finish(ruff.current_dir(&workspace.root))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Builds what a release consists of, for the platform of this machine.
pub(crate) fn release(workspace: &Workspace) -> Result<ExitCode, String> {
    build_page(workspace)?;
    let client = workspace.root.join("web/client");
    let mut log = Log::create(workspace.log("release"))?;
    setup::npm_packages(&client, &mut log)?;
    let made = workspace.target.join("release-artifacts");
    match std::fs::remove_dir_all(&made) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {e}", made.display()));
        }
        _ => {}
    }
    let mut build = process::cargo();
    build.args(["build", "--release", "--locked", "--package=adk-bridge"]);
    process::finish(build.current_dir(&workspace.root))?;
    let mut protocol = process::cargo();
    protocol.args(["package", "--locked", "--package=adk-bridge-protocol"]);
    process::finish(protocol.current_dir(&workspace.root))?;
    let mut publish = process::cargo();
    publish.args(["publish", "--dry-run", "--no-verify", "--locked"]);
    publish.arg("--package=adk-bridge-protocol");
    process::finish(publish.current_dir(&workspace.root))?;
    let program = format!("adk-bridge{}", std::env::consts::EXE_SUFFIX);
    let mut packages = Command::new("node");
    packages
        .arg("packages/build.mjs")
        .arg(workspace.target.join("release").join(program))
        .arg(&made)
        .arg(workspace.target.join("package"));
    process::finish(packages.current_dir(&workspace.root))?;
    Ok(ExitCode::SUCCESS)
}

/// Kills replicas while stock chats talk, as often as the arguments say.
pub(crate) fn fleet(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    with_fleet(workspace, "web/fleet/kills.mjs", arguments)
}

/// Builds what replicas are made of and becomes a program that starts some.
fn with_fleet(
    workspace: &Workspace,
    program: &str,
    arguments: &[String],
) -> Result<ExitCode, String> {
    setup::require(FLEET_NEEDS, workspace)?;
    let mut build = process::cargo();
    build.args(["build", "--release", "--package=adk-bridge"]);
    process::finish(build.current_dir(&workspace.root))?;
    let mut library = Command::new("node");
    library.arg("web/client/scripts/build.mjs");
    process::finish(library.current_dir(&workspace.root))?;
    let mut node = Command::new("node");
    node.arg(program).args(arguments);
    process::become_program(node.current_dir(&workspace.root))
}

/// Measures what the protocol crate and the server cost, or one of the two.
pub(crate) fn bench(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    let rest = arguments.get(1..).unwrap_or_default();
    match arguments.first().map(String::as_str) {
        Some("protocol") => process::become_program(&mut protocol_bench(workspace, rest)),
        Some("server") => server_bench(workspace, rest),
        Some("guard") => guard::run(workspace, rest),
        Some("profile" | "crowd" | "overload") => server_bench(workspace, arguments),
        Some("fleet") => with_fleet(workspace, "web/fleet/bench.mjs", rest),
        None => {
            process::finish(&mut protocol_bench(workspace, &[]))?;
            server_bench(workspace, &[])
        }
        Some(other) => Err(format!(
            "unknown bench `{other}`: use `protocol`, `server`, `profile`, `guard`, `crowd`, `overload` or `fleet`"
        )),
    }
}

fn protocol_bench(workspace: &Workspace, arguments: &[String]) -> Command {
    let mut cargo = process::cargo();
    cargo
        .args(["bench", "--package=adk-bridge-protocol"])
        .args(arguments)
        .current_dir(&workspace.root);
    cargo
}

/// Builds the server as it is shipped and becomes the program that puts load on it.
fn server_bench(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    let mut build = process::cargo();
    build
        .args([
            "build",
            "--release",
            "--package=adk-bridge",
            "--package=adk-bridge-bench",
        ])
        .current_dir(&workspace.root);
    process::finish(&mut build)?;
    let program = format!("adk-bridge-bench{}", std::env::consts::EXE_SUFFIX);
    let mut bench = Command::new(workspace.target.join("release").join(program));
    bench.args(arguments).current_dir(&workspace.root);
    process::become_program(&mut bench)
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
             (`cargo run -p adk-bridge -- serve` starts the server without it)"
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
