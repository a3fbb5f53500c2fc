//! Checks the vocabulary of documents, messages of the programs, texts of the page and of the library, and of the code.

#![expect(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "a test of the sources must read them, and one that cannot go on has failed"
)]

use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::{Path, PathBuf};

/// Words of an earlier, private vocabulary, each with what to write. The glossary in ARCHITECTURE.md has the words to use.
const OLD_WORDS: &[(&str, &str)] = &[
    ("door", "endpoint"),
    ("doors", "endpoints"),
    ("seat", "live client"),
    ("seats", "live clients"),
    ("seated", "attached"),
    ("parked", "waiting, or detached for a reader"),
    ("told", "sent, shown, informed or reported"),
    ("anew", "again"),
    ("beside", "next to, along with or in addition to"),
    ("by itself", "automatically, on its own or separately"),
    ("by themselves", "automatically, on their own or separately"),
    ("for ever", "forever, or without end"),
    ("one's own", "its own, or the user's"),
    ("spoken with", "supports speech, or in a voice conversation"),
    ("longer than nothing", "greater than 0"),
    ("stand at ease", "what is done, such as detach"),
    ("what holds everywhere", "invariants"),
    ("riding", "in the same request or message"),
];

/// Those of them that comments and identifiers must not have either.
const NOT_IN_CODE: &[&str] = &[
    "door",
    "doors",
    "seat",
    "seats",
    "anew",
    "riding",
    "parked",
    "told",
    "for ever",
    "stand at ease",
];

/// "is no file" is written "is not a file"; these are good English before or after it.
const BEFORE_NO: &[&str] = &["there", "here"];
const AFTER_NO: &[&str] = &["longer", "more", "less", "different"];

/// Where a word is the right one, and why.
const ALLOWED: &[(&str, &str, &str)] = &[(
    "adk-bridge.example.toml",
    "door",
    "the tool of the example opens the door of a house",
)];

/// The same for comments and identifiers.
const ALLOWED_IN_CODE: &[(&str, &str, &str)] = &[(
    "web/ui/src/tools/schema-fields.test.ts",
    "seat",
    "the form of the example asks for a seat in a train",
)];

/// Read by people as they are, in addition to every Markdown file.
const OTHER_TEXTS: &[&str] = &[
    "adk-bridge.example.toml",
    "crates/server/src/transport/page.html",
];

/// Its comments are what `--help` prints.
const COMMAND_LINE: &str = "crates/server/src/main.rs";

/// Sources whose string literals people read, and whose comments and identifiers are checked.
const SOURCES: &[&str] = &[
    "crates/agents/src",
    "crates/bench/src",
    "crates/demo/src",
    "crates/protocol/src",
    "crates/server/src",
    "web/client/src",
    "web/ui/src",
    "xtask/src",
];

/// Sources of which only comments and identifiers are checked.
const MORE_CODE: &[&str] = &["crates/conformance/src", "crates/testkit/src"];

/// Folders with code and documents of others.
const FOREIGN: &[&str] = &["node_modules", "target", "dist", "venv", ".pages"];

#[test]
fn what_people_read_is_in_plain_words() {
    let root = root();
    let mut texts: Vec<Text> = files(&root, &["md"]).into_iter().map(whole).collect();
    texts.extend(OTHER_TEXTS.iter().map(|path| whole(root.join(path))));
    texts.extend(comments(&root.join(COMMAND_LINE)));
    for folder in SOURCES {
        for path in files(&root.join(folder), &["rs", "ts", "tsx"]) {
            if !is_test(&path) {
                texts.extend(literals(&path));
            }
        }
    }
    assert!(texts.len() > 3_000, "only {} texts", texts.len());
    check(&root, &texts, old_words, ALLOWED);
}

#[test]
fn code_is_in_plain_words() {
    let root = root();
    let folders = SOURCES.iter().chain(MORE_CODE).map(|it| root.join(it));
    let paths: Vec<PathBuf> = folders
        .flat_map(|folder| files(&folder, &["rs", "ts", "tsx"]))
        .collect();
    assert!(paths.len() > 400, "only {} files", paths.len());
    let code = |path: PathBuf| {
        let source = std::fs::read_to_string(&path).unwrap();
        let text = code_of(&source, is_rust(&path));
        Text {
            path,
            line: 1,
            text,
        }
    };
    let texts: Vec<Text> = paths.into_iter().map(code).collect();
    check(&root, &texts, old_words_in_code, ALLOWED_IN_CODE);
}

