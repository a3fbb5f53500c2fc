//! `adk-bridge translate` from outside: every recording in both dialects, and what is refused.
//!
//! The expected streams are next to the recordings in `fixtures/adk`: `.native.snap`, and `.adk.snap` where that dialect
//! differs. A changed snapshot is a changed stream. `INSTA_FORCE_PASS=1` writes all new ones at once, `cargo insta review`
//! shows them.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use adk_bridge_protocol::event::MAX_EVENT_BYTES;
use adk_bridge_testkit::fixtures::{RECORDED, recordings as fixtures, recordings_in};
use adk_bridge_testkit::process::binary;

const DIALECTS: [&str; 2] = ["native", "adk"];

#[test]
fn every_recording_in_both_dialects() {
    let mut expected = BTreeSet::new();
    for recording in recordings() {
        let [native, adk] =
            DIALECTS.map(|dialect| shown(&translate(&["--dialect", dialect, &recording])));
        let differs = adk != native;
        check(&recording, "native", native, &mut expected);
        if differs {
            check(&recording, "adk", adk, &mut expected);
        }
    }
    assert_eq!(
        kept_snapshots(),
        expected,
        "snapshots without a recording, or of a dialect that does not differ"
    );
}

fn check(recording: &str, dialect: &str, stream: String, expected: &mut BTreeSet<String>) {
    let (folder, file) = recording.split_once('/').unwrap();
    let stem = file.rsplit_once('.').map_or(file, |(stem, _)| stem);
    let name = format!("{stem}.{dialect}");
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(fixtures().join(folder));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name.as_str(), stream));
    let path = format!("{folder}/{name}.snap");
    assert!(
        expected.insert(path),
        "{folder}/{name} is of two recordings"
    );
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

/// A log of adk-stream-protocol holds chunks in several forms, without the ends where `useChat` read them.
#[test]
fn a_log_of_chunks_gives_its_streams() {
    let line = |location: &str, chunk: &str| {
        format!(
            "{{\"timestamp\":1,\"session_id\":\"s\",\"mode\":\"adk-sse\",\"location\":\"{location}\",\"direction\":\"in\",\"sequence_number\":1,\"chunk\":{chunk}}}\n"
        )
    };
    let start = r#"{"type":"start","messageId":"m"}"#;
    let finish = r#"{"type":"finish","finishReason":"stop"}"#;
    let as_sse = |chunk: &str| serde_json::json!(format!("data: {chunk}\n\n")).to_string();
    let expected = format!("data: {start}\n\ndata: {finish}\n\ndata: [DONE]\n\n").repeat(2);
    let answer = |location, end: &[&str]| {
        let chunks = [start, finish].map(str::to_owned);
        let chunks = if end.is_empty() {
            chunks
        } else {
            chunks.map(|chunk| as_sse(&chunk))
        };
        let chunks = chunks.iter().map(String::as_str).chain(end.iter().copied());
        chunks
            .map(|chunk| line(location, chunk))
            .collect::<String>()
    };
    let cases = [
        answer("frontend-useChat-chunk", &[]).repeat(2),
        answer("backend-sse-event", &[r#""data: [DONE]\n\n""#]).repeat(2),
        // What a connection says before the first answer belongs to none.
        format!(
            "{}{}",
            line(
                "frontend-ws-chunk",
                r#"{"type":"data-chat","data":{"id":"c"}}"#
            ),
            answer("frontend-ws-chunk", &["\"[DONE]\""]).repeat(2),
        ),
        // What was logged in a second place is there already.
        format!(
            "{}{}",
            answer("frontend-sse-chunk", &["\"[DONE]\""]).repeat(2),
            answer("frontend-useChat-chunk", &[]),
        ),
    ];
    for log in cases {
        let output = translate_input(&["-"], log.as_bytes());
        assert!(output.status.success(), "{}", shown(&output));
        assert_eq!(String::from_utf8(output.stdout).unwrap(), expected, "{log}");
    }
    let bad = [
        line("backend-adk-event", "\"Event(id='1')\""),
        line("frontend-ws-chunk", start),
        "{\"author\":\"a\"}\n".to_owned(),
        line("frontend-ws-chunk", r#"{"type":"text-delta"}"#),
    ];
    let output = translate_input(&["-"], bad.concat().as_bytes());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    for (number, complaint) in [
        (1, "as Python prints it"),
        (3, "not an entry of a chunk log"),
        (4, ""),
    ] {
        assert!(
            stderr.contains(&format!("line {number}: ")) && stderr.contains(complaint),
            "{stderr}"
        );
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
fn what_cannot_be_done_is_reported() {
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
            "README.md is not a recording: line 1 begins with",
        ),
    ];
    for (arguments, code, message) in cases {
        let output = translate(arguments);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(*code), "{arguments:?}: {stderr}");
        assert!(stderr.contains(message), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}

#[test]
fn input_that_is_no_recording_is_refused_with_its_line() {
    let cases: &[(&[u8], &str)] = &[
        (b"{}\n\xff\xfe\n", "line 2: not UTF-8"),
        (b"[{},\n{}", "line 2: a recording that begins with `[`"),
        (&[b'['; 200_000], "a recording that begins with `[`"),
    ];
    for (input, message) in cases {
        let output = translate_input(&["-"], input);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(stderr.contains(message), "{stderr}");
        assert!(stderr.len() < LONGEST_COMPLAINT, "{} bytes", stderr.len());
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
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let complaint = format!("line 2: an event is longer than {MAX_EVENT_BYTES} bytes");
    assert!(stderr.contains(&complaint), "{stderr}");
    let stream = String::from_utf8(output.stdout).unwrap();
    assert!(stream.contains(r#""delta":"before ""#) && stream.contains(r#""delta":"after""#));
    assert!(stream.len() < MEGABYTE, "{} bytes", stream.len());
}

/// Twice the longest thing that a terminal shows at once; an input must not come back as a complaint.
const LONGEST_COMPLAINT: usize = 1000;

/// Base64 is shortened to its beginning and length: what stands in it is the business of other tests.
const SHOWN_BASE64: usize = 64;

fn shown(output: &Output) -> String {
    let stream = shorten_base64(&String::from_utf8_lossy(&output.stdout));
    let stderr = String::from_utf8_lossy(&output.stderr);
    match output.status.code() {
        Some(0) if stderr.is_empty() => stream,
        code => format!("{stream}exit code {code:?}\n{stderr}"),
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
    RECORDED
        .iter()
        .flat_map(|folder| recordings_in(folder))
        .map(|path| below_fixtures(&path))
        .collect()
}

fn kept_snapshots() -> BTreeSet<String> {
    let folders = RECORDED.map(|folder| fs::read_dir(fixtures().join(folder)).unwrap());
    folders
        .into_iter()
        .flatten()
        .map(|entry| below_fixtures(&entry.unwrap().path()))
        .filter(|name| name.ends_with(".snap"))
        .collect()
}

fn below_fixtures(path: &Path) -> String {
    path.strip_prefix(fixtures()).unwrap().display().to_string()
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
    let mut command = Command::new(binary());
    command
        .arg("translate")
        .args(arguments)
        .current_dir(fixtures());
    command
}
