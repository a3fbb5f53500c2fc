//! `cargo xtask run`, `format`, `fleet`, `bench` and `release`: prepare, then hand over.

use std::path::Path;
use std::process::{Command, ExitCode};
use std::time::SystemTime;

use crate::guard;
use crate::process::{self, Log};
use crate::setup;
use crate::steps::{BIOME, FLEET_NEEDS};
use crate::workspace::Workspace;

/// Names the address of the sources, which a release's packages say.
const REPOSITORY: &str = "ADK_BRIDGE_REPOSITORY";

/// Servers with the AI SDK, which are measured beside the bridge.
const PEERS: &str = "web/bench-peers";

/// Folders of what was installed or built.
const WITHOUT_SOURCES: [&str; 5] = ["node_modules", "dist", ".pages", ".temp", "cache"];

/// Builds the page with the documents and the server, and becomes `adk-bridge serve`.
///
/// Without `--release` it is the build that the tests use, too: it is there much sooner, and fast enough for trying out.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    let (profile, arguments) = match arguments.split_first() {
        Some((first, rest)) if first == "--release" => (Some("--release"), rest),
        _ => (None, arguments),
    };
    let old = old_builds(workspace)?;
    if profile.is_some() {
        build_for_run(&old, workspace)?;
    }
    println!("building the server: minutes the first time, seconds after that");
    if profile.is_none() && !old.is_empty() {
        // This server reads them when it runs, from folders that it has to know: they are built while it is compiled.
        for shown in &old {
            let built = workspace.root.join(shown.place()).join("dist");
            std::fs::create_dir_all(&built)
                .map_err(|e| format!("cannot create {}: {e}", built.display()))?;
        }
        let mut build = process::cargo();
        build.args(["build", "--package=adk-bridge"]);
        std::thread::scope(|scope| {
            let pages = scope.spawn(|| build_for_run(&old, workspace));
            process::finish(&mut build)?;
            pages
                .join()
                .map_err(|_| "the page cannot be built".to_owned())?
        })?;
    }
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
pub(crate) fn release(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    match arguments {
        [] => check_committed(workspace)?,
        [only] if only == "--uncommitted" => {}
        _ => return Err("usage: cargo xtask release [--uncommitted]".into()),
    }
    for old in old_builds(workspace)? {
        old.build(workspace)?;
    }
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
    let repository = repository();
    protocol_crate(workspace, repository.as_deref())?;
    let program = format!("adk-bridge{}", std::env::consts::EXE_SUFFIX);
    let mut packages = Command::new("node");
    packages
        .arg("packages/build.mjs")
        .arg(workspace.target.join("release").join(program))
        .arg(&made)
        .arg(workspace.target.join("package"));
    match &repository {
        Some(address) => packages.env(REPOSITORY, address),
        None => packages.env_remove(REPOSITORY),
    };
    process::finish(packages.current_dir(&workspace.root))?;
    if repository.is_none() {
        println!(
            "the packages do not say where their sources are: set {REPOSITORY}, or release from a clone of a public address"
        );
    }
    Ok(ExitCode::SUCCESS)
}

/// Refuses what no commit has: the programs would be of other sources than the crate and the archive of the sources.
fn check_committed(workspace: &Workspace) -> Result<(), String> {
    let root = workspace.root.to_string_lossy();
    let status = [
        "-C",
        &root,
        "status",
        "--porcelain",
        "--untracked-files=all",
    ];
    match process::answer("git", &status) {
        Some(changes) if changes.is_empty() => Ok(()),
        Some(changes) => Err(format!(
            "a release is made of committed files, and these are not:\n{changes}\n\
             commit or remove them; to try the packages out, use --uncommitted"
        )),
        None => Err("cannot ask git what is committed: release from a clone".into()),
    }
}

/// Where the sources are, for the packages to say: as somebody has set it, or where this was cloned from.
fn repository() -> Option<String> {
    let set = std::env::var(REPOSITORY).ok().filter(|it| !it.is_empty());
    set.or_else(|| process::answer("git", &["remote", "get-url", "origin"]))
        .and_then(|address| public_address(&address))
}

