//! The log: one line per event and one event per request, with an id that the answer carries too.
//!
//! The log holds no text of users or agents, and no value can look like a separate line: control characters are escaped
//! everywhere, and the bridge's own secrets are hidden. Libraries that log what passes through them write only
//! warnings, unless `RUST_LOG` names them.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;
use std::time::Instant;

use axum::extract::Request;
use axum::http::{HeaderName, HeaderValue, Method};
use axum::response::Response;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format;

use crate::chat::new_id;
use crate::error::AppError;
use crate::secrets;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// Request ids of proxies have 16 to 36 characters.
const MAX_REQUEST_ID: usize = 64;

/// How much of a path is shown; the bridge's own paths have at most a few hundred characters.
const MAX_PATH_BYTES: usize = 300;

/// Libraries that log headers, keys and messages at their lowest levels.
const TALKATIVE: [&str; 8] = [
    "h2",
    "hyper",
    "hyper_util",
    "reqwest",
    "rustls",
    "tokio_tungstenite",
    "tower_http",
    "tungstenite",
];

/// Libraries that log messages at every level; what matters of them is logged where they are used.
const SILENT: [&str; 1] = ["rmcp"];

/// Starts logging at the level that `RUST_LOG` names.
pub fn set_up() {
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    tracing_subscriber::fmt()
        .with_env_filter(filter(&asked))
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .fmt_fields(
            format::debug_fn(|writer, field, value| {
                // Formatted as a whole, since a secret may be written in pieces.
                let value = format!("{value:?}");
                let value = secrets::hide(&value);
                match field.name() {
                    "message" => write!(EscapingWriter(writer), "{value}"),
                    // Events of the `log` crate also name their origin.
                    name if name.starts_with("log.") => Ok(()),
                    name => write!(EscapingWriter(writer), "{name}={value}"),
                }
            })
            .delimited(" "),
        )
        .init();
}

fn filter(asked: &str) -> EnvFilter {
    let asked = Some(asked).filter(|asked| !asked.trim().is_empty());
    let mut filter = asked
        .and_then(|asked| EnvFilter::try_new(asked).ok())
        .unwrap_or_else(|| EnvFilter::new("info"));
    let named: Vec<&str> = asked
        .unwrap_or_default()
        .split([',', '=', '['])
        .map(|word| word.trim().split("::").next().unwrap_or_default())
        .collect();
    let talkative = TALKATIVE.iter().map(|library| (library, "warn"));
    let silent = SILENT.iter().map(|library| (library, "off"));
    for (library, level) in talkative.chain(silent) {
        if !named.contains(library)
            && let Ok(directive) = format!("{library}={level}").parse()
        {
            filter = filter.add_directive(directive);
        }
    }
    filter
}

/// Writes text so that it stays on its line and changes nothing on a terminal.
struct EscapingWriter<'w, W>(&'w mut W);

impl<W: fmt::Write> fmt::Write for EscapingWriter<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Most of the log is plain ASCII, which takes one look.
        if text.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return self.0.write_str(text);
        }
        let mut rest = text;
        while let Some(place) = rest.find(is_forging) {
            self.0.write_str(&rest[..place])?;
            let mut after = rest[place..].chars();
            if let Some(found) = after.next() {
                write!(self.0, "{}", found.escape_default())?;
            }
            rest = after.as_str();
        }
        self.0.write_str(rest)
    }
}

/// Whether a character could end a line, or make it look like something else.
fn is_forging(found: char) -> bool {
    found.is_control() || matches!(found, '\u{2028}' | '\u{2029}') || is_format(found)
}

/// Unicode's format characters (category Cf): they are invisible, or change the direction of text.
fn is_format(found: char) -> bool {
    matches!(
        found,
        '\u{ad}'
            | '\u{600}'..='\u{605}'
            | '\u{61c}'
            | '\u{6dd}'
            | '\u{70f}'
            | '\u{890}'..='\u{891}'
            | '\u{8e2}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{110bd}'
            | '\u{110cd}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e007f}'
    )
}

/// The line of a request in the log, written when its answer begins; the chat logs the result of a turn.
pub struct RequestLine {
    started: Instant,
    id: String,
    method: Method,
    path: String,
}

impl RequestLine {
    pub fn begin(request: &Request) -> Self {
        let id = request
            .headers()
            .get(REQUEST_ID)
            .and_then(|id| id.to_str().ok())
            .filter(|id| is_safe_request_id(id))
            .map_or_else(|| new_id("req"), str::to_owned);
        let method = request.method().clone();
        // Without the query, which may hold a ticket.
        let path = request.uri().path();
        let path = path[..path.floor_char_boundary(MAX_PATH_BYTES)].to_owned();
        tracing::trace!(request = id, "{method} {path} arrived");
        Self {
            started: Instant::now(),
            id,
            method,
            path,
        }
    }

    /// Writes the line, and puts the id of the request into its answer.
    pub fn end(self, response: &mut Response) {
        let Self {
            started,
            id,
            method,
            path,
        } = self;
        let status = response.status().as_u16();
        let millis = started.elapsed().as_millis();
        let refusal = response.extensions().get::<AppError>();
        let code = refusal
            .map(|refusal| format!(" {}", refusal.code))
            .unwrap_or_default();
        if matches!(path.as_str(), "/health" | "/ready" | "/metrics") {
            tracing::debug!(request = id, status, "{method} {path}: {status}{code}");
        } else {
            tracing::info!(
                request = id,
                status,
                millis,
                "{method} {path}: {status}{code}"
            );
        }
        if let Ok(id) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(REQUEST_ID, id);
        }
    }
}

/// A client's request id is logged only if it can be nothing but an id.
fn is_safe_request_id(id: &str) -> bool {
    !id.is_empty()
        && id.len() <= MAX_REQUEST_ID
        && id
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_ends_a_line_or_turns_it_round() {
        let cases = [
            (
                "plain, äöü, 日本 and \"quotes\"",
                "plain, äöü, 日本 and \"quotes\"",
            ),
            ("a\nFAKE\r\n", "a\\nFAKE\\r\\n"),
            ("\u{1b}[31m\0\u{85}", "\\u{1b}[31m\\u{0}\\u{85}"),
            ("\u{2028}\u{202e}", "\\u{2028}\\u{202e}"),
            ("a\u{61c}\u{ad}b", "a\\u{61c}\\u{ad}b"),
            ("\u{200b}\u{2063}\u{feff}", "\\u{200b}\\u{2063}\\u{feff}"),
            ("\u{13431}\u{e0041}", "\\u{13431}\\u{e0041}"),
        ];
        for (text, expected) in cases {
            let mut written = String::new();
            assert!(EscapingWriter(&mut written).write_str(text).is_ok());
            assert_eq!(written, expected);
        }
    }

    #[test]
    fn talkative_libraries_are_heard_where_they_are_named() {
        let quiet = filter("trace").to_string();
        assert!(
            quiet.contains("tungstenite=warn")
                && quiet.contains("hyper=warn")
                && quiet.contains("rmcp=off"),
            "{quiet}"
        );
        let named = filter("info,hyper::proto=debug,tungstenite=trace").to_string();
        assert!(
            named.contains("tungstenite=trace") && !named.contains("hyper=warn"),
            "{named}"
        );
        assert!(filter("").to_string().contains("info"));
    }
}
