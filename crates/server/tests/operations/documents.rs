//! What the operator's guide and the alerts say is what the program has.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use adk_bridge::metrics::{ClusterFigures, Metrics};
use tempfile::TempDir;

use super::{printed, run};

const GUIDE: &str = include_str!("../../../../docs/operations.md");
const ALERTS: &str = include_str!("../../../../deploy/alerts.yaml");
const REFERENCE: &str = include_str!("../../../../docs/configuration.md");
const PERFORMANCE: &str = include_str!("../../../../docs/performance.md");
const PROTOCOL: &str = include_str!("../../../../PROTOCOL.md");

/// The files whose errors keep a bridge from starting, its store from working, or a store from being moved.
const ERRORS: [&str; 7] = [
    "server.rs",
    "config.rs",
    "store/error.rs",
    "store/transfer/mod.rs",
    "telemetry/tracer.rs",
    "cluster.rs",
    "chat/toolbox.rs",
];
/// The commands whose failures somebody reads who has just run them.
const COMMANDS: [&str; 3] = ["backup.rs", "migrate_store.rs", "audit/command.rs"];
/// Errors of these files that no operator meets.
const OF_CLIENTS: [&str; 5] = [
    "this replica is not one of the cluster at the moment",
    // For the code that continues from what is stored.
    "is in progress; close it first",
    "has run already",
    "was cut from the history",
    "is in this chat already",
];

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// The literals that follow a word in a source, continued lines joined.
fn literals_after(source: &str, word: &str) -> Vec<String> {
    let mut found = Vec::new();
    for rest in source.split(word).skip(1) {
        if rest.starts_with("transparent") {
            continue;
        }
        // Fields may come before the text.
        let Some(begin) = rest.find('"') else {
            continue;
        };
        let rest = &rest[begin + 1..];
        let mut text = String::new();
        let mut characters = rest.chars().peekable();
        while let Some(c) = characters.next() {
            match c {
                '"' => break,
                '\\' => match characters.next() {
                    Some('\n') => {
                        while characters.peek().is_some_and(|c| c.is_whitespace()) {
                            characters.next();
                        }
                    }
                    Some(escaped) => text.push(escaped),
                    None => {}
                },
                c => text.push(c),
            }
        }
        found.push(text);
    }
    found
}

/// The fixed pieces of a message, without what it is about.
fn pieces(message: &str) -> Vec<String> {
    let mut pieces = vec![String::new()];
    let mut depth = 0;
    for c in message.chars() {
        match c {
            '{' => depth += 1,
            '}' => {
                depth -= 1;
                pieces.push(String::new());
            }
            c if depth == 0 => pieces.last_mut().unwrap().push(c),
            _ => {}
        }
    }
    let words = |piece: &String| piece.split_whitespace().count() >= 2;
    let pieces = pieces.into_iter().map(|piece| piece.trim().to_owned());
    pieces.filter(words).collect()
}

/// Phrases of the guide, which are written as code.
fn phrases() -> Vec<String> {
    let code = GUIDE.split('`').skip(1).step_by(2);
    code.map(|phrase| phrase.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect()
}

fn is_explained(message: &str, phrases: &[String]) -> bool {
    let pieces = pieces(message);
    pieces.is_empty()
        || pieces.iter().any(|piece| {
            phrases
                .iter()
                .any(|phrase| phrase.split(' ').count() >= 2 && piece.contains(phrase.as_str()))
        })
}

#[test]
fn the_runbook_explains_every_error_of_the_start_and_of_the_store() {
    let phrases = phrases();
    let mut missing = Vec::new();
    let mut looked_at = 0;
    for file in ERRORS {
        let source = std::fs::read_to_string(sources().join(file)).unwrap();
        for message in literals_after(&source, "#[error(") {
            if OF_CLIENTS.iter().any(|known| message.contains(known)) {
                continue;
            }
            looked_at += 1;
            if !is_explained(&message, &phrases) {
                missing.push(format!("{message:?} ({file})"));
            }
        }
    }
    assert!(
        missing.is_empty(),
        "docs/operations.md has no part of {missing:#?}"
    );
    assert!(looked_at > 30, "{looked_at}");
}

/// What the log says above the level of information: an error, or what an operator may have to act on.
#[test]
fn the_runbook_explains_every_line_that_is_logged_as_an_error_or_a_warning() {
    let phrases = phrases();
    let mut missing = Vec::new();
    let mut looked_at = [0, 0];
    // Agents are clients of the models and servers that a line is about.
    let mut directories = vec![sources(), sources().join("../../agents/src")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
                continue;
            }
            let source = std::fs::read_to_string(&path).unwrap();
            for (level, word) in ["tracing::error!(", "tracing::warn!("].iter().enumerate() {
                for message in literals_after(&source, word) {
                    looked_at[level] += 1;
                    if !is_explained(&message, &phrases) {
                        missing.push(format!("{message:?} ({})", path.display()));
                    }
                }
            }
        }
    }
    assert!(
        missing.is_empty(),
        "docs/operations.md has no part of {missing:#?}"
    );
    assert!(looked_at[0] > 15 && looked_at[1] > 100, "{looked_at:?}");
}