/// Fails with every old word in the texts that is not allowed there, and with every permission that is not needed.
fn check(
    root: &Path,
    texts: &[Text],
    find: fn(&str) -> Vec<OldWord>,
    allowed: &[(&str, &str, &str)],
) {
    let mut unused: BTreeSet<(&str, &str)> = allowed
        .iter()
        .map(|(file, word, _)| (*file, *word))
        .collect();
    let mut found = String::new();
    for Text { path, line, text } in texts {
        let path = path.strip_prefix(root).unwrap().to_string_lossy();
        let path = path.replace('\\', "/");
        for OldWord { at, word, instead } in find(text) {
            let allowed = allowed
                .iter()
                .find(|(file, of, _)| *file == path && *of == word);
            if let Some((file, of, _)) = allowed {
                unused.remove(&(*file, *of));
                continue;
            }
            let before = text[..at].matches('\n').count();
            let shown = text.lines().nth(before).unwrap_or_default().trim();
            let line = line + before;
            writeln!(
                found,
                "{path}:{line}: {word:?}; write {instead}\n    {shown}"
            )
            .unwrap();
        }
    }
    assert!(found.is_empty(), "words that readers do not know:\n{found}");
    assert!(
        unused.is_empty(),
        "allowed, but not there any more: {unused:?}"
    );
}

