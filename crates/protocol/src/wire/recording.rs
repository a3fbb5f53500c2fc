//! Recorded ADK events in the forms that people keep: an SSE body, JSON lines, a mix of both, or the JSON array that
//! `/run` returns.

use std::borrow::Cow;

use serde::de::IgnoredAny;
use serde_json::value::RawValue;

/// The longest recording that is read. It is held in memory as a whole; a day of conversation takes a fraction of it.
pub const MAX_RECORDING_BYTES: usize = 256 * 1024 * 1024;

/// Iterates over the events of a recording.
///
/// Comments, `event:`, `id:`, `retry:`, blank lines and `[DONE]` are skipped. Data lines that are each valid JSON are
/// separate events, even without blank lines between them; others are joined according to SSE.
#[derive(Debug)]
pub struct Recording<'a> {
    source: Source<'a>,
}

/// One event of a recording.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded<'a> {
    /// The line on which it begins, counted from 1.
    pub line: usize,
    /// The event.
    pub json: Cow<'a, str>,
}

/// Why a recording cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum RecordingError {
    #[error("recording of {size} bytes is longer than {limit}; split it")]
    TooLong { size: usize, limit: usize },
    #[error("line {line}: not UTF-8")]
    NotUtf8 { line: usize },
    #[error("line {line}: a recording that begins with `[` must be one JSON array: {message}")]
    BadArray { line: usize, message: String },
    #[error(
        "line {line} begins with {found:?}; expected an event as `data: {{…}}` or as a line `{{…}}`"
    )]
    UnknownLine { line: usize, found: String },
}

impl<'a> Recording<'a> {
    /// Detects the form of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Result<Self, RecordingError> {
        if bytes.len() > MAX_RECORDING_BYTES {
            return Err(RecordingError::TooLong {
                size: bytes.len(),
                limit: MAX_RECORDING_BYTES,
            });
        }
        let text = std::str::from_utf8(bytes).map_err(|error| RecordingError::NotUtf8 {
            line: line_of(&bytes[..error.valid_up_to()]),
        })?;
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let source = if text.trim_start().starts_with('[') {
            let events: Vec<&'a RawValue> =
                serde_json::from_str(text).map_err(|error| RecordingError::BadArray {
                    line: error.line(),
                    message: error.to_string(),
                })?;
            Source::Array {
                text,
                line: 1,
                seen: 0,
                events: events.into_iter(),
            }
        } else {
            Source::Lines {
                lines: text.lines(),
                line: 0,
            }
        };
        Ok(Self { source })
    }
}

impl<'a> Iterator for Recording<'a> {
    type Item = Result<Recorded<'a>, RecordingError>;

    fn next(&mut self) -> Option<Self::Item> {
        match &mut self.source {
            Source::Array {
                text,
                line,
                seen,
                events,
            } => {
                let json = events.next()?.get();
                // The value is a part of the text, so the distance between their addresses is its offset.
                let at = json.as_ptr() as usize - text.as_ptr() as usize;
                *line += line_of(&text.as_bytes()[*seen..at]) - 1;
                *seen = at;
                Some(Ok(Recorded {
                    line: *line,
                    json: Cow::Borrowed(json),
                }))
            }
            Source::Lines { lines, line } => next_in_lines(lines, line),
        }
    }
}

#[derive(Debug)]
enum Source<'a> {
    Array {
        text: &'a str,
        /// The line at offset `seen`.
        line: usize,
        seen: usize,
        events: std::vec::IntoIter<&'a RawValue>,
    },
    Lines {
        lines: std::str::Lines<'a>,
        /// Lines taken so far.
        line: usize,
    },
}

