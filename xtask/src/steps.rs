//! The checks of `cargo xtask test`, as a table.

use std::path::Path;
use std::process::Command;

use crate::process::{self, Log};
use crate::report::Verdict;
use crate::setup::Need;
use crate::workspace::{Workspace, python_of};

/// One check: programs that are run one after the other until one fails.
///
/// `{target}` stands for the build output directory. `node-test` is `node --test`, `pytest` that of
/// the environment that has Google's packages, and both write a report.
pub(crate) struct Check {
    pub(crate) name: &'static str,
    pub(crate) what: &'static str,
    pub(crate) needs: &'static [Need],
    /// Files that the programs write, removed first so that an old one is never checked.
    writes: &'static [&'static str],
    programs: &'static [&'static [&'static str]],
    tally: Tally,
}

/// What tells how much was looked at. A check that looked at nothing has failed.
enum Tally {
    /// The exit code is all there is.
    None,
    /// Cargo's `test result:` lines.
    CargoTest,
    /// The report of `node-test` or `pytest`, in JUnit's form.
    Report,
    /// A line `NAME: N passed, M failed` of the log, NAME being the check's own.
    Named,
}

/// What replicas and those who talk to them need.
pub(crate) const FLEET_NEEDS: &[Need] = &[Need::Node, Need::Postgres, Need::Haproxy];

/// The formatter and linter of TypeScript, JavaScript and CSS.
pub(crate) const BIOME: &str = "web/lint/node_modules/.bin/biome";

