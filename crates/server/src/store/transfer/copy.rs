//! Rows as PostgreSQL's `COPY` reads them: lines of text, a tab between two values.

use std::fmt::Write as _;

use crate::store::postgres::stored;

/// Lines, one for each row.
#[derive(Default)]
pub(super) struct Lines(String);

/// A line that is being written.
pub(super) struct Line<'l> {
    lines: &'l mut String,
    first: bool,
}

impl Lines {
    /// Begins the next row; it ends when the line is dropped.
    pub(super) fn line(&mut self) -> Line<'_> {
        Line {
            lines: &mut self.0,
            first: true,
        }
    }

    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.0.into_bytes()
    }
}

impl Line<'_> {
    pub(super) fn number(&mut self, number: Option<i64>) {
        match number {
            Some(number) => self.put(|line| {
                let _ = write!(line, "{number}");
            }),
            None => self.null(),
        }
    }

    pub(super) fn flag(&mut self, flag: bool) {
        self.put(|line| line.push(if flag { 't' } else { 'f' }));
    }

    /// Text that may have a NUL.
    pub(super) fn text(&mut self, text: Option<&str>) {
        self.plain(text.map(stored).as_deref());
    }

    pub(super) fn plain(&mut self, text: Option<&str>) {
        match text {
            Some(text) => self.put(|line| escape(line, text)),
            None => self.null(),
        }
    }

    /// A list of texts.
    pub(super) fn texts(&mut self, texts: &[String]) {
        let mut list = String::from("{");
        for (index, text) in texts.iter().enumerate() {
            if index > 0 {
                list.push(',');
            }
            let quoted = stored(text).replace('\\', "\\\\").replace('"', "\\\"");
            let _ = write!(list, "\"{quoted}\"");
        }
        list.push('}');
        self.plain(Some(&list));
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        self.put(|line| {
            line.push_str("\\\\x");
            for byte in bytes {
                let _ = write!(line, "{byte:02x}");
            }
        });
    }

    fn null(&mut self) {
        self.put(|line| line.push_str("\\N"));
    }

    fn put(&mut self, value: impl FnOnce(&mut String)) {
        if !std::mem::take(&mut self.first) {
            self.lines.push('\t');
        }
        value(self.lines);
    }
}

impl Drop for Line<'_> {
    fn drop(&mut self) {
        self.lines.push('\n');
    }
}

fn escape(line: &mut String, text: &str) {
    for character in text.chars() {
        match character {
            '\\' => line.push_str("\\\\"),
            '\t' => line.push_str("\\t"),
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            other => line.push(other),
        }
    }
}
