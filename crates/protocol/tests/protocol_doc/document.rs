//! Reads PROTOCOL.md: the tables under its headings and its fenced blocks.

use std::collections::BTreeSet;

pub(crate) const DOCUMENT: &str = include_str!("../../../../PROTOCOL.md");

/// Names, each with the names that belong to it.
pub(crate) type Rows = BTreeSet<(String, BTreeSet<String>)>;

/// The table under a heading: the name in the first column, the names in the second.
pub(crate) fn table(heading: &str) -> Rows {
    rows(heading)
        .iter()
        .map(|row| {
            (
                code_words(&row[0]).remove(0),
                code_words(&row[1]).into_iter().collect(),
            )
        })
        .collect()
}

pub(crate) fn first_column(heading: &str) -> BTreeSet<String> {
    rows(heading)
        .iter()
        .flat_map(|row| code_words(&row[0]))
        .collect()
}

/// The rows of the first table under a heading, without its head.
pub(crate) fn rows(heading: &str) -> Vec<Vec<String>> {
    let rows: Vec<Vec<String>> = section(heading)
        .lines()
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| {
            line.trim_matches('|')
                .split(" | ")
                .map(|cell| cell.trim().to_owned())
                .collect()
        })
        .collect();
    assert!(!rows.is_empty(), "PROTOCOL.md has no table under {heading}");
    rows
}

pub(crate) fn section(heading: &str) -> &'static str {
    let mark = format!("# {heading}\n");
    let (_, section) = DOCUMENT
        .split_once(&mark)
        .unwrap_or_else(|| panic!("PROTOCOL.md has no heading {heading}"));
    section.split("\n#").next().unwrap_or(section)
}

/// What stands between backticks.
pub(crate) fn code_words(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// `a, b and c`.
pub(crate) fn list(words: &str) -> BTreeSet<String> {
    words
        .split(", ")
        .flat_map(|words| words.split(" and "))
        .map(str::to_owned)
        .collect()
}

/// The fenced blocks of a language, with what follows it on the first line.
pub(crate) fn blocks(language: &str) -> Vec<(&'static str, &'static str)> {
    DOCUMENT
        .split("\n```")
        .skip(1)
        .step_by(2)
        .filter_map(|block| {
            let (info, body) = block.split_once('\n').unwrap_or((block, ""));
            let (found, rest) = info.split_once(' ').unwrap_or((info, ""));
            (found == language).then_some((rest, body))
        })
        .collect()
}

pub(crate) fn data_lines(text: &str) -> Vec<&str> {
    text.lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .collect()
}

/// The number at the end of a stream's name: later turns continue the message of the one before.
pub(crate) fn turn_of(info: &str) -> usize {
    info.rsplit(' ')
        .next()
        .and_then(|word| word.parse().ok())
        .unwrap_or(1)
}