#[test]
fn old_words_are_found_and_others_are_not() {
    let found =
        |text: &str| -> Vec<String> { old_words(text).into_iter().map(|old| old.word).collect() };
    assert_eq!(found("The model was told."), ["told"]);
    assert_eq!(found("Told twice, and told"), ["told", "told"]);
    assert_eq!(found("it runs by\n  itself"), ["by itself"]);
    assert_eq!(found("a key of one's own"), ["one's own"]);
    assert_eq!(found("\"x\" is no duration"), ["is no duration"]);
    assert_eq!(found("these are no events"), ["are no events"]);
    let fine = [
        "there is no such chat",
        "There are no chats",
        "it is no longer open",
        "open_door, doorway, retold",
        "itself, beside_it",
        "this is not a file",
        "that is what it is. No chat is open",
    ];
    for text in fine {
        assert_eq!(found(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn old_words_are_found_in_comments_and_identifiers() {
    let found = |source: &str| -> Vec<String> {
        let code = code_of(source, true);
        let found = old_words_in_code(&code).into_iter();
        found.map(|old| old.word).collect()
    };
    let cases: &[(&str, &[&str])] = &[
        ("/// The model is told.", &["told"]),
        ("// It waits for\n// ever.", &["for ever"]),
        ("fn stand_at_ease() {}", &["stand at ease"]),
        (
            "struct Told; let was_told = DOORS[0];",
            &["told", "told", "doors"],
        ),
        ("fn isParked() { this.parkedReader }", &["parked", "parked"]),
        ("let seat = \"a door\"; // written anew", &["seat", "anew"]),
        ("fn f() { \"told\" }", &[]),
        ("retold, overriding, indoor, outdoors, seating", &[]),
        ("for forever in 0..1 {}", &[]),
    ];
    for (source, expected) in cases {
        assert_eq!(found(source), *expected, "{source}");
    }
    for word in NOT_IN_CODE {
        assert!(OLD_WORDS.iter().any(|(old, _)| old == word), "{word}");
    }
}

#[test]
fn literals_are_read_without_comments_and_tests() {
    let read = |source: &str| -> Vec<(usize, String)> {
        let found = literals_of(source, true).into_iter();
        found.collect()
    };
    let source = "// \"a\"\nlet b = \"b\\\"b\"; /* \"c\" */ let d = '\"'; f::<'x>(r#\"e \"e\" e\"#);\n\
                  g(\"h \\\n   i\")\n#[cfg(test)]\nmod tests { \"j\" }";
    assert_eq!(
        read(source),
        [
            (2, "b\\\"b".to_owned()),
            (2, "e \"e\" e".to_owned()),
            (3, "h \\\n   i".to_owned()),
        ]
    );
    let source = "// it's\nf('a b', `c ${d} e`, /'/);\n// 'x'\ng(\"it's\")";
    let found: Vec<String> = literals_of(source, false)
        .into_iter()
        .map(|(_, text)| text)
        .collect();
    assert_eq!(found, ["a b", "c ${d} e", "it's"]);
}

/// An old word where it was found.
struct OldWord {
    at: usize,
    word: String,
    instead: &'static str,
}

/// The old words in a text. Those of several words may be broken over lines.
fn old_words(text: &str) -> Vec<OldWord> {
    let words = words_of(text, false);
    let mut found = Vec::new();
    for first in 0..words.len() {
        found.extend(
            OLD_WORDS
                .iter()
                .filter_map(|old| found_at(&words, first, old)),
        );
        let before = first
            .checked_sub(1)
            .map_or("", |before| &words[before].text);
        if let Some(phrase) = phrase(&words, first, 3)
            && let ["is" | "are", "no", what] = phrase.split(' ').collect::<Vec<_>>()[..]
            && !BEFORE_NO.contains(&before)
            && !AFTER_NO.contains(&what)
        {
            found.push(OldWord {
                at: words[first].at,
                word: phrase,
                instead: "is not a …, or has no …",
            });
        }
    }
    found
}

/// The old words in comments and identifiers.
fn old_words_in_code(code: &str) -> Vec<OldWord> {
    let words = words_of(code, true);
    let listed = OLD_WORDS
        .iter()
        .filter(|(old, _)| NOT_IN_CODE.contains(old));
    let listed: Vec<_> = listed.collect();
    (0..words.len())
        .flat_map(|first| listed.iter().map(move |old| (first, *old)))
        .filter_map(|(first, old)| found_at(&words, first, old))
        .collect()
}

fn found_at(
    words: &[Word],
    first: usize,
    (old, instead): &(&str, &'static str),
) -> Option<OldWord> {
    let words = words.get(first..)?;
    let mut parts = old.split(' ').enumerate();
    let is_there = parts.all(|(index, part)| {
        words
            .get(index)
            .is_some_and(|word| word.text == part && (index == 0 || word.follows))
    });
    is_there.then(|| OldWord {
        at: words[0].at,
        word: (*old).to_owned(),
        instead,
    })
}

/// This many words that follow each other.
fn phrase(words: &[Word], first: usize, length: usize) -> Option<String> {
    let words = words.get(first..first + length)?;
    let is_one = words[1..].iter().all(|word| word.follows);
    let words: Vec<&str> = words.iter().map(|word| word.text.as_str()).collect();
    is_one.then(|| words.join(" "))
}

/// A word in lower case.
struct Word {
    at: usize,
    text: String,
    /// Whether only white space, or the mark of a continued line, parts it from the word before.
    follows: bool,
}

/// The words of a text; in code, those that an identifier consists of.
fn words_of(text: &str, in_code: bool) -> Vec<Word> {
    let is_part = |char: char| char.is_alphanumeric() || char == '\'' || char == '_' && !in_code;
    let continues = |char: char| {
        char.is_whitespace() || char == '\\' || in_code && matches!(char, '_' | '/' | '*' | '!')
    };
    let mut words = Vec::new();
    let mut rest = text;
    while let Some(begin) = rest.find(is_part) {
        let (between, from) = rest.split_at(begin);
        let end = from.find(|char| !is_part(char)).unwrap_or(from.len());
        let end = if in_code {
            end_of_hump(&from[..end])
        } else {
            end
        };
        let (word, after) = from.split_at(end);
        words.push(Word {
            at: text.len() - from.len(),
            text: word.to_lowercase(),
            follows: between.chars().all(continues),
        });
        rest = after;
    }
    words
}

/// Where the first word of a name in camel case ends.
fn end_of_hump(name: &str) -> usize {
    let pairs = name.char_indices().zip(name.char_indices().skip(1));
    pairs
        .filter(|((_, one), (_, next))| one.is_lowercase() && next.is_uppercase())
        .map(|(_, (at, _))| at)
        .next()
        .unwrap_or(name.len())
}

/// A piece of what people read, and the line on which it begins.
struct Text {
    path: PathBuf,
    line: usize,
    text: String,
}

fn whole(path: PathBuf) -> Text {
    let text = std::fs::read_to_string(&path).unwrap();
    Text {
        path,
        line: 1,
        text,
    }
}

/// The lines of documentation in a source.
fn comments(path: &Path) -> Vec<Text> {
    let source = std::fs::read_to_string(path).unwrap();
    let lines = source.lines().enumerate();
    lines
        .filter_map(|(index, line)| {
            let text = line.trim_start().strip_prefix("///")?;
            Some(Text {
                path: path.to_owned(),
                line: index + 1,
                text: text.to_owned(),
            })
        })
        .collect()
}

fn literals(path: &Path) -> Vec<Text> {
    let source = std::fs::read_to_string(path).unwrap();
    literals_of(&source, is_rust(path))
        .into_iter()
        .map(|(line, text)| Text {
            path: path.to_owned(),
            line,
            text,
        })
        .collect()
}

/// The string literals of a source without its tests, each with the line on which it begins.
fn literals_of(source: &str, is_rust: bool) -> Vec<(usize, String)> {
    let source = source.split("\n#[cfg(test)]\n").next().unwrap_or(source);
    let mut line = 1;
    let mut found = Vec::new();
    for Piece { text, literal } in pieces_of(source, is_rust) {
        found.extend(literal.map(|literal| (line, literal.to_owned())));
        line += text.matches('\n').count();
    }
    found
}

/// A source without its string literals, with the same lines.
fn code_of(source: &str, is_rust: bool) -> String {
    let mut code = String::new();
    for Piece { text, literal } in pieces_of(source, is_rust) {
        match literal {
            Some(_) => code.extend(text.chars().filter(|char| *char == '\n' || *char == '"')),
            None => code.push_str(text),
        }
    }
    code
}

/// A piece of a source: a comment, a string literal with what is between its quotes, or something else.
struct Piece<'s> {
    text: &'s str,
    literal: Option<&'s str>,
}

fn pieces_of(source: &str, is_rust: bool) -> Vec<Piece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = source;
    while let Some(char) = rest.chars().next() {
        let mut literal = None;
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if is_rust && rest.starts_with("r#\"") {
            let end = rest.find("\"#").unwrap_or(rest.len());
            literal = Some(&rest[3..end]);
            (end + 2).min(rest.len())
        } else if is_rust && char == '\'' {
            // A character, or the mark of a lifetime.
            let mut chars = rest[1..].char_indices();
            match (chars.next(), chars.next()) {
                (Some((_, '\\')), Some((escaped, _))) => {
                    let after = 1 + escaped + 1;
                    after + rest[after..].find('\'').map_or(0, |end| end + 1)
                }
                (Some(_), Some((end, '\''))) => 1 + end + 1,
                _ => 1,
            }
        } else if char == '"' || !is_rust && (char == '\'' || char == '`') {
            match end_of_literal(&rest[1..], char, is_rust || char == '`') {
                Some(end) => {
                    literal = Some(&rest[1..=end]);
                    end + 2
                }
                // A quote in a regular expression or in a text between tags.
                None => 1,
            }
        } else {
            char.len_utf8()
        };
        let (text, after) = rest.split_at(length);
        pieces.push(Piece { text, literal });
        rest = after;
    }
    pieces
}

/// Where the quote is that closes a literal.
fn end_of_literal(rest: &str, quote: char, has_lines: bool) -> Option<usize> {
    let mut is_escaped = false;
    for (at, char) in rest.char_indices() {
        if is_escaped {
            is_escaped = false;
        } else if char == '\\' {
            is_escaped = true;
        } else if char == quote {
            return Some(at);
        } else if char == '\n' && !has_lines {
            return None;
        }
    }
    None
}

fn is_rust(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "rs")
}

fn is_test(path: &Path) -> bool {
    let name = path.file_name().unwrap().to_string_lossy();
    name == "tests.rs"
        || name.contains(".test.")
        || path.components().any(|part| part.as_os_str() == "tests")
}

/// The files of some kinds in a folder, without what others wrote.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if path.is_dir() {
            if !name.starts_with('.') && !FOREIGN.contains(&name.as_str()) {
                found.extend(files(&path, extensions));
            }
        } else if path.extension().is_some_and(|extension| {
            extensions
                .iter()
                .any(|wanted| extension.eq_ignore_ascii_case(wanted))
        }) {
            found.push(path);
        }
    }
    found
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}
