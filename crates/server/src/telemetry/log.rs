//! The log: one line per event, as text or as JSON.
//!
//! The log holds no text of users or agents, and no value can look like a separate line: control characters are escaped
//! everywhere, and the bridge's own secrets are hidden. Libraries that log what passes through them write only
//! warnings, unless `RUST_LOG` names them.

use std::fmt::{self, Write as _};
use std::io::IsTerminal as _;

use adk_bridge_agents::trace_context::hex;
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::{self, Writer};
use tracing_subscriber::fmt::time::{FormatTime as _, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use super::current;
use crate::config::LogFormat;
use crate::secrets;

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

/// Starts logging in this form, at the level that `RUST_LOG` names.
pub fn set_up(form: LogFormat) {
    let asked = std::env::var(EnvFilter::DEFAULT_ENV).unwrap_or_default();
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter(&asked))
        .with_writer(std::io::stderr);
    match form {
        LogFormat::Text => subscriber
            .with_ansi(std::io::stderr().is_terminal())
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
            .init(),
        LogFormat::Json => subscriber.with_ansi(false).event_format(JsonLines).init(),
    }
}

/// Writes an event as one JSON object: when, how bad, from where, what, its fields, and the trace that it belongs to.
struct JsonLines;

impl<S, N> FormatEvent<S, N> for JsonLines
where
    S: Subscriber + for<'l> LookupSpan<'l>,
    N: for<'w> FormatFields<'w> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut time = String::new();
        SystemTime.format_time(&mut Writer::new(&mut time))?;
        let mut fields = JsonFields::default();
        event.record(&mut fields);
        let JsonFields {
            message,
            origin,
            others,
        } = fields;
        let metadata = event.metadata();
        let target = origin.unwrap_or_else(|| metadata.target().to_owned());
        let mut line = Map::new();
        line.insert("timestamp".to_owned(), time.into());
        line.insert("level".to_owned(), metadata.level().as_str().into());
        line.insert("target".to_owned(), target.into());
        line.insert("message".to_owned(), message.into());
        let trace = current::trace();
        if let (Some(trace_id), Some(span_id)) = (trace.trace_id(), trace.span_id()) {
            line.insert("trace_id".to_owned(), hex(&trace_id).into());
            line.insert("span_id".to_owned(), hex(&span_id).into());
        }
        for (name, value) in others {
            line.entry(name).or_insert(value);
        }
        let line = serde_json::to_string(&line).map_err(|_| fmt::Error)?;
        writeln!(writer, "{}", Ascii(&line))
    }
}

/// The fields of an event.
#[derive(Default)]
struct JsonFields {
    message: String,
    /// Where an event of the `log` crate comes from.
    origin: Option<String>,
    others: Vec<(&'static str, Value)>,
}

impl JsonFields {
    fn text(&mut self, field: &Field, text: &str) {
        let text = secrets::hide(text);
        match field.name() {
            "message" => self.message = text.to_string(),
            "log.target" => self.origin = Some(text.to_string()),
            name if name.starts_with("log.") => {}
            name => self.others.push((name, text.into())),
        }
    }

    fn value(&mut self, field: &Field, value: Value) {
        // A number cannot be a secret, and `log.line` is of no use.
        if !field.name().starts_with("log.") {
            self.others.push((field.name(), value));
        }
    }
}

impl Visit for JsonFields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.text(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field, value);
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.text(field, &value.to_string());
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.value(field, value.into());
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.value(field, value.into());
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.value(field, value.into());
    }

    fn record_u128(&mut self, field: &Field, value: u128) {
        self.value(field, u64::try_from(value).unwrap_or(u64::MAX).into());
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.value(field, value.into());
    }
}

/// JSON in ASCII: what could end a line or turn it round is written as an escape, and reads the same.
struct Ascii<'t>(&'t str);

impl fmt::Display for Ascii<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(place) = rest.find(|found: char| !found.is_ascii() || found == '\u{7f}') {
            formatter.write_str(&rest[..place])?;
            let mut after = rest[place..].chars();
            if let Some(found) = after.next() {
                for unit in found.encode_utf16(&mut [0; 2]) {
                    write!(formatter, "\\u{unit:04x}")?;
                }
            }
            rest = after.as_str();
        }
        formatter.write_str(rest)
    }
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
    fn a_line_of_json_reads_as_it_was_written() {
        let text = "plain \"quoted\" äöü\n\u{1b}[31m\u{2028}\u{202e}\u{e0041}\u{7f}日本";
        let json = serde_json::to_string(text).unwrap_or_default();
        let line = Ascii(&json).to_string();
        assert!(
            line.bytes().all(|byte| matches!(byte, b' '..=b'~')),
            "{line}"
        );
        assert_eq!(
            serde_json::from_str::<String>(&line).ok().as_deref(),
            Some(text)
        );
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
