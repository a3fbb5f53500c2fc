//! Server-sent events: writes the frames of an answer, and reads those of an agent.
//!
//! ```
//! use adk_bridge_protocol::chunk::{Chunk, Sdk};
//! use adk_bridge_protocol::wire::sse;
//!
//! let mut answer = Vec::new();
//! sse::chunk(&mut answer, &Chunk::text_delta("t0", "Hello"), Sdk::NEWEST);
//! answer.extend_from_slice(sse::DONE);
//! let text = "data: {\"type\":\"text-delta\",\"id\":\"t0\",\"delta\":\"Hello\"}\n\ndata: [DONE]\n\n";
//! assert_eq!(answer, text.as_bytes());
//! ```

use super::lines::{Line, LineBuffer};
use crate::chunk::Chunk;
use crate::sdk::Sdk;

const PREFIX: &[u8] = b"data: ";
const SUFFIX: &[u8] = b"\n\n";

/// Ends an answer.
pub const DONE: &[u8] = b"data: [DONE]\n\n";

/// Keeps an idle connection open; a comment, because clients parse every event as a chunk.
pub const KEEP_ALIVE: &[u8] = b": keep-alive\n\n";

pub use crate::event::MAX_EVENT_BYTES;

/// Event names are single words; a longer name means that the stream is broken.
pub const MAX_NAME_BYTES: usize = 256;

/// Appends one event that carries `json`, which must be a single line.
pub fn frame(out: &mut Vec<u8>, json: &[u8]) {
    debug_assert!(
        memchr::memchr2(b'\n', b'\r', json).is_none(),
        "an event's JSON lies in one line"
    );
    out.reserve(PREFIX.len() + json.len() + SUFFIX.len());
    out.extend_from_slice(PREFIX);
    out.extend_from_slice(json);
    out.extend_from_slice(SUFFIX);
}

/// Appends one event that carries a chunk, unless the client's version does not know it. Returns whether it did.
pub fn chunk(out: &mut Vec<u8>, chunk: &Chunk<'_>, sdk: Sdk) -> bool {
    let start = out.len();
    out.extend_from_slice(PREFIX);
    let written = chunk.write(sdk, out);
    if written {
        out.extend_from_slice(SUFFIX);
    } else {
        out.truncate(start);
    }
    written
}

/// The JSON inside a frame that [`chunk`] or [`frame`] wrote.
pub fn payload(frame: &[u8]) -> &[u8] {
    frame
        .strip_prefix(PREFIX)
        .and_then(|rest| rest.strip_suffix(SUFFIX))
        .unwrap_or(frame)
}

/// Reads events out of bytes that arrive in arbitrary pieces.
///
/// The result does not depend on where the pieces end. An event is borrowed from its piece if it has one data line that
/// lies in that piece; all others pass through a buffer that never exceeds the bound. After an error every call repeats
/// it.
///
/// ```
/// # use adk_bridge_protocol::wire::sse::{Ending, SseParser};
/// let mut parser = SseParser::default();
/// let mut texts = Vec::new();
/// for piece in [&b"data: {\"n\":1}\n\nda"[..], b"ta: {\"n\":2}\n\n"] {
///     let mut rest = piece;
///     while let Some(event) = parser.next(&mut rest)? {
///         texts.push(event.data.to_owned());
///     }
/// }
/// assert_eq!(texts, ["{\"n\":1}", "{\"n\":2}"]);
/// assert_eq!(parser.finish()?, Ending::Complete);
/// # Ok::<(), adk_bridge_protocol::wire::sse::SseError>(())
/// ```
#[derive(Debug)]
pub struct SseParser {
    /// The data lines of an incomplete event.
    lines: LineBuffer,
    name: String,
    /// Whether the event has a data line.
    has_data: bool,
    event_at: u64,
    /// Whether the last event was returned: the next call drops its data and name.
    spent: bool,
    failed: Option<SseError>,
}

/// One event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// The data lines, joined by line feeds.
    pub data: &'a str,
    /// Empty if the event has none.
    pub name: &'a str,
    /// Where in the stream its first data line begins.
    pub at: u64,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending<'a> {
    /// After the blank line of the last event, or without any event.
    Complete,
    /// Inside an event: the connection was cut off.
    Truncated {
        /// The data that had arrived, possibly cut inside a character.
        data: &'a [u8],
        /// Where in the stream the event begins.
        at: u64,
    },
}