#[test]
fn the_runbook_explains_every_failure_of_a_command() {
    let phrases = phrases();
    let mut missing = Vec::new();
    let mut looked_at = 0;
    for file in COMMANDS {
        let source = std::fs::read_to_string(sources().join(file)).unwrap();
        for word in ["bail!(", "context("] {
            for message in literals_after(&source, word) {
                looked_at += 1;
                if !is_explained(&message, &phrases) {
                    missing.push(format!("{message:?} ({file})"));
                }
            }
        }
    }
    assert!(
        missing.is_empty(),
        "docs/operations.md has no part of {missing:#?}"
    );
    assert!(looked_at > 25, "{looked_at}");
}

#[test]
fn the_runbook_has_every_code_of_a_failing_server() {
    let mut looked_at = 0;
    for row in PROTOCOL.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = row.split('|').skip(1);
        let (Some(status), Some(codes)) = (cells.next(), cells.next()) else {
            continue;
        };
        for status in status.split(',').map(str::trim) {
            if status.len() != 3 || !status.starts_with('5') {
                continue;
            }
            for code in codes.split('`').skip(1).step_by(2) {
                looked_at += 1;
                let phrase = format!("`{status} {code}`");
                assert!(GUIDE.contains(&phrase), "docs/operations.md lacks {phrase}");
            }
        }
    }
    assert!(looked_at >= 6, "{looked_at}");
}

#[test]
fn alerts_look_at_metrics_that_there_are_and_are_explained() {
    let figures = ClusterFigures {
        replicas: 1,
        clock_millis: 0,
    };
    let metrics = Metrics::default();
    metrics.agent("demo");
    let exported = metrics.text(0, 0, Some(figures));
    let is_part = |c: char| c.is_ascii_lowercase() || c == '_';
    let names: BTreeSet<&str> = ALERTS
        .match_indices("adk_bridge_")
        .map(|(at, _)| {
            let rest = &ALERTS[at..];
            &rest[..rest.find(|c: char| !is_part(c)).unwrap_or(rest.len())]
        })
        .collect();
    assert!(names.len() > 8, "{names:?}");
    for name in names {
        let is_there = exported.lines().any(|line| {
            line.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(['{', ' ']))
        });
        assert!(is_there, "{name} is not exported");
    }
    // So are their labels.
    for selector in ALERTS.split('{').skip(1).filter(|it| it.contains("\"}")) {
        let selector = selector.split('}').next().unwrap();
        let Some((label, value)) = selector.split_once('=') else {
            continue;
        };
        if label == "job" {
            continue;
        }
        for word in value.trim_matches(['~', '"']).split('|') {
            let pair = format!("{label}=\"{word}\"");
            assert!(exported.contains(&pair), "{pair} is not exported");
        }
    }
    let alerts = ALERTS
        .lines()
        .filter_map(|it| it.trim().strip_prefix("- alert: "));
    for alert in alerts {
        assert!(
            GUIDE.contains(&format!("| `{alert}` |")),
            "docs/operations.md lacks {alert}"
        );
    }
}

#[test]
fn the_figures_of_the_guide_are_those_that_were_measured() {
    let section = GUIDE.split("\n## Size\n").nth(1).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let is_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | ',');
    let numbers = |text: &str| {
        let found = text.split(|c| !is_number(c));
        let found = found.map(|it| it.trim_matches(['.', ',']).to_owned());
        found.filter(|it| !it.is_empty()).collect::<BTreeSet<_>>()
    };
    let measured = numbers(PERFORMANCE);
    let rows = section.lines().filter(|line| line.contains("`cargo xtask"));
    let mut looked_at = 0;
    for row in rows.filter(|row| row.starts_with("| ")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        for number in numbers(cells[2]) {
            looked_at += 1;
            assert!(measured.contains(&number), "{number} of {row}");
        }
        let command = cells[3].split('`').nth(1).unwrap();
        assert!(PERFORMANCE.contains(&format!("`{command}`")), "{command}");
    }
    assert!(looked_at >= 9, "{looked_at}");
}

#[test]
fn the_variables_of_the_reference_are_those_of_the_program() {
    let directory = TempDir::new().unwrap();
    let check = |variables: &[(&str, &str)]| {
        let output = run(directory.path(), &["check-config"], variables);
        (output.status.code(), printed(&output))
    };
    let is_unknown = |said: &str| said.contains("unknown field") || said.contains("is unknown");
    let code = REFERENCE.split('`').skip(1).step_by(2);
    let (examples, names): (Vec<&str>, Vec<&str>) = code
        .filter(|it| it.starts_with("ADK_BRIDGE__"))
        .partition(|it| it.contains('='));
    assert!(names.len() > 90, "{}", names.len());
    // A table and its keys are not set together.
    let is_table = |name: &&str| names.iter().any(|it| it.starts_with(&format!("{name}__")));
    let (tables, keys): (Vec<&str>, Vec<&str>) = names.iter().partition(|name| is_table(name));
    // So few at a time that everything that is wrong is said.
    for some in keys.chunks(30).chain(tables.chunks(30)) {
        let variables: Vec<_> = some.iter().map(|name| (*name, "?")).collect();
        let (_, said) = check(&variables);
        assert!(!is_unknown(&said), "{said}");
    }
    let (_, said) = check(&[("ADK_BRIDGE__LIMITS__TURN", "3")]);
    assert!(is_unknown(&said), "{said}");
    assert!(examples.len() > 1, "{examples:?}");
    for example in examples {
        let (code, said) = check(&[example.split_once('=').unwrap()]);
        assert_eq!(code, Some(0), "{example}: {said}");
    }
}
