//! `adk-bridge translate` from outside: every recording in both dialects, and what is refused.
//!
//! A changed snapshot is a changed stream. `INSTA_FORCE_PASS=1` writes all new ones at once, `cargo insta review` shows
//! them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use adk_bridge_protocol::event::MAX_EVENT_BYTES;

const DIALECTS: [&str; 2] = ["native", "adk"];

#[test]
fn every_recording_in_both_dialects() {
    let mut names = BTreeSet::new();
    for recording in recordings() {
        for dialect in DIALECTS {
            let output = translate(&["--dialect", dialect, &recording]);
            let stem = recording
                .rsplit_once('.')
                .map_or(&*recording, |(stem, _)| stem);
            let name = format!("{}__{dialect}", stem.replace('/', "__"));
            let mut settings = insta::Settings::clone_current();
            settings.set_snapshot_path(SNAPSHOTS);
            settings.set_prepend_module_to_snapshot(false);
            settings.set_omit_expression(true);
            settings.bind(|| insta::assert_snapshot!(name.as_str(), shown(&output)));
            assert!(
                names.insert(format!("{name}.snap")),
                "{name} stands for two recordings"
            );
        }
    }
    assert_eq!(kept_snapshots(), names, "snapshots without a recording");
}

#[test]
fn every_stream_begins_and_ends_as_the_client_expects() {
    for recording in recordings() {
        for dialect in DIALECTS {
            let output = translate(&["--dialect", dialect, &recording]);
            let stream = String::from_utf8(output.stdout).unwrap();
            let events: Vec<&str> = stream.split_terminator("\n\n").collect();
            let case = format!("{recording} {dialect}");
            assert_eq!(
                events[0], r#"data: {"type":"start","messageId":"message-1"}"#,
                "{case}"
            );
            assert_eq!(events.last(), Some(&"data: [DONE]"), "{case}");
            let terminal =
                ["finish", "error", "abort"].map(|kind| format!(r#"data: {{"type":"{kind}""#));
            let is_terminal = |event: &&&str| {
                terminal.iter().any(|begin| {
                    event
                        .strip_prefix(begin.as_str())
                        .is_some_and(|rest| rest.starts_with([',', '}']))
                })
            };
            assert_eq!(events.iter().filter(is_terminal).count(), 1, "{case}");
            assert!(is_terminal(&&events[events.len() - 2]), "{case}");
        }
    }
}

#[test]
fn standard_input_gives_the_same_as_a_file() {
    let recording = "scripted/confirm_1_request.sse";
    let bytes = fs::read(fixtures().join(recording)).unwrap();
    let piped = translate_input(&["-"], &bytes);
    assert!(piped.status.success());
    assert_eq!(piped.stdout, translate(&[recording]).stdout);
}

/// Only what was said last counts: a recording may hold several turns.
#[test]
fn an_answer_that_was_cut_short_is_marked() {
    let says =
        r#"{"author":"a","partial":true,"outputTranscription":{"text":"One ","finished":false}}"#;
    let cut = r#"{"author":"a","interrupted":true}"#;
    let ends = r#"{"author":"a","turnComplete":true}"#;
    for (recording, is_cut) in [
        (vec![says, cut, ends], true),
        (vec![says, cut], true),
        (vec![says, cut, ends, says, ends], false),
        (vec![says, ends], false),
    ] {
        let output = translate_input(&["-"], recording.join("\n").as_bytes());
        let stream = String::from_utf8(output.stdout).unwrap();
        let marked = stream.contains(r#""ended":"interrupted""#);
        assert_eq!(marked, is_cut, "{recording:?}: {stream}");
    }
}

#[test]
fn native_is_the_dialect_that_nobody_asked_for() {
    let recording = "scripted/confirm_1_request.sse";
    let native = translate(&["--dialect", "native", recording]).stdout;
    assert_eq!(translate(&[recording]).stdout, native);
    assert_ne!(translate(&["--dialect", "adk", recording]).stdout, native);
}

#[test]
fn the_message_id_is_the_callers() {
    for dialect in DIALECTS {
        let output = translate(&[
            "--dialect",
            dialect,
            "--message-id",
            "m \"7\"",
            "odd/empty.sse",
        ]);
        let stream = String::from_utf8(output.stdout).unwrap();
        assert!(
            stream.starts_with("data: {\"type\":\"start\",\"messageId\":\"m \\\"7\\\"\"}\n\n"),
            "{stream}"
        );
    }
}

/// Exit code 2: the command line is wrong. 1: the input is.
#[test]
fn what_cannot_be_done_is_told() {
    let cases: &[(&[&str], i32, &str)] = &[
        (
            &["--dialect", "klingon", "odd/empty.sse"],
            2,
            "unknown dialect \"klingon\"; use \"native\" or \"adk\"",
        ),
        (&[], 2, "<FILE>"),
        (&["odd/missing.sse"], 1, "odd/missing.sse cannot be opened"),
        (&["odd"], 1, "odd cannot be read"),
        (
            &["README.md"],
            1,
            "README.md is no recording: line 1 begins with",
        ),
    ];
    for (arguments, code, message) in cases {
        let output = translate(arguments);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {told}");
        assert!(told.contains(message), "{arguments:?}: {told}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn input_that_is_no_recording_is_refused_with_its_line() {
    let cases: &[(&[u8], &str)] = &[
        (b"{}\n\xff\xfe\n", "line 2: no UTF-8"),
        (b"[{},\n{}", "line 2: a recording that begins with `[`"),
        (&[b'['; 200_000], "a recording that begins with `[`"),
    ];
    for (input, message) in cases {
        let output = translate_input(&["-"], input);
        let told = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{told}");
        assert!(told.contains(message), "{told}");
        assert!(told.len() < LONGEST_COMPLAINT, "{} bytes", told.len());
    }
}

/// A line beyond the limit costs its event, not the others, and is not repeated in the complaint.
#[test]
fn an_event_of_40_megabytes_is_an_error_among_others() {
    const MEGABYTE: usize = 1024 * 1024;
    let text = |text: &str| {
        format!(
            "{{\"id\":\"e\",\"partial\":true,\"content\":{{\"parts\":[{{\"text\":\"{text}\"}}]}}}}\n"
        )
    };
    let input = [
        text("before "),
        text(&"x".repeat(40 * MEGABYTE)),
        text("after"),
    ]
    .concat();
    let output = translate_input(&["-"], input.as_bytes());
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    let complaint = format!("line 2: an event is longer than {MAX_EVENT_BYTES} bytes");
    assert!(told.contains(&complaint), "{told}");
    let stream = String::from_utf8(output.stdout).unwrap();
    assert!(stream.contains(r#""delta":"before ""#) && stream.contains(r#""delta":"after""#));
    assert!(stream.len() < MEGABYTE, "{} bytes", stream.len());
}

/// Twice the longest thing that a terminal shows at once; an input must not come back as a complaint.
const LONGEST_COMPLAINT: usize = 1000;

const SNAPSHOTS: &str = "snapshots/translate";

/// Base64 is shortened to its beginning and length: what stands in it is the business of other tests.
const SHOWN_BASE64: usize = 64;

fn shown(output: &Output) -> String {
    let stream = shorten_base64(&String::from_utf8_lossy(&output.stdout));
    let told = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) if told.is_empty() => stream,
        code => format!("{stream}exit code {code:?}\n{told}"),
    }
}

fn shorten_base64(text: &str) -> String {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '/' | '=');
    let mut short = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let run = rest.find(|c| !is_base64(c)).unwrap_or(rest.len());
        let (word, after) = rest.split_at(run);
        if word.len() > SHOWN_BASE64 {
            short.push_str(&format!("{}…<{}>", &word[..24], word.len()));
        } else {
            short.push_str(word);
        }
        let other = after.find(is_base64).unwrap_or(after.len());
        short.push_str(&after[..other]);
        rest = &after[other..];
    }
    short
}

/// The paths of all recordings below the fixtures, in order.
fn recordings() -> Vec<String> {
    let mut found = Vec::new();
    for folder in ["gemini", "gemini_answers", "live", "odd", "scripted"] {
        let names = file_names(&fixtures().join(folder));
        assert!(!names.is_empty(), "{folder}");
        found.extend(
            names
                .into_iter()
                .filter(|name| !name.ends_with(".md"))
                .map(|name| format!("{folder}/{name}")),
        );
    }
    found
}

fn kept_snapshots() -> BTreeSet<String> {
    file_names(
        &Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests")
            .join(SNAPSHOTS),
    )
    .into_iter()
    .filter(|name| name.ends_with(".snap"))
    .collect()
}

fn file_names(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/adk")
}

fn translate(arguments: &[&str]) -> Output {
    command(arguments).output().unwrap()
}

fn translate_input(arguments: &[&str], input: &[u8]) -> Output {
    let mut child = command(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(input).unwrap();
    drop(stdin);
    child.wait_with_output().unwrap()
}

/// Runs in the folder of the fixtures, so that messages name recordings alike on every machine.
fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_adk-bridge"));
    command
        .arg("translate")
        .args(arguments)
        .current_dir(fixtures());
    command
}
