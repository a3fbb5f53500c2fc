//! Splits bytes that arrive in arbitrary pieces into lines, within a bound on memory; JSON lines are read with it
//! directly.

use memchr::memchr2;

use super::sse::{MAX_EVENT_BYTES, SseError};

/// Reads newline-delimited JSON; blank lines, a byte order mark and every kind of line ending are accepted.
#[derive(Debug)]
pub struct LineReader {
    lines: LineBuffer,
    spent: bool,
    failed: Option<SseError>,
}

/// One line that is not blank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JsonLine<'a> {
    /// Counted from 1.
    pub number: u64,
    /// The line, without its ending.
    pub text: &'a str,
}

impl Default for LineReader {
    fn default() -> Self {
        Self::new(MAX_EVENT_BYTES)
    }
}

impl LineReader {
    /// Makes a reader that refuses lines longer than `max_line_bytes`.
    pub fn new(max_line_bytes: usize) -> Self {
        Self {
            lines: LineBuffer::new(max_line_bytes),
            spent: false,
            failed: None,
        }
    }

    /// Takes the next line out of `input` and moves `input` behind it; `None` when all of `input` is used up.
    pub fn next<'a, 'b: 'a>(
        &'a mut self,
        input: &mut &'b [u8],
    ) -> Result<Option<JsonLine<'a>>, SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        match self.advance(input) {
            Ok(None) => Ok(None),
            Ok(Some(Line::Whole(text))) => self.line(text).map(Some),
            Ok(Some(Line::Buffered)) => {
                self.spent = true;
                self.line(self.lines.line()).map(Some)
            }
            Err(error) => {
                self.failed = Some(error);
                self.lines.release();
                Err(error)
            }
        }
    }

    /// Returns the last line if no line ending followed it, and refuses further input.
    pub fn finish(&mut self) -> Result<Option<JsonLine<'_>>, SseError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        self.failed = Some(SseError::Finished);
        if self.spent || !self.lines.end() || is_blank(self.lines.line()) {
            return Ok(None);
        }
        self.line(self.lines.line()).map(Some)
    }

    fn advance<'b>(&mut self, input: &mut &'b [u8]) -> Result<Option<Line<'b>>, SseError> {
        if self.spent {
            self.spent = false;
            self.lines.drop_line();
        }
        loop {
            let Some(line) = self.lines.next(input, 0)? else {
                self.lines.absorb(input)?;
                return Ok(None);
            };
            let bytes = match line {
                Line::Whole(bytes) => bytes,
                Line::Buffered => self.lines.line(),
            };
            if is_blank(bytes) {
                self.lines.drop_line();
                continue;
            }
            self.lines.utf8(bytes, 0)?;
            return Ok(Some(line));
        }
    }

    fn line<'a>(&self, bytes: &'a [u8]) -> Result<JsonLine<'a>, SseError> {
        Ok(JsonLine {
            number: self.lines.number(),
            text: self.lines.utf8(bytes, 0)?,
        })
    }
}

fn is_blank(line: &[u8]) -> bool {
    line.iter().all(u8::is_ascii_whitespace)
}

/// A line that `LineBuffer` found.
#[derive(Debug, Clone, Copy)]
pub(super) enum Line<'b> {
    /// The whole line is in the input.
    Whole(&'b [u8]),
    /// It began in an earlier input; see [`LineBuffer::line`].
    Buffered,
}

/// Splits input into lines and keeps what outlives one input: finished data of the owner, then one unfinished line.
///
/// One allocation holds both, so the bound on their sum is the bound on memory.
#[derive(Debug)]
pub(super) struct LineBuffer {
    bytes: Vec<u8>,
    /// How many of `bytes` are finished data; the unfinished line follows.
    kept: usize,
    max: usize,
    /// Offset in the stream of the next byte of input.
    offset: u64,
    /// Offset in the stream of the current line.
    line_at: u64,
    /// Lines found so far.
    number: u64,
    /// Whether the last line ended with CR: a LF right after it belongs to that line ending.
    skip_lf: bool,
}

/// The capacity that stays allocated between events: one image must not hold its megabytes for the rest of a stream.
const RETAINED_BYTES: usize = 64 * 1024;