/// Why a stream cannot be read further.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says what it means")]
pub enum SseError {
    #[error("event or line longer than {limit} bytes, exceeded at byte {at}; raise the limit")]
    TooLong { limit: usize, at: u64 },
    #[error("invalid UTF-8 at byte {at} of the stream")]
    NotUtf8 { at: u64 },
    #[error("input after the end of the stream; use a new parser for a new stream")]
    Finished,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl SseParser {
    /// Makes a parser that refuses events longer than `max_event_bytes`.
    ///
    /// An event's length is its data so far plus the whole line that is being read, field name included.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            lines: LineBuffer::new(max_event_bytes),
            name: String::new(),
            has_data: false,
            event_at: 0,
            spent: false,
            failed: None,
        }
    }

    /// Takes the next event out of `input` and moves `input` behind it; `None` when all of `input` is used up.
    pub fn next<'a, 'b: 'a>(
        &'a mut self,
        input: &mut &'b [u8],
    ) -> Result<Option<SseEvent<'a>>, SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let data = match self.advance(input) {
            Ok(None) => return Ok(None),
            Ok(Some(Data::Whole(data))) => data,
            // Each of its lines was checked, so this cannot fail.
            Ok(Some(Data::Kept)) => self.lines.utf8(self.lines.kept(), 0)?,
            Err(error) => {
                self.failed = Some(error);
                self.lines.release();
                return Err(error);
            }
        };
        Ok(Some(SseEvent {
            data,
            name: &self.name,
            at: self.event_at,
        }))
    }

    /// Ends the stream, returns whether it was cut off, and refuses further input.
    pub fn finish(&mut self) -> Result<Ending<'_>, SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.failed = Some(SseError::Finished);
        self.forget_spent();
        if self.lines.end() {
            match Field::of(self.lines.line()) {
                Field::Data(skip) => {
                    let joined = self.begin_data();
                    self.lines.keep_line(skip, joined);
                }
                Field::Comment if !self.has_data && self.name.is_empty() => {
                    return Ok(Ending::Complete);
                }
                _ if !self.has_data && self.name.is_empty() => {
                    self.event_at = self.lines.line_at();
                }
                _ => {}
            }
        } else if !self.has_data && self.name.is_empty() {
            return Ok(Ending::Complete);
        }
        self.lines.drop_line();
        Ok(Ending::Truncated {
            data: self.lines.kept(),
            at: self.event_at,
        })
    }

    fn advance<'b>(&mut self, input: &mut &'b [u8]) -> Result<Option<Data<'b>>, SseError> {
        self.forget_spent();
        // The event's only data line so far, as long as it needs no copy.
        let mut whole: Option<&'b str> = None;
        loop {
            let Some(line) = self.lines.next(input, whole.map_or(0, str::len))? else {
                if let Some(data) = whole {
                    self.lines.keep(data.as_bytes());
                }
                self.lines.absorb(input)?;
                return Ok(None);
            };
            let bytes = match line {
                Line::Whole(bytes) => bytes,
                Line::Buffered => self.lines.line(),
            };
            if bytes.is_empty() {
                if self.has_data {
                    self.spent = true;
                    return Ok(Some(whole.map_or(Data::Kept, Data::Whole)));
                }
                self.name.clear();
                continue;
            }
            match Field::of(bytes) {
                Field::Data(skip) => {
                    let joined = self.begin_data();
                    match line {
                        Line::Whole(bytes) => {
                            let data = self.lines.utf8(&bytes[skip..], skip)?;
                            if !joined {
                                whole = Some(data);
                                continue;
                            }
                            if let Some(first) = whole.take() {
                                self.lines.keep(first.as_bytes());
                            }
                            self.lines.keep(b"\n");
                            self.lines.keep(data.as_bytes());
                        }
                        Line::Buffered => {
                            self.lines.utf8(&self.lines.line()[skip..], skip)?;
                            self.lines.keep_line(skip, joined);
                        }
                    }
                }
                Field::Name(skip) => {
                    let name = self.lines.utf8(&bytes[skip..], skip)?;
                    if name.len() > MAX_NAME_BYTES {
                        return Err(SseError::TooLong {
                            limit: MAX_NAME_BYTES,
                            at: self.lines.line_at() + (skip + MAX_NAME_BYTES) as u64,
                        });
                    }
                    self.name.clear();
                    self.name.push_str(name);
                    if !self.has_data {
                        self.event_at = self.lines.line_at();
                    }
                    self.lines.drop_line();
                }
                Field::Comment | Field::Ignored => self.lines.drop_line(),
            }
        }
    }

    /// Notes a data line; returns whether it continues earlier ones.
    fn begin_data(&mut self) -> bool {
        if self.has_data {
            return true;
        }
        self.has_data = true;
        self.event_at = self.lines.line_at();
        false
    }

    fn forget_spent(&mut self) {
        if self.spent {
            self.spent = false;
            self.has_data = false;
            self.name.clear();
            self.lines.drop_kept();
        }
    }
}

/// Where the data of a complete event is.
enum Data<'b> {
    Whole(&'b str),
    Kept,
}

/// What a line is, with the number of bytes before its value.
enum Field {
    Data(usize),
    Name(usize),
    Comment,
    Ignored,
}

impl Field {
    fn of(line: &[u8]) -> Self {
        if let Some(rest) = line.strip_prefix(b"data") {
            if let Some(skip) = value(rest) {
                return Self::Data(4 + skip);
            }
        } else if let Some(rest) = line.strip_prefix(b"event") {
            if let Some(skip) = value(rest) {
                return Self::Name(5 + skip);
            }
        } else if line.first() == Some(&b':') {
            return Self::Comment;
        }
        Self::Ignored
    }
}

/// Returns the length of the colon and one space; a name without a colon has an empty value.
fn value(rest: &[u8]) -> Option<usize> {
    match rest {
        [] => Some(0),
        [b':', b' ', ..] => Some(2),
        [b':', ..] => Some(1),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