/// An address that anybody may read and open. Others are of no use to users, and may hold a password.
fn public_address(address: &str) -> Option<String> {
    let is_public = address.starts_with("https://") && !address.contains(['@', '"', '\\', '\n']);
    let plain = address.trim_end_matches('/').trim_end_matches(".git");
    is_public.then(|| plain.to_owned())
}

/// Packs the protocol crate and tries to publish it, from a copy of what is committed: a manifest takes nothing from the
/// environment, so that the address is written into that of the copy.
fn protocol_crate(workspace: &Workspace, repository: Option<&str>) -> Result<(), String> {
    let copy = workspace.target.join("release-sources");
    match std::fs::remove_dir_all(&copy) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
            return Err(format!("cannot remove {}: {e}", copy.display()));
        }
        _ => {}
    }
    let mut checkout = Command::new("git");
    checkout.args(["clone", "--quiet"]);
    process::finish(checkout.arg(&workspace.root).arg(&copy))?;
    if let Some(address) = repository {
        let manifest = copy.join("crates/protocol/Cargo.toml");
        std::fs::read_to_string(&manifest)
            .map(|text| {
                text.replacen(
                    "[package]\n",
                    &format!("[package]\nrepository = \"{address}\"\n"),
                    1,
                )
            })
            .and_then(|text| std::fs::write(&manifest, text))
            .map_err(|e| {
                format!(
                    "cannot write the repository into {}: {e}",
                    manifest.display()
                )
            })?;
    }
    for words in [&["package"][..], &["publish", "--dry-run", "--no-verify"]] {
        let mut cargo = process::cargo();
        cargo
            .args(words)
            .args(["--locked", "--allow-dirty", "--package=adk-bridge-protocol"])
            .env("CARGO_TARGET_DIR", &workspace.target);
        process::finish(cargo.current_dir(&copy))?;
    }
    Ok(())
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
        Some("server") => {
            set_up_peers(workspace, rest);
            server_bench(workspace, rest)
        }
        Some("guard") => guard::run(workspace, rest),
        Some("profile" | "crowd" | "delay" | "data" | "overload") => {
            server_bench(workspace, arguments)
        }
        Some("page") => page_bench(workspace),
        Some("fleet") => with_fleet(workspace, "web/fleet/bench.mjs", rest),
        None => {
            process::finish(&mut protocol_bench(workspace, &[]))?;
            set_up_peers(workspace, &[]);
            server_bench(workspace, &[])
        }
        Some(other) => Err(format!(
            "unknown bench `{other}`: use `protocol`, `server`, `profile`, `guard`, `crowd`, `delay`, `data`, `page`, `overload` or \
             `fleet`"
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

/// Brings what the other servers of the table are made of, unless only some that need nothing are named. Without it they are
/// left out of the table, which says why.
fn set_up_peers(workspace: &Workspace, arguments: &[String]) {
    let names = |of: &[&str]| {
        arguments
            .iter()
            .any(|it| of.iter().any(|name| it.starts_with(name)))
    };
    if names(&["adk-bridge", "nginx", "translator", "voice"]) && !names(&["node-ai", "google-adk"])
    {
        return;
    }
    let packages = setup::require_node()
        .and_then(|()| Log::create(workspace.log("bench-peers")))
        .and_then(|mut log| setup::npm_packages(&workspace.root.join(PEERS), &mut log));
    let python = setup::require(&[setup::Need::Python], workspace);
    for problem in [packages, python].into_iter().filter_map(Result::err) {
        eprintln!("{problem}");
    }
}

/// Builds the page and the server and becomes the program that opens it in a browser.
fn page_bench(workspace: &Workspace) -> Result<ExitCode, String> {
    setup::require(&[setup::Need::Node, setup::Need::Chromium], workspace)?;
    if Shown::Page.is_old(workspace) {
        Shown::Page.build(workspace)?;
    }
    let mut build = process::cargo();
    build.args(["build", "--release", "--package=adk-bridge"]);
    process::finish(build.current_dir(&workspace.root))?;
    let program = format!("adk-bridge{}", std::env::consts::EXE_SUFFIX);
    let mut node = Command::new("node");
    node.arg("web/e2e/page-bench.mjs").env(
        "ADK_BRIDGE_BINARY",
        workspace.target.join("release").join(program),
    );
    process::become_program(node.current_dir(&workspace.root))
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

/// Something that the server shows, and that npm builds into `dist`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Shown {
    Page,
    Documents,
}

impl Shown {
    fn name(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Documents => "documents",
        }
    }

    fn place(self) -> &'static str {
        match self {
            Self::Page => "web/ui",
            Self::Documents => "web/docs",
        }
    }

    /// Whether a source is newer than the last build.
    fn is_old(self, workspace: &Workspace) -> bool {
        let place = workspace.root.join(self.place());
        let built = modified(&place.join("dist/index.html"));
        let more = match self {
            Self::Page => newest(&workspace.root.join("web/client")),
            Self::Documents => newest_document(workspace),
        };
        // Without its sources, nobody knows whether it is new.
        built.is_none() || more.is_none() || built < newest(&place).max(more)
    }

    fn build(self, workspace: &Workspace) -> Result<(), String> {
        let place = workspace.root.join(self.place());
        let mut log = Log::create(workspace.log(self.name()))?.in_background();
        println!("building the {} in {}", self.name(), self.place());
        let mut npm = process::script("npm");
        npm.args(["run", "build"]).current_dir(&place);
        setup::npm_packages(&place, &mut log)
            .and_then(|()| log.run(&mut npm))
            .map_err(|problem| {
                let name = self.name();
                format!("{}the {name} cannot be built: {problem}", log.text())
            })
    }
}

