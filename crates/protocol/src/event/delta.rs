//! Reads text deltas in the compact JSON of an ADK server: nearly all events of a turn have this form.
//!
//! It accepts only the part of JSON that such an event needs and guesses nothing: every other form is left to the full
//! reader, which takes four times as long.

use serde_json::value::RawValue;

use super::{Content, Event, Part, Parts, Raw};
use crate::chunk::Str;
use crate::json_text::unescape;

/// The actions of an ADK server's event that does nothing.
const NO_ACTIONS: &str = r#"{"stateDelta":{},"artifactDelta":{},"requestedAuthConfigs":{},"requestedToolConfirmations":{}}"#;

/// Reads an event that is a text delta; `None` if the full reader must look at it.
pub(super) fn read(json: &str) -> Option<Event<'_>> {
    let mut scan = Scan { rest: json };
    let mut event = Event::default();
    scan.object(|key, scan| match key {
        "id" => set_once(&mut event.id, scan.word()),
        "invocationId" => set_once(&mut event.invocation_id, scan.word()),
        "author" => set_once(&mut event.author, scan.word()),
        "branch" => set_once(&mut event.branch, scan.word()),
        "modelVersion" => set_once(&mut event.model_version, scan.word()),
        "content" => set_once(&mut event.content, scan.content()),
        "partial" => set_once(&mut event.partial, scan.flag()),
        "usageMetadata" => set_once(&mut event.usage_metadata, scan.raw()),
        "timestamp" => set_once(&mut event.timestamp, scan.raw()),
        "actions" => scan.expect(NO_ACTIONS),
        // Contains nothing that is used.
        "nodeInfo" => scan.object(|_, scan| scan.plain().map(drop)),
        _ => None,
    })?;
    (scan.rest.is_empty() && event.partial == Some(true)).then_some(event)
}

struct Scan<'a> {
    rest: &'a str,
}

impl<'a> Scan<'a> {
    /// An object without spaces; `field` reads one value.
    fn object(&mut self, mut field: impl FnMut(&'a str, &mut Self) -> Option<()>) -> Option<()> {
        self.expect("{")?;
        loop {
            let key = self.plain()?;
            self.expect(":")?;
            field(key, self)?;
            if self.expect(",").is_none() {
                return self.expect("}");
            }
        }
    }

    fn content(&mut self) -> Option<Content<'a>> {
        let (mut role, mut parts) = (None, None);
        self.object(|key, scan| match key {
            "role" => set_once(&mut role, scan.word()),
            "parts" => set_once(&mut parts, scan.only_part()),
            _ => None,
        })?;
        Some(Content {
            role,
            parts: Parts::one(parts?),
        })
    }

    fn only_part(&mut self) -> Option<Part<'a>> {
        let mut part = Part::default();
        self.expect("[")?;
        self.object(|key, scan| match key {
            "text" => set_once(&mut part.text, scan.text()),
            "thought" => set_once(&mut part.thought, scan.flag()),
            _ => None,
        })?;
        self.expect("]")?;
        Some(part)
    }

    fn flag(&mut self) -> Option<bool> {
        match self.expect("true") {
            Some(()) => Some(true),
            None => self.expect("false").map(|()| false),
        }
    }

    fn word(&mut self) -> Option<Str<'a>> {
        self.plain().map(Str::Borrowed)
    }

    fn text(&mut self) -> Option<Str<'a>> {
        let before = self.rest;
        if let Some(plain) = self.word() {
            return Some(plain);
        }
        self.rest = before;
        let quoted = self.value()?.get();
        unescape(quoted.strip_prefix('"')?.strip_suffix('"')?)
    }

    /// A string without escapes.
    fn plain(&mut self) -> Option<&'a str> {
        self.expect("\"")?;
        let end = self
            .rest
            .bytes()
            .position(|byte| byte == b'"' || byte == b'\\' || byte < b' ')?;
        let (plain, rest) = self.rest.split_at(end);
        self.rest = rest;
        self.expect("\"")?;
        Some(plain)
    }

    /// A value that is kept as it is written; `None` for `null`, which counts as absent.
    fn raw(&mut self) -> Option<Raw<'a>> {
        let value = self.value()?;
        (value.get() != "null").then_some(Raw::Borrowed(value))
    }

    fn value(&mut self) -> Option<&'a RawValue> {
        let mut values = serde_json::Deserializer::from_str(self.rest).into_iter();
        let value = values.next()?.ok()?;
        self.rest = self.rest.get(values.byte_offset()..)?;
        Some(value)
    }

    fn expect(&mut self, token: &str) -> Option<()> {
        self.rest = self.rest.strip_prefix(token)?;
        Some(())
    }
}

/// Fills a field that has not occurred before: the full reader refuses JSON with a duplicate key.
fn set_once<T>(slot: &mut Option<T>, value: Option<T>) -> Option<()> {
    match slot {
        Some(_) => None,
        None => {
            *slot = Some(value?);
            Some(())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SAMPLES: [&str; 5] = [
        r#"{"modelVersion":"scripted-1","content":{"parts":[{"text":"tok0 "}],"role":"model"},"partial":true,"invocationId":"e-90","author":"scripted","actions":{"stateDelta":{},"artifactDelta":{},"requestedAuthConfigs":{},"requestedToolConfirmations":{}},"nodeInfo":{"path":"scripted@1"},"id":"65","timestamp":1794764977.5103507}"#,
        r#"{"modelVersion":"g","content":{"parts":[{"text":"a\nb\u00e9\ud83d\ude00","thought":true}],"role":"model"},"partial":true,"usageMetadata":{"promptTokensDetails":[{"modality":"TEXT","tokenCount":12}],"totalTokenCount":14},"id":"62"}"#,
        r#"{"content":{"parts":[{"text":"x"}]},"partial":true}"#,
        r#"{"author":"a","branch":"team.a","content":{"parts":[{"text":"x"}]},"partial":true,"nodeInfo":{"path":""}}"#,
        r#"{"partial":true,"content":{"role":"model","parts":[{"thought":false,"text":""}]},"timestamp":null}"#,
    ];

    #[test]
    fn recorded_deltas_are_read_here() {
        for (sample, here) in SAMPLES.iter().zip([true, true, true, true, false]) {
            assert_eq!(read(sample).is_some(), here, "{sample}");
        }
    }

    proptest! {
        #[test]
        fn says_what_the_full_reader_says(
            sample in prop::sample::select(&SAMPLES[..]),
            edits in prop::collection::vec((any::<prop::sample::Index>(), 0..4usize, piece()), 0..3),
        ) {
            let mut json = sample.to_owned();
            for (at, cut, piece) in edits {
                // The samples are ASCII, and so are the pieces.
                let at = at.index(json.len() + 1);
                json.replace_range(at..(at + cut).min(json.len()), piece);
            }
            if let Some(event) = read(&json) {
                let full = Event::parse_any(&json).expect("the full reader knows every form");
                prop_assert_eq!(
                    serde_json::to_string(&event).unwrap(),
                    serde_json::to_string(&full).unwrap()
                );
            }
        }
    }

    fn piece() -> impl Strategy<Value = &'static str> {
        prop::sample::select(
            &[
                "",
                " ",
                "\"",
                "\\",
                "\u{1}",
                "{",
                "}",
                "[",
                "]",
                ",",
                ":",
                "1",
                "e",
                "-",
                "null",
                "true",
                "false",
                "\\n",
                "\\ud800",
                "{}",
                "\"id\":\"1\",",
                "\"thought\":null,",
                "\"outputFor\":[\"a\"],",
                "\"partial\":true,",
                ",\"text\":\"\"",
            ][..],
        )
    }
}
