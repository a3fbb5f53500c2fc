//! Holds the rules of who may know whom: crates, modules, endpoints, the two vocabularies, SDK versions, and what every file
//! owes its reader.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the sources must read them, and one that cannot go on has failed"
)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the protocol must not even pull in: whoever waits, talks, rolls dice or looks at the clock.
const NOT_IN_THE_PROTOCOL: &[&str] = &[
    "async-std",
    "axum",
    "chrono",
    "fastrand",
    "getrandom",
    "h2",
    "hyper",
    "mio",
    "rand",
    "rand_core",
    "reqwest",
    "socket2",
    "sqlx",
    "time",
    "tokio",
    "tungstenite",
    "uuid",
];

/// Which crates of the workspace each one may use. Dependencies point one way.
const CRATES: &[(&str, &[&str])] = &[
    ("crates/protocol", &[]),
    ("crates/agents", &["adk-bridge-protocol"]),
    ("crates/demo", &["adk-bridge-protocol", "adk-bridge-agents"]),
    (
        "crates/server",
        &[
            "adk-bridge-protocol",
            "adk-bridge-agents",
            "adk-bridge-demo",
        ],
    ),
    // Shared by tests, and by what writes the corpora of the conformance checks.
    ("crates/testkit", &["adk-bridge-protocol"]),
    (
        "crates/conformance",
        &["adk-bridge-protocol", "adk-bridge-testkit"],
    ),
    // It measures the binary from outside.
    ("crates/bench", &["adk-bridge-testkit"]),
    // It tries every parser.
    (
        "crates/fuzz",
        &["adk-bridge", "adk-bridge-agents", "adk-bridge-protocol"],
    ),
    // A user's program.
    ("examples/rust", &["adk-bridge"]),
    ("xtask", &[]),
];

/// Where both vocabularies are at home: these files turn one into the other.
const TRANSLATORS: &[&str] = &["translate/", "history.rs", "metadata.rs"];

/// Every other file that speaks of chunks or messages, and all that it may take from the agents' vocabulary.
const BORROWED_WORDS: &[(&str, &[&str], &str)] = &[
    ("reply/mod.rs", &["Event"], "hands events to the translator"),
    (
        "reply/remote.rs",
        &[
            "FunctionResponse",
            "REQUEST_CONFIRMATION",
            "REQUEST_CREDENTIAL",
        ],
        "settles a remote agent's calls by its responses, and answers them in its words",
    ),
    (
        "reply/questions.rs",
        &["REQUEST_INPUT"],
        "the name of the call that asks the user",
    ),
    (
        "reply/credentials.rs",
        &["FunctionCall", "REQUEST_CREDENTIAL"],
        "shows a remote agent's request for credentials as a call",
    ),
    (
        "reply/judge.rs",
        &["REQUEST_CREDENTIAL"],
        "clients answer a call of this name without saying anything",
    ),
    (
        "reply/stance.rs",
        &["REQUEST_CONFIRMATION"],
        "clients of the adk dialect answer a call of this name",
    ),
    (
        "dialect/adk.rs",
        &["REQUEST_CONFIRMATION"],
        "the adk dialect shows a call of this name",
    ),
    (
        "wire/sse.rs",
        &["MAX_EVENT_BYTES"],
        "reads events without looking into them",
    ),
];

/// All that the agents' vocabulary may take from the front ends': a type of string.
const WORDS_OF_EVENTS: &[&str] = &["Str"];

/// Modules of the protocol that use one below them, and what for.
const UPWARDS: &[(&str, &str, &str)] =
    &[("outbox", "reply", "a commit carries the reply's record")];

/// What the protocol's own lints must refuse, in code that does not need a crate for it.
const BANNED: &[&str] = &[
    "std::time::Instant",
    "std::time::SystemTime",
    "std::time::Instant::now",
    "std::time::SystemTime::now",
    "std::net::TcpStream",
    "std::net::TcpListener",
    "std::net::UdpSocket",
    "std::fs::File",
    "std::thread::spawn",
    "std::thread::sleep",
    "std::collections::hash_map::RandomState",
];

/// A type with more state than this has two jobs. Records, whose fields are all open, are as long as what they record.
const MAX_FIELDS: usize = 12;