/// All checks, in the order in which they run.
pub(crate) const CHECKS: &[Check] = &[
    Check {
        name: "fmt",
        what: "the Rust code is formatted",
        needs: &[],
        writes: &[],
        programs: &[&["cargo", "fmt", "--all", "--check"]],
        tally: Tally::None,
    },
    Check {
        name: "clippy",
        what: "clippy reports nothing",
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
        tally: Tally::None,
    },
    Check {
        name: "lint",
        what: "the other code is formatted, and its linters report nothing",
        needs: &[Need::Node, Need::Linters],
        writes: &[],
        programs: &[
            &[BIOME, "ci", "--error-on-warnings"],
            &["linters-python", "-m", "ruff", "check"],
            &["linters-python", "-m", "ruff", "format", "--check"],
        ],
        tally: Tally::None,
    },
    Check {
        name: "doc",
        what: "the documentation of the Rust code is complete, and its links lead somewhere",
        needs: &[],
        writes: &[],
        programs: &[&[
            "env",
            "RUSTDOCFLAGS=-D warnings",
            "cargo",
            "doc",
            "--workspace",
            "--no-deps",
            "--document-private-items",
        ]],
        tally: Tally::None,
    },
    Check {
        name: "test",
        what: "the Rust tests",
        needs: &[Need::Postgres],
        writes: &[],
        programs: &[&["cargo", "test", "--workspace", "--no-fail-fast"]],
        tally: Tally::CargoTest,
    },
    Check {
        name: "lean",
        what: "the bridge without the demo, as a library and as a program",
        needs: &[],
        writes: &[],
        programs: &[&[
            "cargo",
            "test",
            "--package=adk-bridge",
            "--no-default-features",
            "--lib",
            "--test=builder",
            "--test=examples",
            "--test=without_demo",
        ]],
        tally: Tally::CargoTest,
    },
    Check {
        name: "kill",
        what: "the release build, killed at random moments, loses nothing that it has sent",
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
        tally: Tally::CargoTest,
    },
    Check {
        name: "buckets",
        what: "files in buckets of a real S3 server, also through the client of Google Cloud Storage",
        needs: &[Need::Postgres, Need::S3],
        writes: &[],
        programs: &[&[
            "env",
            "ADK_BRIDGE_TEST_BUCKETS={target}/venv-s3/bin/python",
            "AWS_ACCESS_KEY_ID=testing",
            "AWS_SECRET_ACCESS_KEY=PLANTED-SECRET-0123456789",
            r#"GOOGLE_SERVICE_ACCOUNT_KEY={"client_email":"a","private_key":"b","private_key_id":"c","disable_oauth":true}"#,
            "cargo",
            "test",
            "--workspace",
            "--test=buckets",
            "--",
            "--include-ignored",
        ]],
        tally: Tally::CargoTest,
    },
    Check {
        name: "guard",
        what: "a turn and a delta take no more instructions and system calls than before",
        needs: &[Need::Valgrind],
        writes: &[],
        programs: &[&["cargo", "xtask", "bench", "guard"]],
        tally: Tally::None,
    },
    Check {
        name: "deploy",
        what: "the files of deploy/ and .github/ pass the linters of those who read them, and the bridge takes their configuration",
        needs: &[Need::Proxies, Need::Linters, Need::Systemd],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &[
                "pytest-linters",
                "python/test_deploy.py",
                "python/test_repository.py",
            ],
        ],
        tally: Tally::Report,
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
                "--package=adk-bridge-conformance",
                "--",
                "fold",
                "{target}/conformance/fold.jsonl",
                "1",
            ],
            &["node-test", "web/conformance/fold.test.mjs"],
        ],
        tally: Tally::Report,
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
                "--package=adk-bridge-conformance",
                "--",
                "ws-frames",
                "{target}/conformance/ws.jsonl",
            ],
            &["node-test", "web/conformance/ws.test.mjs"],
            &[
                "cargo",
                "run",
                "--release",
                "--package=adk-bridge-conformance",
                "--",
                "ws-check",
                "{target}/conformance/ws-client.jsonl",
            ],
        ],
        tally: Tally::Report,
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
                "--package=adk-bridge-conformance",
                "--",
                "streams",
                "{target}/conformance/streams.jsonl",
            ],
            &["node-test", "web/conformance/streams.test.mjs"],
        ],
        tally: Tally::Report,
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
                "--package=adk-bridge-conformance",
                "--",
                "predicates",
                "{target}/conformance/predicates.jsonl",
            ],
            &["node-test", "web/conformance/predicates.test.mjs"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "chat",
        what: "the AI SDK's own chats, versions 6 and 7, against the real binary, and users of a real OpenID provider",
        needs: &[Need::Node],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &[
                "node-test",
                "web/chat/chat.test.mjs",
                "web/chat/access.test.mjs",
                "web/chat/login.test.mjs",
                "web/chat/private-ca.test.mjs",
                "web/chat/secrets.test.mjs",
            ],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "adk",
        what: "the same chats with a real ADK server behind the bridge, restarts included",
        needs: &[Need::Node, Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["node-test", "web/chat/remote.test.mjs"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "adk-matrix",
        what: "the same chats with every supported ADK server of Google's, oldest to newest, Python and TypeScript",
        needs: &[Need::Node, Need::Python, Need::AdkServers],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &[
                "node-test",
                "web/chat/matrix.test.mjs",
                "web/chat/credentials.test.mjs",
            ],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "mcp",
        what: "tools of the official MCP servers, as programs and over HTTP, behind the real binary",
        needs: &[Need::Node, Need::Mcp],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["node-test", "web/mcp/mcp.test.mjs"],
        ],
        tally: Tally::Report,
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
        tally: Tally::Named,
    },
    Check {
        name: "proxies",
        what: "answers stream through Next.js, Vite, Express, nginx and Caddy, configured as docs/front-ends.md shows",
        needs: &[Need::Node, Need::Proxies],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["node-test", "web/proxies/proxies.test.mjs"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "documents",
        what: "every code block of the documents is run, compiled or compared, and none is left out",
        needs: &[Need::Node, Need::Postgres],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["node-test", "web/documents/blocks.test.mjs"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "fleet",
        what: "replicas of the release build, killed, drained and paused while stock chats talk through haproxy",
        needs: FLEET_NEEDS,
        writes: &[],
        programs: &[
            &["cargo", "build", "--release", "--package=adk-bridge"],
            &["node", "web/client/scripts/build.mjs"],
            &[
                "node-test",
                "web/fleet/fleet.test.mjs",
                "web/fleet/login.test.mjs",
            ],
        ],
        tally: Tally::Report,
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
            &["node-test", "web/e2e/page.test.mjs"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "docs-site",
        what: "the documents as a site in a real browser, against the real binary: links, search, colours, a phone",
        needs: &[Need::Node, Need::Chromium],
        writes: &[],
        programs: &[
            &["npm", "run", "build", "--prefix", "web/docs"],
            &["cargo", "build", "--package=adk-bridge"],
            &["node-test", "web/docs/site.test.mjs"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "assistant-ui",
        what: "assistant-ui in a real browser, from another origin and with a key",
        needs: &[Need::Node, Need::Chromium],
        writes: &[],
        programs: &[
            &["npm", "run", "build", "--prefix", "web/assistant-ui"],
            &["cargo", "build", "--package=adk-bridge"],
            &["node-test", "web/assistant-ui/assistant-ui.test.mjs"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "examples",
        what: "every example: pages in a real browser, clients, agents and tools as processes",
        needs: &[Need::Node, Need::Python, Need::AdkServers, Need::Chromium],
        writes: &[],
        programs: &[
            &["node", "web/client/scripts/build.mjs"],
            &[
                "cargo",
                "build",
                "--package=adk-bridge",
                "--package=adk-bridge-example-rust",
            ],
            &["node-test", "examples/tests/examples.test.mjs"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "first-hour",
        what: "a fresh clone, and what the documents tell a newcomer to do with it: the demo, a page and an agent",
        needs: &[Need::Node, Need::Python, Need::Chromium],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["node-test", "packages/first-hour.test.mjs"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "packages",
        what: "the packages of a release, installed into empty places and used; licenses of what is in them",
        needs: &[Need::Node, Need::Python, Need::Pipx],
        writes: &[],
        programs: &[
            &[
                "env",
                "ADK_BRIDGE_REPOSITORY=https://repository.example/adk-bridge",
                "cargo",
                "xtask",
                "release",
                "--uncommitted",
            ],
            &["node-test", "packages/packages.test.mjs"],
        ],
        tally: Tally::Report,
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
                "--package=adk-bridge-conformance",
                "--",
                "google",
                "{target}/conformance/google",
            ],
            &["pytest", "python/test_google.py"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "gemini",
        what: "Google's own clients work against the scripted Gemini",
        needs: &[Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["pytest", "python/test_gemini.py", "python/test_vertex.py"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "live",
        what: "Google's own live client works against the scripted Gemini",
        needs: &[Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["pytest", "python/test_live.py"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "newest-genai",
        what: "Google's newest client works against the scripted Gemini, too",
        needs: &[Need::NewestClient],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &[
                "pytest-newest-client",
                "python/test_gemini.py",
                "python/test_vertex.py",
                "python/test_live.py",
            ],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "openai",
        what: "OpenAI's own package takes what the bridge sends, and reads what its model is played by",
        needs: &[Need::NewestClient],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["pytest-newest-client", "python/test_openai.py"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "openapi",
        what: "the description of the API is valid, and the real binary is as it says, whatever schemathesis sends",
        needs: &[Need::OpenApi],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["pytest-openapi", "python/test_openapi.py"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "adk-live",
        what: "voice conversations with a real ADK server, whose model is the scripted Gemini",
        needs: &[Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["pytest", "python/test_adk_live.py"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "agent-engine",
        what: "conversations with an agent in Google's own implementation of Agent Engine's interface",
        needs: &[Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["pytest", "python/test_agent_engine.py"],
        ],
        tally: Tally::Report,
    },
    Check {
        name: "traces",
        what: "one trace from a page through the bridge and Google's own ADK server to a tool, collected from both",
        needs: &[Need::Python],
        writes: &[],
        programs: &[
            &["cargo", "build", "--package=adk-bridge"],
            &["pytest", "python/test_traces.py"],
        ],
        tally: Tally::Report,
    },
];

impl Check {
    /// Runs the check, its output going to the log.
    pub(crate) fn run(&self, workspace: &Workspace, log: &mut Log) -> Verdict {
        let report = workspace.report(self.name);
        let outcome = self
            .clear_way(workspace, &report)
            .and_then(|()| self.run_programs(workspace, &report, log));
        // A program that fails may have said why in its report.
        let counts = self.tally.read(self.name, &log.text(), &report);
        match (outcome, counts) {
            (Ok(()), Ok(detail)) => Verdict::Passed(detail),
            (Ok(()), Err(reason)) => Verdict::Failed(reason),
            (Err(problem), Err(reason)) if self.tally.is_report() && report.exists() => {
                Verdict::Failed(format!("{reason}: {problem}"))
            }
            (Err(problem), _) => Verdict::Failed(problem),
        }
    }

    fn clear_way(&self, workspace: &Workspace, report: &Path) -> Result<(), String> {
        let writes = self.writes.iter();
        let written = writes.map(|path| workspace.root.join(fill(path, workspace)));
        for path in written.chain([report.to_path_buf()]) {
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

    fn run_programs(
        &self,
        workspace: &Workspace,
        report: &Path,
        log: &mut Log,
    ) -> Result<(), String> {
        for words in self.programs {
            log.run(&mut command(words, report, workspace))?;
        }
        Ok(())
    }
}

impl Tally {
    fn is_report(&self) -> bool {
        matches!(self, Self::Report)
    }

    fn read(&self, name: &str, log: &str, report: &Path) -> Result<String, String> {
        let (passed, failed) = match self {
            Self::None => return Ok(String::new()),
            Self::CargoTest => cargo_tally(log),
            Self::Report => std::fs::read_to_string(report)
                .map(|xml| report_tally(&xml))
                .map_err(|e| format!("it left no report at {}: {e}", report.display()))?,
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

fn command(words: &[&str], report: &Path, workspace: &Workspace) -> Command {
    let (program, arguments) = words.split_first().unwrap_or((&"", &[]));
    let mut command = match *program {
        "cargo" => process::cargo(),
        "npm" => process::script("npm"),
        "node-test" => node_test(report, workspace),
        "linters-python" => Command::new(workspace.linters_python()),
        "pytest" => pytest(&workspace.python(), report, workspace),
        "pytest-linters" => pytest(&workspace.linters_python(), report, workspace),
        "pytest-newest-client" => pytest(&workspace.newest_client_python(), report, workspace),
        "pytest-openapi" => pytest(&python_of(&workspace.openapi_venv()), report, workspace),
        other => Command::new(fill(other, workspace)),
    };
    command
        .args(arguments.iter().map(|word| fill(word, workspace)))
        .current_dir(&workspace.root);
    // Some of them start cargo.
    process::without_package(&mut command);
    command
}

/// Node's own test runner: what it says to the log, its counts to the report.
fn node_test(report: &Path, workspace: &Workspace) -> Command {
    let mut command = Command::new("node");
    command
        .args(["--test", "--test-reporter=spec"])
        .args([
            "--test-reporter-destination=stdout",
            "--test-reporter=junit",
        ])
        .arg(format!(
            "--test-reporter-destination={}",
            short(report, workspace)
        ))
        .env("CARGO_TARGET_DIR", &workspace.target)
        // What was built is tested, whatever somebody tried by hand before.
        .env_remove("ADK_BRIDGE_BINARY")
        .env_remove("ADK_BRIDGE_PYTHON")
        .env_remove("ADK_BRIDGE_OLDEST_PYTHON")
        .env_remove("ADK_BRIDGE_NEWEST_1_PYTHON")
        .env_remove("ADK_BRIDGE_SERVER");
    command
}

fn pytest(python: &Path, report: &Path, workspace: &Workspace) -> Command {
    let mut command = Command::new(short(python, workspace));
    command
        .args(["-m", "pytest"])
        .arg(format!("--junit-xml={}", short(report, workspace)))
        .env("CARGO_TARGET_DIR", &workspace.target);
    command
}

fn fill(word: &str, workspace: &Workspace) -> String {
    word.replace("{target}", &short(&workspace.target, workspace))
}

/// A path from the project's root where it lies below it: programs run there.
fn short(path: &Path, workspace: &Workspace) -> String {
    let path = path.strip_prefix(&workspace.root).unwrap_or(path);
    path.to_string_lossy().into_owned()
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

/// Counts the tests of a report in JUnit's form; a skipped one is neither passed nor failed.
fn report_tally(xml: &str) -> (u64, u64) {
    // Markup in names and messages is escaped, so that this begins a test wherever it is found.
    let tests = xml.split("<testcase ").skip(1);
    tests.fold((0, 0), |(passed, failed), test| {
        let test = test.split("</testcase>").next().unwrap_or_default();
        if test.contains("<failure") || test.contains("<error") {
            (passed, failed + 1)
        } else if test.contains("<skipped") || is_file(test) {
            (passed, failed)
        } else {
            (passed + 1, failed)
        }
    })
}

/// Node reports a file that holds no test as one that passed.
fn is_file(test: &str) -> bool {
    let name = test
        .split("name=\"")
        .nth(1)
        .and_then(|rest| rest.split('"').next());
    name.is_some_and(|name| name.ends_with(".test.mjs"))
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
        let none = Path::new("no report");
        let counts = Tally::CargoTest.read("test", log, none);
        assert_eq!(counts, Err("2 failed".into()));
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
            let none = Path::new("no report");
            assert_eq!(Tally::Named.read("fold", log, none), expected, "{log:?}");
        }
    }

    #[test]
    fn reports_of_both_runners_are_counted() {
        let node = r#"<testsuites>
            <testsuite name="chat" tests="3" failures="1" skipped="1">
                <testcase name="one &lt;testcase " time="0.1" classname="test"/>
                <testcase name="two" time="0.1" classname="test" failure="no">
                    <failure type="testCodeFailure" message="no">&lt;testcase </failure>
                </testcase>
                <testcase name="three" time="0.1" classname="test"><skipped type="skipped"/></testcase>
            </testsuite>
            <testcase name="four" time="0.1" classname="test"/>
            </testsuites>"#;
        assert_eq!(report_tally(node), (2, 1));
        let pytest = r#"<testsuite name="pytest" errors="1" failures="1" tests="3"><testcase classname="a"
            name="one" time="1" /><testcase classname="a" name="two" time="1"><failure message="no">no</failure></testcase
            ><testcase classname="a" name="three" time="1"><error message="no">no</error></testcase></testsuite>"#;
        assert_eq!(report_tally(pytest), (1, 2));
    }

    #[test]
    fn a_file_without_tests_does_not_count() {
        let case =
            r#"<testcase name="/project/web/chat/chat.test.mjs" time="0.2" classname="test""#;
        assert_eq!(report_tally(&format!("{case}/>")), (0, 0));
        let broken = format!("{case}><failure>test failed</failure></testcase>");
        assert_eq!(report_tally(&broken), (0, 1));
    }

    #[test]
    fn a_check_without_a_report_has_failed() {
        let missing = Tally::Report.read("chat", "", Path::new("no report"));
        assert!(missing.is_err_and(|reason| reason.starts_with("it left no report")));
    }
}