fn next_in_lines<'a>(
    lines: &mut std::str::Lines<'a>,
    line: &mut usize,
) -> Option<Result<Recorded<'a>, RecordingError>> {
    loop {
        let text = lines.next()?;
        *line += 1;
        let trimmed = text.trim();
        if trimmed.starts_with('{') {
            return Some(Ok(Recorded {
                line: *line,
                json: Cow::Borrowed(trimmed),
            }));
        }
        if let Some(data) = data_of(text) {
            if data == "[DONE]" {
                continue;
            }
            let first = *line;
            return Some(Ok(Recorded {
                line: first,
                json: joined(data, lines, line),
            }));
        }
        let is_field = ["event:", "id:", "retry:", ":"]
            .iter()
            .any(|field| text.starts_with(field));
        if !trimmed.is_empty() && !is_field {
            return Some(Err(RecordingError::UnknownLine {
                line: *line,
                found: trimmed.chars().take(24).collect(),
            }));
        }
    }
}

/// Joins a data line that is not JSON on its own with the data lines that follow.
fn joined<'a>(data: &'a str, lines: &mut std::str::Lines<'a>, line: &mut usize) -> Cow<'a, str> {
    let mut json = Cow::Borrowed(data);
    if serde_json::from_str::<IgnoredAny>(data).is_ok() {
        return json;
    }
    while let Some(more) = lines.clone().next().and_then(data_of) {
        lines.next();
        *line += 1;
        let json = json.to_mut();
        json.push('\n');
        json.push_str(more);
    }
    json
}

fn data_of(line: &str) -> Option<&str> {
    line.strip_prefix("data:").map(str::trim)
}

fn line_of(before: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', before).count() + 1
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_every_form() {
        let cases: &[(&str, &[(usize, &str)])] = &[
            ("", &[]),
            (
                "\u{feff}data: {\"a\":1}\n\n: c\n\ndata:{\"b\":2}\n\n",
                &[(1, "{\"a\":1}"), (5, "{\"b\":2}")],
            ),
            (
                "{\"a\":1}\r\n\r\n {\"b\":2}",
                &[(1, "{\"a\":1}"), (3, "{\"b\":2}")],
            ),
            (
                "event: x\nid: 1\ndata: {}\n{\"b\":2}\ndata: [DONE]\n",
                &[(3, "{}"), (4, "{\"b\":2}")],
            ),
            (
                "data: {\"a\":1}\ndata: {\"b\":2}\n",
                &[(1, "{\"a\":1}"), (2, "{\"b\":2}")],
            ),
            (
                "data: {\ndata: \"a\":1}\n\ndata: {}",
                &[(1, "{\n\"a\":1}"), (4, "{}")],
            ),
            ("data: {cut\n\n{}", &[(1, "{cut"), (3, "{}")]),
            (
                "\n[\n  {\"a\":1},\n  {\n\"b\":2}, {}]\n",
                &[(3, "{\"a\":1}"), (4, "{\n\"b\":2}"), (5, "{}")],
            ),
            ("[]", &[]),
        ];
        for (text, expected) in cases {
            let read: Vec<(usize, String)> = Recording::new(text.as_bytes())
                .unwrap()
                .map(|event| {
                    event
                        .map(|event| (event.line, event.json.into_owned()))
                        .unwrap()
                })
                .collect();
            let expected: Vec<(usize, String)> = expected
                .iter()
                .map(|(line, json)| (*line, (*json).to_owned()))
                .collect();
            assert_eq!(read, expected, "{text:?}");
        }
    }

    #[test]
    fn refuses_by_line() {
        let cases: &[(&[u8], &str)] = &[
            (
                b"{}\n\nHTTP/1.1 200 OK\n",
                "line 3 begins with \"HTTP/1.1 200 OK\"",
            ),
            (b"{}\n\xff", "line 2: not UTF-8"),
            (b"[{}\n,", "line 2: a recording that begins with `[`"),
            (b"[{}]\n{}", "line 2: a recording that begins with `[`"),
        ];
        for (bytes, message) in cases {
            let error = Recording::new(bytes)
                .and_then(|recording| recording.collect::<Result<Vec<_>, _>>())
                .unwrap_err()
                .to_string();
            assert!(error.starts_with(message), "{error}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_or_refused(bytes in "(data: |\\{|\\}|\\[|\\]|\\n|,|1|: |\u{3042}){0,20}") {
            if let Ok(recording) = Recording::new(bytes.as_bytes()) {
                for event in recording.flatten() {
                    prop_assert!(event.line <= bytes.lines().count());
                }
            }
        }
    }
}