#[test]
fn the_protocol_pulls_in_nobody_who_waits() {
    let tree = Command::new(env!("CARGO"))
        .args([
            "tree",
            "--offline",
            "--locked",
            "--edges=normal",
            "--prefix=none",
        ])
        .args(["--package=adk-bridge-protocol", "--format={p}"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        tree.status.success(),
        "{}",
        String::from_utf8_lossy(&tree.stderr)
    );
    let tree = String::from_utf8(tree.stdout).unwrap();
    let crates: BTreeSet<&str> = tree
        .lines()
        .filter_map(|line| line.split(' ').next())
        .collect();
    assert!(crates.contains("serde_json"), "{tree}");
    let found: Vec<_> = NOT_IN_THE_PROTOCOL
        .iter()
        .filter(|name| crates.contains(**name))
        .collect();
    assert!(found.is_empty(), "the protocol depends on {found:?}");
}

#[test]
fn crates_depend_one_way() {
    for (folder, allowed) in CRATES {
        let manifest = std::fs::read_to_string(root().join(folder).join("Cargo.toml")).unwrap();
        let used: Vec<&str> = manifest
            .lines()
            .skip_while(|line| *line != "[dependencies]")
            .skip(1)
            .take_while(|line| !line.starts_with('['))
            .filter_map(|line| line.split(['.', ' ', '=']).next())
            .filter(|name| name.starts_with("adk-bridge"))
            .collect();
        for name in used {
            assert!(
                allowed.contains(&name),
                "{folder} must not depend on {name}"
            );
        }
    }
    let members = std::fs::read_to_string(root().join("Cargo.toml")).unwrap();
    for line in members.lines().filter(|line| line.starts_with("members")) {
        for member in line.split('"').skip(1).step_by(2) {
            assert!(
                CRATES.iter().any(|(folder, _)| *folder == member),
                "no rule for {member}"
            );
        }
    }
}

#[test]
fn two_vocabularies_meet_in_few_places() {
    let source = root().join("crates/protocol/src");
    let mut unused: BTreeSet<&str> = BORROWED_WORDS.iter().map(|(file, ..)| *file).collect();
    for path in rust_files(&source) {
        let file = path
            .strip_prefix(&source)
            .unwrap()
            .to_string_lossy()
            .replace('\\', "/");
        let code = code_of(&path);
        let of_agents = words_of(&code, "event");
        let of_front_ends = &words_of(&code, "chunk") | &words_of(&code, "message");
        if file == "event.rs" || file.starts_with("event/") {
            let allowed = WORDS_OF_EVENTS
                .iter()
                .map(|word| (*word).to_owned())
                .collect();
            assert!(
                of_front_ends.is_subset(&allowed),
                "{file} must not know {of_front_ends:?}"
            );
            continue;
        }
        if TRANSLATORS.iter().any(|place| file.starts_with(place)) {
            continue;
        }
        let rule = BORROWED_WORDS.iter().find(|(name, ..)| *name == file);
        if let Some((name, words, _)) = rule {
            let words: BTreeSet<String> = words.iter().map(|word| (*word).to_owned()).collect();
            assert_eq!(of_agents, words, "{file}");
            unused.remove(name);
        } else {
            assert!(
                of_agents.is_empty() || of_front_ends.is_empty(),
                "{file} knows both vocabularies: {of_agents:?} and {of_front_ends:?}"
            );
        }
    }
    assert!(
        unused.is_empty(),
        "rules for files that are not there: {unused:?}"
    );
}

/// The table in `lib.rs` lists the modules from the bottom to the top.
#[test]
fn modules_of_the_protocol_use_only_those_before_them() {
    let source = root().join("crates/protocol/src");
    let map = std::fs::read_to_string(source.join("lib.rs")).unwrap();
    let order = layers(&map);
    let declared: BTreeSet<&str> = map
        .lines()
        .filter_map(|line| {
            line.trim_start_matches("pub ")
                .strip_prefix("mod ")?
                .strip_suffix(';')
        })
        .collect();
    let listed: BTreeSet<&str> = (order.iter().copied())
        .filter(|module| !module.contains("::"))
        .collect();
    assert_eq!(listed, declared, "the table in lib.rs and its modules");

    let place = |module: &str| order.iter().position(|other| *other == module).unwrap();
    let mut upwards = BTreeSet::new();
    for path in rust_files(&source) {
        let file = path.strip_prefix(&source).unwrap().with_extension("");
        let file = file.to_string_lossy().replace(['/', '\\'], "::");
        if file == "lib" {
            continue;
        }
        let user = layer_of(&file, &order).unwrap_or_else(|| panic!("no layer for {file}"));
        let code = code_of(&path);
        for (at, crate_path) in code.match_indices("crate::") {
            let used = &code[at + crate_path.len()..];
            let used = layer_of(used, &order).unwrap_or_else(|| panic!("{file} uses {used:.40}"));
            if place(used) > place(user) {
                upwards.insert((user, used));
            }
        }
    }
    let allowed = UPWARDS.iter().map(|(user, used, _)| (*user, *used));
    assert_eq!(upwards, allowed.collect());
}

/// The names in the first column of the table in `lib.rs`.
fn layers(map: &str) -> Vec<&str> {
    map.lines()
        .filter_map(|line| line.strip_prefix("//! | [`")?.split(" | ").next())
        .flat_map(|names| names.split(", "))
        .filter_map(|name| name.trim_start_matches("[`").split('`').next())
        .collect()
}

/// The module that a path in the crate begins with.
fn layer_of<'o>(path: &str, order: &[&'o str]) -> Option<&'o str> {
    let begins = |module: &&&'o str| {
        path.strip_prefix(**module)
            .is_some_and(|rest| !rest.starts_with(is_word))
    };
    let found = order.iter().filter(begins);
    found.max_by_key(|module| module.len()).copied()
}

