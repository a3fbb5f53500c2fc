//! What the documents name is there: files, folders and headings that they link to, paths that they write as code, and records.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the documents must read them, and one that cannot go on has failed"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// Folders with documents of others, or with what is built.
const FOREIGN: &[&str] = &["node_modules", "target", "dist", "venv", ".git"];

#[test]
fn every_link_leads_somewhere() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap();
    let documents: BTreeMap<PathBuf, String> = documents(&root)
        .into_iter()
        .map(|path| (path.clone(), std::fs::read_to_string(path).unwrap()))
        .collect();
    let mut looked_at = 0;
    let mut broken = Vec::new();
    for (path, text) in &documents {
        for (line, target) in links(text) {
            looked_at += 1;
            let fault = fault(path, &target, &documents);
            broken.extend(fault.map(|fault| {
                let path = path.strip_prefix(&root).unwrap().display();
                format!("{path}:{line}: ({target}) {fault}")
            }));
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
    assert!(looked_at > 150, "only {looked_at} links");
}

/// The folders whose paths are written from the root of the project.
const FOLDERS: &[&str] = &[
    "crates", "deploy", "docs", "examples", "fixtures", "packages", "python", "web", "xtask",
];

#[test]
fn every_path_that_is_written_as_code_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let root = root.canonicalize().unwrap();
    let mut looked_at = 0;
    let mut absent = Vec::new();
    for path in documents(&root) {
        let text = std::fs::read_to_string(&path).unwrap();
        let shown = path.strip_prefix(&root).unwrap().display();
        for (line, named) in paths(&text) {
            looked_at += 1;
            if !root.join(&named).exists() {
                absent.push(format!("{shown}:{line}: `{named}`"));
            }
        }
    }
    assert!(absent.is_empty(), "not there:\n{}", absent.join("\n"));
    assert!(looked_at > 50, "only {looked_at} paths");
}

/// The paths from the root of the project that a document writes as code, each with its line; patterns are left out.
fn paths(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        for code in line.split('`').skip(1).step_by(2) {
            let is_below = |folder: &&str| {
                let rest = code.strip_prefix(*folder);
                rest.is_some_and(|rest| rest.starts_with('/'))
            };
            let is_plain = |char: char| char.is_ascii_alphanumeric() || "/._-".contains(char);
            if FOLDERS.iter().any(is_below) && code.chars().all(is_plain) {
                found.push((index + 1, code.to_owned()));
            }
        }
    }
    found
}

#[test]
fn paths_are_told_from_other_code() {
    let text = "`web/ui`, `crates/a_b/src/lib.rs` and `docs/`\n```sh\n`web/x`\n```\n`web/*` `docs` `webs/a` `docs/a b` `python/{x}`";
    let expected = ["web/ui", "crates/a_b/src/lib.rs", "docs/"];
    let found: Vec<String> = paths(text).into_iter().map(|(_, path)| path).collect();
    assert_eq!(found, expected);
}

/// The index of the decisions has each record once, in their order, with its title and its status.
#[test]
fn the_index_of_the_decisions_has_every_record() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/adr");
    let index = std::fs::read_to_string(folder.join("README.md")).unwrap();
    let rows: Vec<&str> = index
        .lines()
        .filter(|line| line.starts_with("| ["))
        .collect();
    let mut records = documents(&folder);
    records.retain(|path| !path.ends_with("README.md"));
    records.sort();
    assert!(records.len() > 40, "only {} records", records.len());
    let expected: Vec<String> = records
        .iter()
        .map(|path| {
            let file = path.file_name().unwrap().to_str().unwrap();
            let text = std::fs::read_to_string(path).unwrap();
            let mut lines = text.lines();
            let heading = lines.next().unwrap_or_default();
            let (number, title) = heading
                .strip_prefix("# ")
                .and_then(|heading| heading.split_once(": "))
                .unwrap_or_else(|| panic!("{file} has no number and title"));
            assert!(file.starts_with(&format!("{number}-")), "{file}: {heading}");
            let status = lines
                .find_map(|line| line.strip_prefix("Status: "))
                .unwrap_or_else(|| panic!("{file} has no status"));
            format!("| [{number}]({file}) | {title} | {status} |")
        })
        .collect();
    assert_eq!(rows, expected, "docs/adr/README.md");
}

