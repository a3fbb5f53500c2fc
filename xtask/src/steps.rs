//! The checks of `cargo xtask test`, as a table.

use std::path::Path;
use std::process::Command;

use crate::process::{self, Log, Server};
use crate::report::Verdict;
use crate::setup::Need;
use crate::workspace::Workspace;

/// One check: programs that are run one after the other until one fails.
///
/// `{target}` stands for the build output directory, `{python}` for the interpreter that has
/// Google's packages, `{address}` for the address of the server that runs beside the last program.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) needs: &'static [Need],
    /// Files that the programs write, removed first so that an old one is never checked.
    writes: &'static [&'static str],
    programs: &'static [&'static [&'static str]],
    /// A server that is started before the last program and ended after it. It says where it is in
    /// a line `listening on ADDRESS`.
    server: Option<&'static [&'static str]>,
    tally: Tally,
}

/// How the log tells how much was looked at. A check that looked at nothing has failed.
enum Tally {
    /// The exit code is all there is.
    None,
    /// Cargo's `test result:` lines.
    CargoTest,
    /// A line `NAME: N passed, M failed`, NAME being the check's own.
    Named,
}

/// All checks, in the order in which they run.
pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "fmt",
        what: "the Rust code is formatted",
        needs: &[],
        writes: &[],
        programs: &[&["cargo", "fmt", "--all", "--check"]],
        server: None,
        tally: Tally::None,
    },
    Check {
        name: "clippy",
        what: "clippy has nothing to say",
        needs: &[],
        writes: &[],
        programs: &[&[
            "cargo",
            "clippy",
            "--workspace",
            "--all-targets",
            "--",
            "-D",
            "warnings",
        ]],
        server: None,
        tally: Tally::None,
    },
    Check {
        name: "test",
        what: "the Rust tests",
        needs: &[],
        writes: &[],
        programs: &[&["cargo", "test", "--workspace"]],
        server: None,
        tally: Tally::CargoTest,
    },
    Check {
        name: "kill",
        what: "the release build, killed at random moments, loses nothing that it has told",
        needs: &[],
        writes: &[],
        programs: &[
            &["cargo", "build", "--release", "--package=adk-bridge"],
            &[
                "env",
                "ADK_BRIDGE_TEST_BINARY={target}/release/adk-bridge",
                "cargo",
                "test",
                "--workspace",
                "--test=crash",
                "killed_at_random",
            ],
        ],
        server: None,
        tally: Tally::CargoTest,
    },
    Check {
        name: "fold",
        what: "generated streams fold as in the AI SDK packages",
        needs: &[Need::Node],
        writes: &["{target}/conformance/fold.jsonl"],
        programs: &[
            &[
                "cargo",
                "run",
                "--release",
                "--package=adk-bridge-protocol",
                "--example=fold_corpus",
                "--",
                "{target}/conformance/fold.jsonl",
                "1",
            ],
            &[
                "node",
                "web/conformance/fold.mjs",
                "{target}/conformance/fold.jsonl",
            ],
        ],
        server: None,
        tally: Tally::Named,
    },
    Check {
        name: "ws",
        what: "WebSocket frames against the AI SDK's own transport, both ways",
        needs: &[Need::Node],
        writes: &[
            "{target}/conformance/ws.jsonl",
            "{target}/conformance/ws-client.jsonl",
        ],
        programs: &[
            &[
                "cargo",
                "run",
                "--release",
                "--package=adk-bridge-protocol",
                "--example=ws_frames",
                "--",
                "write",
                "{target}/conformance/ws.jsonl",
            ],
            &[
                "node",
                "web/conformance/ws.mjs",
                "{target}/conformance/ws.jsonl",
                "{target}/conformance/ws-client.jsonl",
            ],
            &[
                "cargo",
                "run",
                "--release",
                "--package=adk-bridge-protocol",
                "--example=ws_frames",
                "--",
                "check",
                "{target}/conformance/ws-client.jsonl",
            ],
        ],
        server: None,
        tally: Tally::Named,
    },
    Check {
        name: "streams",
        what: "every stream is valid for ai 6.0.0, the newest 6 and the newest 7",
        needs: &[Need::Node],
        writes: &["{target}/conformance/streams.jsonl"],
        programs: &[
            &[
                "cargo",
                "run",
                "--release",
                "--package=adk-bridge-protocol",
                "--example=stream_corpus",
                "--",
                "{target}/conformance/streams.jsonl",
            ],
            &[
                "node",
                "web/conformance/streams.mjs",
                "{target}/conformance/streams.jsonl",
            ],
        ],
        server: None,
        tally: Tally::Named,
    },
    Check {
        name: "predicates",
        what: "the auto-send oracle agrees with the AI SDK's helpers",
        needs: &[Need::Node],
        writes: &["{target}/conformance/predicates.jsonl"],
        programs: &[
            &[
                "cargo",
                "run",
                "--release",
                "--package=adk-bridge-protocol",
                "--example=predicate_corpus",
                "--",
                "{target}/conformance/predicates.jsonl",
            ],
            &[
                "node",
                "web/conformance/predicates.mjs",
                "{target}/conformance/predicates.jsonl",
            ],
        ],
        server: None,
        tally: Tally::Named,
    },
    Check {
        name: "chat",
        what: "the AI SDK's own chats, versions 6 and 7, against the real binary",
        needs: &[Need::Node],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["node", "web/chat/run.mjs", "{target}/debug/adk-bridge"],
        ],
        server: None,
        tally: Tally::Named,
    },
    Check {
        name: "adk",
        what: "the same chats with a real ADK server behind the bridge, restarts included",
        needs: &[Need::Node, Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &[
                "node",
                "web/chat/run-remote.mjs",
                "{target}/debug/adk-bridge",
                "{python}",
            ],
        ],
        server: None,
        tally: Tally::Named,
    },
    Check {
        name: "client",
        what: "the front end library with AI SDK versions 6 and 7, and its audio in a real browser",
        needs: &[Need::Node, Need::Chromium, Need::Espeak],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &[
                "node",
                "web/client/scripts/test.mjs",
                "{target}/debug/adk-bridge",
            ],
        ],
        server: None,
        tally: Tally::Named,
    },
    Check {
        name: "ui",
        what: "the page in a real browser, against the real binary",
        needs: &[Need::Node, Need::Python, Need::Chromium],
        writes: &[],
        programs: &[
            &["npm", "run", "check", "--prefix", "web/ui"],
            &["npm", "run", "test", "--prefix", "web/ui"],
            &["npm", "run", "build", "--prefix", "web/ui"],
            &["cargo", "build", "--package=adk-bridge"],
            &[
                "node",
                "web/e2e/run.mjs",
                "{target}/debug/adk-bridge",
                "{target}/e2e",
                "{python}",
            ],
        ],
        server: None,
        tally: Tally::Named,
    },
    Check {
        name: "google",
        what: "Google's own types accept what the bridge sends to agents",
        needs: &[Need::Python],
        writes: &[
            "{target}/conformance/google/contents.jsonl",
            "{target}/conformance/google/events.jsonl",
        ],
        programs: &[
            &[
                "cargo",
                "run",
                "--release",
                "--package=adk-bridge-protocol",
                "--example=google_corpus",
                "--",
                "{target}/conformance/google",
            ],
            &[
                "{python}",
                "python/check_google.py",
                "{target}/conformance/google/contents.jsonl",
                "{target}/conformance/google/events.jsonl",
            ],
        ],
        server: None,
        tally: Tally::Named,
    },
    Check {
        name: "gemini",
        what: "Google's own clients work against the scripted Gemini",
        needs: &[Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["{python}", "python/check_gemini.py", "{address}"],
        ],
        server: Some(&["{target}/debug/adk-bridge", "fake-gemini", "--pace=0ms"]),
        tally: Tally::Named,
    },
    Check {
        name: "live",
        what: "Google's own live client works against the scripted Gemini",
        needs: &[Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["{python}", "python/check_live.py", "{address}"],
        ],
        server: Some(&["{target}/debug/adk-bridge", "fake-gemini", "--pace=0ms"]),
        tally: Tally::Named,
    },
    Check {
        name: "adk-live",
        what: "a real ADK server is spoken with through the bridge, its model being the scripted Gemini",
        needs: &[Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &[
                "{python}",
                "python/check_adk_live.py",
                "{target}/debug/adk-bridge",
                "{address}",
            ],
        ],
        server: Some(&["{target}/debug/adk-bridge", "fake-gemini", "--pace=0ms"]),
        tally: Tally::Named,
    },
];