const BOM: &[u8] = b"\xef\xbb\xbf";

impl LineBuffer {
    pub(super) fn new(max: usize) -> Self {
        Self {
            bytes: Vec::new(),
            kept: 0,
            max,
            offset: 0,
            line_at: 0,
            number: 0,
            skip_lf: false,
        }
    }

    /// Takes one line out of `input`; `None` if no line ends in it: the caller then calls [`Self::absorb`].
    ///
    /// `outside` is the size of data that the owner holds elsewhere and that counts against the bound.
    pub(super) fn next<'b>(
        &mut self,
        input: &mut &'b [u8],
        outside: usize,
    ) -> Result<Option<Line<'b>>, SseError> {
        self.begin_line(input);
        // Every second line of an SSE stream is blank, and checking one byte is cheaper than starting a search.
        let end = match input.first() {
            None => return Ok(None),
            Some(b'\n' | b'\r') => 0,
            Some(_) => match memchr2(b'\n', b'\r', input) {
                None => return Ok(None),
                Some(end) => end,
            },
        };
        let head = &input[..end];
        self.check(outside, end)?;
        self.skip_lf = input[end] == b'\r';
        self.offset += end as u64 + 1;
        *input = &input[end + 1..];
        self.number += 1;
        if self.line().is_empty() {
            let line = head.strip_prefix(BOM).filter(|_| self.line_at == 0);
            if line.is_some() {
                self.line_at += BOM.len() as u64;
            }
            return Ok(Some(Line::Whole(line.unwrap_or(head))));
        }
        self.push(head);
        self.strip_bom();
        Ok(Some(Line::Buffered))
    }

    /// Takes all of `input` as the beginning or continuation of an unfinished line.
    pub(super) fn absorb(&mut self, input: &mut &[u8]) -> Result<(), SseError> {
        self.begin_line(input);
        self.check(0, input.len())?;
        self.push(input);
        self.offset += input.len() as u64;
        *input = &[];
        Ok(())
    }

    /// Ends the input: a last line without line ending becomes the current line. Returns false if there is none.
    pub(super) fn end(&mut self) -> bool {
        self.number += 1;
        self.strip_bom();
        !self.line().is_empty()
    }

    /// The line that was begun in an earlier input.
    pub(super) fn line(&self) -> &[u8] {
        &self.bytes[self.kept..]
    }

    pub(super) fn kept(&self) -> &[u8] {
        &self.bytes[..self.kept]
    }

    /// Adds to the finished data; there must not be an unfinished line.
    pub(super) fn keep(&mut self, data: &[u8]) {
        debug_assert!(self.line().is_empty());
        self.push(data);
        self.kept = self.bytes.len();
    }

    /// Adds the buffered line without its first `skip` bytes to the finished data, after a line feed if `joined`.
    pub(super) fn keep_line(&mut self, skip: usize, joined: bool) {
        let mut to = self.kept;
        // The field's name, which is dropped, is longer than the line ending that takes its place.
        if joined {
            self.bytes[to] = b'\n';
            to += 1;
        }
        let from = self.kept + skip;
        let length = self.bytes.len() - from;
        self.bytes.copy_within(from.., to);
        self.bytes.truncate(to + length);
        self.kept = self.bytes.len();
    }

    pub(super) fn drop_line(&mut self) {
        self.bytes.truncate(self.kept);
    }

    /// Drops the finished data.
    pub(super) fn drop_kept(&mut self) {
        debug_assert!(self.line().is_empty());
        self.kept = 0;
        if self.bytes.capacity() > RETAINED_BYTES {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
    }

    /// Frees all memory.
    pub(super) fn release(&mut self) {
        self.kept = 0;
        self.bytes = Vec::new();
    }

    pub(super) fn line_at(&self) -> u64 {
        self.line_at
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Reads `bytes`, which begin at offset `skip` of the current line.
    pub(super) fn utf8<'a>(&self, bytes: &'a [u8], skip: usize) -> Result<&'a str, SseError> {
        std::str::from_utf8(bytes).map_err(|error| SseError::NotUtf8 {
            at: self.line_at + (skip + error.valid_up_to()) as u64,
        })
    }

    #[cfg(test)]
    pub(super) fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    fn begin_line(&mut self, input: &mut &[u8]) {
        if self.skip_lf && !input.is_empty() {
            self.skip_lf = false;
            if input[0] == b'\n' {
                *input = &input[1..];
                self.offset += 1;
            }
        }
        if self.line().is_empty() {
            self.line_at = self.offset;
        }
    }

    fn check(&self, outside: usize, more: usize) -> Result<(), SseError> {
        let held = self.kept + outside;
        if held + self.line().len() + more > self.max {
            return Err(SseError::TooLong {
                limit: self.max,
                at: self.line_at + (self.max - held) as u64,
            });
        }
        Ok(())
    }

    /// Appends what `check` has accepted; the capacity doubles up to the bound.
    fn push(&mut self, more: &[u8]) {
        let needed = self.bytes.len() + more.len();
        if needed > self.bytes.capacity() {
            let target = (self.bytes.capacity() * 2).min(self.max).max(needed);
            self.bytes.reserve_exact(target - self.bytes.len());
        }
        self.bytes.extend_from_slice(more);
    }

    fn strip_bom(&mut self) {
        if self.line_at == 0 && self.line().starts_with(BOM) {
            self.bytes.drain(self.kept..self.kept + BOM.len());
            self.line_at += BOM.len() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_lines_of_every_kind() {
        let input = b"\xef\xbb\xbf{\"a\":1}\r\n\r\n  \n{\"b\":2}\r{\"c\":3}\n\xe3\x81\x82";
        assert_eq!(
            read(&[input], 100),
            vec![
                Ok((1, "{\"a\":1}".into())),
                Ok((4, "{\"b\":2}".into())),
                Ok((5, "{\"c\":3}".into())),
                Ok((6, "\u{3042}".into())),
            ]
        );
    }

    #[test]
    fn refuses_by_offset_and_stays_closed() {
        assert_eq!(
            read(&[b"1234\n12", b"345\n1\n"], 4),
            vec![
                Ok((1, "1234".into())),
                Err(SseError::TooLong { limit: 4, at: 9 })
            ]
        );
        assert_eq!(
            read(&[b"ok\nno \xff\n"], 9),
            vec![Ok((1, "ok".into())), Err(SseError::NotUtf8 { at: 6 })]
        );
        let mut reader = LineReader::new(2);
        let error = Err(SseError::TooLong { limit: 2, at: 2 });
        assert_eq!(reader.next(&mut &b"123"[..]), error);
        assert_eq!(reader.next(&mut &b"\n1\n"[..]), error);
        assert_eq!(reader.finish(), error);
    }

    proptest! {
        #[test]
        fn lines_do_not_depend_on_how_the_input_is_cut(
            pieces in proptest::collection::vec("[\\n\\r{}\u{3042} ]{0,5}", 0..8),
            limit in 1usize..20,
        ) {
            let whole = pieces.concat();
            let bytes: Vec<&[u8]> = whole.as_bytes().chunks(1).collect();
            let expected = read(&[whole.as_bytes()], limit);
            prop_assert_eq!(&read(&bytes, limit), &expected);
            let pieces: Vec<&[u8]> = pieces.iter().map(String::as_bytes).collect();
            prop_assert_eq!(&read(&pieces, limit), &expected);
        }
    }

    fn read(pieces: &[&[u8]], limit: usize) -> Vec<Result<(u64, String), SseError>> {
        let mut reader = LineReader::new(limit);
        let mut lines = Vec::new();
        let owned = |line: JsonLine<'_>| (line.number, line.text.to_owned());
        for piece in pieces {
            let mut rest = *piece;
            loop {
                let line = reader.next(&mut rest).map(|line| line.map(owned));
                assert!(reader.lines.capacity() <= limit);
                match line {
                    Ok(Some(line)) => lines.push(Ok(line)),
                    Ok(None) => break,
                    Err(error) => {
                        lines.push(Err(error));
                        return lines;
                    }
                }
            }
            assert!(rest.is_empty());
        }
        lines.extend(reader.finish().map(|line| line.map(owned)).transpose());
        lines
    }
}