/// What is wrong with a link in a document.
fn fault(from: &Path, target: &str, documents: &BTreeMap<PathBuf, String>) -> Option<&'static str> {
    if target.contains("://") {
        let is_whole = ["https://", "http://"]
            .iter()
            .any(|it| target.starts_with(it));
        return (!is_whole).then_some("is not an address of the web");
    }
    if target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
    let to = match path {
        "" => from.to_owned(),
        _ => plain(&from.parent().unwrap().join(path)),
    };
    if !to.exists() {
        return Some("leads to nothing");
    }
    let has_heading = || {
        documents
            .get(&to)
            .is_some_and(|text| anchors(text).contains(anchor))
    };
    (!anchor.is_empty() && !has_heading()).then_some("names a heading that is not there")
}

/// A path without `..`, so that it is found among the documents.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                plain.pop();
            }
            Component::CurDir => {}
            other => plain.push(other),
        }
    }
    plain
}

fn documents(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.file_type().unwrap().is_dir() {
            if !FOREIGN.contains(&name.as_str()) {
                found.extend(documents(&entry.path()));
            }
        } else if name.ends_with(".md") {
            found.push(entry.path());
        }
    }
    found
}

/// The targets of a document's links and pictures, each with its line.
fn links(text: &str) -> Vec<(usize, String)> {
    let mut found = Vec::new();
    for (index, line) in prose(text) {
        let line = without_code(line);
        for (at, _) in line.match_indices("](") {
            let target = &line[at + 2..];
            let end = target.find([')', ' ']).unwrap_or(target.len());
            found.push((index + 1, target[..end].to_owned()));
        }
        // `[name]: target`, which others refer to.
        if let Some((name, target)) = line.split_once("]: ")
            && name.starts_with('[')
        {
            found.push((index + 1, target.trim().to_owned()));
        }
    }
    found
}

/// The lines that are not in a fenced block, with their indices.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut is_code = false;
    text.lines().enumerate().filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// A line without what stands between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// What the headings of a document are called in links, as code hosts derive it from their texts.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let headings = prose(text).filter_map(|(_, line)| {
        let heading = line.trim_start_matches('#');
        (heading.len() < line.len()).then(|| heading.strip_prefix(' '))?
    });
    for heading in headings {
        let name = anchor(heading);
        let others = (1..).map(|number| format!("{name}-{number}"));
        let free = std::iter::once(name.clone()).chain(others);
        let is_new = |name: &String| !found.contains(name);
        let name = free.into_iter().find(is_new).unwrap();
        found.insert(name);
    }
    found
}

fn anchor(heading: &str) -> String {
    let shown = heading.trim();
    // Of a link, its text is shown.
    let shown = shown.split("](").map(|piece| match piece.split_once(')') {
        Some((_, after)) if shown.contains("](") && !piece.contains('[') => after,
        _ => piece,
    });
    let shown: String = shown.collect();
    shown
        .chars()
        .filter_map(|char| match char {
            ' ' => Some('-'),
            '-' | '_' => Some(char),
            _ if char.is_alphanumeric() => Some(char),
            _ => None,
        })
        .flat_map(char::to_lowercase)
        .collect()
}

#[test]
fn broken_links_are_found() {
    let place = Path::new(env!("CARGO_MANIFEST_DIR"));
    let readme = place.join("README.md");
    let text = "# One `two`\n## Three, four: five's\n## Three, four: five's\n```sh\n# not a heading\n[no](link)\n```\n\
                [a](src/lib.rs) `[b](c)` ![d](#one-two) [e]\n[e]: https://example.com/#f\n";
    let documents = BTreeMap::from([(readme.clone(), text.to_owned())]);
    let expected = ["one-two", "three-four-fives", "three-four-fives-1"];
    assert_eq!(anchors(text), BTreeSet::from(expected.map(String::from)));
    let targets: Vec<String> = links(text).into_iter().map(|(_, target)| target).collect();
    let expected = ["src/lib.rs", "#one-two", "https://example.com/#f"];
    assert_eq!(targets, expected);
    let fault = |target| fault(&readme, target, &documents);
    assert_eq!(fault("src/lib.rs"), None);
    assert_eq!(fault("tests/../README.md#one-two"), None);
    assert_eq!(fault("src"), None);
    assert_eq!(fault("#one-two"), None);
    assert_eq!(fault("#two"), Some("names a heading that is not there"));
    assert_eq!(
        fault("src/lib.rs#one"),
        Some("names a heading that is not there")
    );
    assert_eq!(fault("src/nothing.rs"), Some("leads to nothing"));
    assert_eq!(
        fault("htp://example.com"),
        Some("is not an address of the web")
    );
}
