//! `cargo xtask fuzz`: searches for input that a parser does not survive, guided by which code has run.
//!
//! The compiler counts which code runs as cargo-fuzz has it do, but without a sanitizer, so that it needs no nightly toolchain.

use std::path::Path;
use std::process::{Command, ExitCode};

use crate::process;
use crate::workspace::Workspace;

const USAGE: &str =
    "usage: cargo xtask fuzz TARGET [SECONDS]; crates/fuzz/src/lib.rs lists the targets";

/// How long a search takes if nobody says.
const SECONDS: u64 = 60;

/// What has the compiler note which code ran, and which values were compared.
const COVERAGE: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=1";

/// Searches with one target. What it finds and what it has learned is kept below the target directory.
pub(crate) fn run(workspace: &Workspace, arguments: &[String]) -> Result<ExitCode, String> {
    let (name, seconds) = match arguments {
        [name] => (name, SECONDS),
        [name, seconds] => (name, seconds.parse().map_err(|_| USAGE.to_owned())?),
        _ => return Err(USAGE.to_owned()),
    };
    let place = workspace.target.join("fuzz");
    let corpus = place.join("corpus").join(name);
    let found = place.join("found").join(name);
    for directory in [&corpus, &found] {
        std::fs::create_dir_all(directory)
            .map_err(|e| format!("cannot make {}: {e}", directory.display()))?;
    }
    let mut search = process::cargo();
    search
        // With a target of its own, so that build scripts and macros are built as always.
        .args(["run", "--release", "--package=adk-bridge-fuzz", "--target"])
        .arg(host()?)
        .arg("--target-dir")
        .arg(&place)
        .arg("--")
        .arg(&corpus)
        .args(seeds(&workspace.root, name)?)
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-artifact_prefix={}/", found.display()))
        .env("ADK_BRIDGE_FUZZ_TARGET", name)
        .env("RUSTFLAGS", COVERAGE)
        .env("CARGO_PROFILE_RELEASE_LTO", "off")
        .env("CARGO_PROFILE_RELEASE_DEBUG_ASSERTIONS", "true")
        .current_dir(&workspace.root);
    process::become_program(&mut search)
}

/// The directories of recordings that a target begins with, as its entry in the table names them.
fn seeds(root: &Path, name: &str) -> Result<Vec<std::path::PathBuf>, String> {
    let table = root.join("crates/fuzz/src/lib.rs");
    let text = std::fs::read_to_string(&table)
        .map_err(|e| format!("cannot read {}: {e}", table.display()))?;
    let entry = text
        .split("Target {")
        .find(|entry| entry.contains(&format!("name: \"{name}\"")))
        .ok_or(USAGE)?;
    let list = entry
        .split_once("seeds: &[")
        .and_then(|(_, rest)| rest.split_once(']'))
        .map_or("", |(list, _)| list);
    let names = list.split('"').skip(1).step_by(2);
    Ok(names.map(|seed| root.join("fixtures").join(seed)).collect())
}

/// The platform of this machine, as the compiler calls it.
fn host() -> Result<String, String> {
    let said = Command::new("rustc")
        .arg("-vV")
        .output()
        .map_err(|e| format!("cannot start rustc: {e}"))?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_owned)
        .ok_or_else(|| "rustc does not say what it builds for".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The search is built on request only, which takes minutes: it is the same code, compiled with these flags.
    #[test]
    fn the_compiler_counts_which_code_ran() {
        let place = std::env::temp_dir().join(format!("counted-{}", std::process::id()));
        std::fs::create_dir_all(&place).unwrap();
        let (source, object) = (place.join("counted.rs"), place.join("counted.o"));
        std::fs::write(
            &source,
            "pub fn is_abc(it: &[u8]) -> bool { it == b\"abc\" }",
        )
        .unwrap();
        let mut compiler = Command::new("rustc");
        compiler.args(COVERAGE.split_whitespace());
        compiler.args(["--crate-type=lib", "--emit=obj", "-o"]);
        let compiled = compiler.arg(&object).arg(&source).output().unwrap();
        let said = String::from_utf8_lossy(&compiled.stderr).into_owned();
        assert!(compiled.status.success(), "{said}");
        let code = std::fs::read(&object).unwrap();
        std::fs::remove_dir_all(&place).unwrap();
        for counted in ["__sancov_cntrs", "__sancov_pcs", "__sanitizer_cov_trace"] {
            let is_there = code
                .windows(counted.len())
                .any(|it| it == counted.as_bytes());
            assert!(is_there, "{counted}");
        }
    }

    #[test]
    fn seeds_are_those_of_the_table() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        assert_eq!(seeds(&root, "lines"), Ok(Vec::new()));
        let found = seeds(&root, "recording").unwrap_or_default();
        assert_eq!(found.len(), 3);
        assert!(found.iter().all(|seed| seed.is_dir()), "{found:?}");
        assert!(seeds(&root, "no-such-target").is_err());
    }
}