impl Check {
    /// Runs the check, its output going to the log.
    pub(crate) fn run(&self, workspace: &Workspace, log: &mut Log) -> Verdict {
        let outcome = self
            .clear_way(workspace)
            .and_then(|()| self.run_programs(workspace, log))
            .and_then(|()| self.tally.read(self.name, &log.text()));
        match outcome {
            Ok(detail) => Verdict::Passed(detail),
            Err(reason) => Verdict::Failed(reason),
        }
    }

    fn clear_way(&self, workspace: &Workspace) -> Result<(), String> {
        for path in self.writes {
            let path = workspace.root.join(fill(path, workspace));
            if let Some(parent) = path.parent() {
                std::fs::create_dir_all(parent)
                    .map_err(|e| format!("cannot create {}: {e}", parent.display()))?;
            }
            match std::fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                    return Err(format!("cannot remove {}: {e}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn run_programs(&self, workspace: &Workspace, log: &mut Log) -> Result<(), String> {
        let Some((last, before)) = self.programs.split_last() else {
            return Ok(());
        };
        for words in before {
            log.run(&mut command(words, "", workspace))?;
        }
        let server = match self.server {
            Some(words) => Some(Server::start(&mut command(words, "", workspace))?),
            None => None,
        };
        let address = server.as_ref().map_or("", |server| server.address.as_str());
        log.run(&mut command(last, address, workspace))
    }
}

impl Tally {
    fn read(&self, name: &str, log: &str) -> Result<String, String> {
        let (passed, failed) = match self {
            Self::None => return Ok(String::new()),
            Self::CargoTest => cargo_tally(log),
            Self::Named => named_tally(name, log)
                .ok_or_else(|| format!("it did not close with `{name}: N passed, M failed`"))?,
        };
        match (passed, failed) {
            (0, 0) => Err("it ended well but looked at nothing".into()),
            (_, 0) => Ok(format!("{passed} passed")),
            _ => Err(format!("{failed} failed")),
        }
    }
}

fn command(words: &[&str], address: &str, workspace: &Workspace) -> Command {
    let mut words = words
        .iter()
        .map(|word| fill(word, workspace).replace("{address}", address));
    let program = words.next().unwrap_or_default();
    let mut command = match program.as_str() {
        "cargo" => process::cargo(),
        "npm" => process::script("npm"),
        _ => Command::new(program),
    };
    command.args(words).current_dir(&workspace.root);
    command
}

/// Puts in the paths, from the project's root where they lie below it: programs run there.
fn fill(word: &str, workspace: &Workspace) -> String {
    let short = |path: &Path| {
        let path = path.strip_prefix(&workspace.root).unwrap_or(path);
        path.to_string_lossy().into_owned()
    };
    word.replace("{target}", &short(&workspace.target))
        .replace("{python}", &short(&workspace.python()))
}

/// Adds up lines such as `test result: ok. 3 passed; 0 failed; 0 ignored; …`.
fn cargo_tally(log: &str) -> (u64, u64) {
    log.lines()
        .filter(|line| line.starts_with("test result:"))
        .fold((0, 0), |(passed, failed), line| {
            let number_before = |word: &str| {
                line.split(['.', ';'])
                    .filter_map(|piece| piece.trim().strip_suffix(word))
                    .find_map(|number| number.trim().parse::<u64>().ok())
                    .unwrap_or(0)
            };
            (
                passed + number_before("passed"),
                failed + number_before("failed"),
            )
        })
}

/// Finds the last line of the form `NAME: N passed, M failed`.
fn named_tally(name: &str, log: &str) -> Option<(u64, u64)> {
    log.lines().rev().find_map(|line| {
        let counts = line.trim().strip_prefix(name)?.strip_prefix(": ")?;
        let (passed, failed) = counts.split_once(", ")?;
        let passed = passed.strip_suffix(" passed")?.parse().ok()?;
        let failed = failed.strip_suffix(" failed")?.parse().ok()?;
        Some((passed, failed))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargo_results_are_added_up() {
        let log = "running 3 tests\n\
            test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 0 filtered out; finished in 0.00s\n\
            test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s\n";
        assert_eq!(cargo_tally(log), (7, 2));
        assert_eq!(Tally::CargoTest.read("test", log), Err("2 failed".into()));
    }

    #[test]
    fn a_check_must_close_with_its_own_counts() {
        let cases = [
            ("fold: 3 passed, 0 failed\n", Ok("3 passed")),
            (
                "fold: 9 passed, 0 failed\nfold: 3 passed, 1 failed\n",
                Err("1 failed"),
            ),
            (
                "fold: 0 passed, 0 failed\n",
                Err("it ended well but looked at nothing"),
            ),
            (
                "ws: 3 passed, 0 failed\n",
                Err("it did not close with `fold: N passed, M failed`"),
            ),
            (
                "fold: some passed, 0 failed\n",
                Err("it did not close with `fold: N passed, M failed`"),
            ),
            ("", Err("it did not close with `fold: N passed, M failed`")),
        ];
        for (log, expected) in cases {
            let expected = expected.map(String::from).map_err(String::from);
            assert_eq!(Tally::Named.read("fold", log), expected, "{log:?}");
        }
    }
}