#[test]
fn only_one_file_names_versions_of_the_sdk() {
    let naming: Vec<PathBuf> = ["protocol", "agents", "demo", "server", "bench"]
        .iter()
        .flat_map(|name| rust_files(&root().join("crates").join(name).join("src")))
        .filter(|path| code_of(path).contains("Sdk::V"))
        .collect();
    let table = root().join("crates/protocol/src/sdk.rs");
    assert_eq!(naming, [table], "ask for a feature instead");
}

/// Whom connections trust is said once (`tls.ca_file`).
#[test]
fn clients_over_http_are_made_in_one_place() {
    let made: Vec<PathBuf> = ["agents", "server"]
        .iter()
        .flat_map(|name| rust_files(&root().join("crates").join(name).join("src")))
        .filter(|path| {
            let code = code_of(path);
            let names = [
                "reqwest::Client::builder",
                "reqwest::Client::new",
                "Client::builder()",
            ];
            names.iter().any(|name| code.contains(name))
        })
        .collect();
    let one = root().join("crates/agents/src/trust.rs");
    assert_eq!(made, [one], "begin with trust::http_client()");
}

/// A chat asks its agent through the traits: whose it is shows in nothing but what the traits tell.
#[test]
fn chats_name_no_agent() {
    let chat = root().join("crates/server/src/chat");
    let mut files = rust_files(&chat);
    files.push(chat.with_extension("rs"));
    for path in files.iter().filter(|path| path.exists()) {
        let code = code_of(path);
        for name in [
            "gemini",
            "adk_server",
            "AdkServer",
            "Gemini",
            "adk_bridge_demo",
        ] {
            assert!(!code.contains(name), "{}: {name}", path.display());
        }
    }
}

/// What a refusal is called over HTTP is decided by whoever reads requests.
#[test]
fn chats_know_nothing_of_http() {
    for path in rust_files(&root().join("crates/server/src/chat")) {
        let code = code_of(&path);
        for name in [
            "axum",
            "http::",
            "hyper",
            "StatusCode",
            "AppError",
            "crate::transport",
            "crate::error",
        ] {
            assert!(!code.contains(name), "{}: {name}", path.display());
        }
    }
}

/// Only the kind of agents that is the demo, and the command that serves its model, know the demo.
#[test]
fn the_demo_is_named_in_two_places() {
    let source = root().join("crates/server/src");
    let mut found: Vec<String> = rust_files(&source)
        .into_iter()
        .filter(|path| code_of(path).contains("adk_bridge_demo"))
        .map(|path| path.strip_prefix(&source).unwrap().display().to_string())
        .collect();
    found.sort();
    assert_eq!(found, ["agent_kinds/demo.rs", "fake_gemini.rs"]);
}