/// What has to be built before the server shows it as it is.
fn old_builds(workspace: &Workspace) -> Result<Vec<Shown>, String> {
    let all = [Shown::Page, Shown::Documents].into_iter();
    let old: Vec<Shown> = all.filter(|shown| shown.is_old(workspace)).collect();
    if !old.is_empty() {
        setup::require_node().map_err(|problem| {
            format!(
                "the page cannot be built: {problem}\n\
                 (`cargo run -p adk-bridge -- serve` starts the server without it)"
            )
        })?;
    }
    Ok(old)
}

/// Builds them for somebody who wants to see the page: without its documents, the server says so itself.
fn build_for_run(old: &[Shown], workspace: &Workspace) -> Result<(), String> {
    for shown in old {
        match shown.build(workspace) {
            Err(problem) if *shown == Shown::Documents => eprintln!("{problem}"),
            outcome => outcome?,
        }
    }
    Ok(())
}

/// When the newest of the documents was written, as far as the last build has listed them.
fn newest_document(workspace: &Workspace) -> Option<SystemTime> {
    let list = std::fs::read_to_string(workspace.root.join("web/docs/.pages/sources.txt")).ok()?;
    // One that is gone makes a difference, too.
    let written: Option<Vec<SystemTime>> = list
        .lines()
        .map(|source| modified(&workspace.root.join(source)))
        .collect();
    written?.into_iter().max()
}

/// When the newest source file in this directory was written.
fn newest(directory: &Path) -> Option<SystemTime> {
    let entries = std::fs::read_dir(directory).ok()?;
    entries
        .flatten()
        .filter(|entry| {
            !WITHOUT_SOURCES
                .iter()
                .any(|name| entry.file_name() == *name)
        })
        .filter_map(|entry| match entry.file_type() {
            Ok(kind) if kind.is_dir() => newest(&entry.path()),
            _ => modified(&entry.path()),
        })
        .max()
}

fn modified(file: &Path) -> Option<SystemTime> {
    file.metadata().and_then(|data| data.modified()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_name_public_addresses_only() {
        let cases = [
            (
                "https://code.example/us/bridge",
                Some("https://code.example/us/bridge"),
            ),
            (
                "https://code.example/us/bridge.git",
                Some("https://code.example/us/bridge"),
            ),
            ("https://robot:secret@code.example/us/bridge.git", None),
            ("git@code.example:us/bridge.git", None),
            ("/home/me/bridge", None),
            ("https://code.example/\"\nlicense = \"", None),
        ];
        for (address, expected) in cases {
            assert_eq!(public_address(address).as_deref(), expected, "{address}");
        }
    }
}