/// Whoever reads requests asks the chat, and nobody behind it.
#[test]
fn endpoints_name_neither_an_agent_nor_the_store() {
    for path in rust_files(&root().join("crates/server/src/transport")) {
        // The one file that gives every error its status gives it to those of the store, too.
        let maps_errors =
            path.ends_with("transport/error.rs") || path.ends_with("transport/error/tests.rs");
        let code = code_of(&path);
        for module in ["adk_bridge_agents::", "crate::store::"] {
            if maps_errors && module == "crate::store::" {
                continue;
            }
            assert!(!code.contains(module), "{}: {module}", path.display());
        }
    }
}

#[test]
fn every_file_says_what_it_is_for() {
    let mut seen = 0;
    for folder in ["crates", "xtask"] {
        for path in rust_files(&root().join(folder)) {
            seen += 1;
            let text = std::fs::read_to_string(&path).unwrap();
            let name = path.display();
            let first: Vec<&str> = text
                .lines()
                .map_while(|line| line.strip_prefix("//! "))
                .collect();
            let sentence = first.join(" ");
            assert!(
                sentence.ends_with('.'),
                "{name} must open with a sentence after `//!`"
            );
            assert_eq!(
                sentence.matches(". ").count(),
                0,
                "{name} must open with one sentence"
            );
        }
    }
    assert!(seen > 50, "{seen} files");
}

#[test]
fn types_have_few_fields() {
    let mut seen = 0;
    for folder in ["crates", "xtask"] {
        for path in rust_files(&root().join(folder)) {
            let is_test = ["tests", "testkit"]
                .iter()
                .any(|place| path.components().any(|part| part.as_os_str() == *place));
            for (name, fields) in structs(&code_of(&path)) {
                seen += 1;
                let is_record = fields.iter().all(|field| field.starts_with("pub "));
                assert!(
                    is_test || is_record || fields.len() <= MAX_FIELDS,
                    "{}: {name} has {} fields; give some of them to a type of their own",
                    path.display(),
                    fields.len()
                );
            }
        }
    }
    assert!(seen > 100, "{seen} types");
}

#[test]
fn the_protocols_lints_refuse_time_sockets_and_dice() {
    let lints = std::fs::read_to_string(root().join("crates/protocol/clippy.toml")).unwrap();
    for path in BANNED {
        let entry = format!("{{ path = \"{path}\", reason = \"");
        assert!(
            lints.contains(&entry),
            "clippy.toml must ban {path} with a reason"
        );
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn rust_files(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(rust_files(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    files
}

/// The lines of a file that are compiled into the library.
fn code_of(path: &Path) -> String {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines()
        .take_while(|line| *line != "#[cfg(test)]")
        .filter(|line| !line.trim_start().starts_with("//"))
        .fold(String::new(), |code, line| code + line + "\n")
}

/// The types with named fields, as rustfmt writes them.
fn structs(code: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut inside = None;
    for line in code.lines() {
        let text = line.trim_start();
        let indent = line.len() - text.len();
        let declared = text.split_once("struct ").filter(|(before, _)| {
            before.is_empty() || before.starts_with("pub") && !before.contains('"')
        });
        match (inside, declared) {
            (None, Some((_, rest))) if text.ends_with('{') => {
                let name = rest.split(|char| !is_word(char)).next().unwrap();
                found.push((name, Vec::new()));
                inside = Some(indent);
            }
            (Some(start), _) if indent == start && text.starts_with('}') => inside = None,
            (Some(start), _) if indent == start + 4 && text.contains(": ") => {
                found.last_mut().unwrap().1.push(text);
            }
            _ => {}
        }
    }
    found
}

/// What a file takes from a module of the crate, by `use` or by path.
fn words_of(code: &str, module: &str) -> BTreeSet<String> {
    let prefix = format!("crate::{module}::");
    let mut words = BTreeSet::new();
    for (at, _) in code.match_indices(&prefix) {
        let rest = &code[at + prefix.len()..];
        let names = match rest.strip_prefix('{') {
            Some(list) => &list[..list.find("};").unwrap()],
            None => &rest[..rest.find(|char: char| !is_word(char)).unwrap_or(rest.len())],
        };
        let names = names.split(|char| !is_word(char) && char != ' ');
        words.extend(
            names
                .filter_map(|name| name.split_whitespace().next())
                .map(str::to_owned),
        );
    }
    words
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}
