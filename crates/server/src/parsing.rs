//! Reads large JSON in separate threads, within a limit on the memory that this takes.
//!
//! The cost of a text is the most bytes that reading it takes: its copy, and a tree of its values. A text of low cost
//! is read in place; all others wait for room. So many large texts take longer instead of using all the memory, and
//! small texts never wait for them.

use adk_bridge_protocol::wire::json::{self, MAX_VALUES, VALUE_BYTES};
use tokio::sync::{Semaphore, SemaphorePermit};

/// The total cost of all large texts that are being read: one text of 32 MB of the worst kind fits.
const ROOM_BYTES: usize = 160 * 1024 * 1024;
/// Up to this cost, a text is read in place: it takes a millisecond, and histories of usual length cost less.
const AT_ONCE_BYTES: usize = 2 * 1024 * 1024;
/// A longer text is not scanned before there is room for it.
const LOOKED_AT_BYTES: usize = 256 * 1024;
/// Room is counted in pieces of this size.
const PIECE_BYTES: usize = 1024;

static ROOM: Semaphore = Semaphore::const_new(ROOM_BYTES / PIECE_BYTES);

/// Room for texts that stay trees after they were read. It is taken before [`ROOM`] and kept while a chat processes the
/// tree, for which it may have to read its history.
static HELD: Semaphore = Semaphore::const_new(ROOM_BYTES / PIECE_BYTES);

/// Why a text was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ParsingError {
    #[error("the request could not be read; try again")]
    Failed,
    #[error("the server is shutting down")]
    ShuttingDown,
}

/// Reserved room, released on drop; empty if none was needed.
#[derive(Debug, Default)]
#[must_use]
pub struct Room(Option<SemaphorePermit<'static>>);

impl Room {
    pub fn is_some(&self) -> bool {
        self.0.is_some()
    }
}

/// The most that reading these texts can cost.
pub fn cost<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> usize {
    let bytes: usize = texts.clone().map(<[u8]>::len).sum();
    let values = if bytes > LOOKED_AT_BYTES {
        MAX_VALUES
    } else {
        // A refused text costs nothing, but only its reader can refuse it.
        let values = |text| json::scan(text).map_or(MAX_VALUES, |found| found.values);
        texts.map(values).sum()
    };
    2 * bytes + values * VALUE_BYTES
}

/// Does work of this cost: in place if it is low, otherwise in a separate thread when there is room.
pub async fn read<T: Send + 'static>(
    cost: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ParsingError> {
    if cost <= AT_ONCE_BYTES {
        return Ok(work());
    }
    read_in(room(&ROOM, cost).await?, work).await
}

/// Whether texts of this many bytes need room before they are even loaded.
pub fn is_large(bytes: usize) -> bool {
    bytes > LOOKED_AT_BYTES
}

/// Room for loading and reading this many bytes. Do not wait for it while holding other room.
pub async fn room_for(bytes: usize) -> Result<Room, ParsingError> {
    let tree = MAX_VALUES * VALUE_BYTES;
    room(&ROOM, bytes.saturating_mul(4).saturating_add(tree)).await
}

/// Does work in a separate thread, in this room.
pub async fn read_in<T: Send + 'static>(
    room: Room,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, ParsingError> {
    // The thread owns the room: the caller may stop waiting before the work is done.
    let work = move || {
        let done = work();
        drop(room);
        done
    };
    tokio::task::spawn_blocking(work).await.map_err(|error| {
        tracing::error!(%error, "a text could not be read");
        ParsingError::Failed
    })
}

/// Room for the values that are read from these texts and kept at full size.
pub async fn hold<'a>(texts: impl Iterator<Item = &'a [u8]> + Clone) -> Result<Room, ParsingError> {
    match cost(texts) {
        0..=AT_ONCE_BYTES => Ok(Room(None)),
        cost => room(&HELD, cost).await,
    }
}

async fn room(of: &'static Semaphore, cost: usize) -> Result<Room, ParsingError> {
    let pieces = cost.min(ROOM_BYTES) / PIECE_BYTES;
    let pieces = u32::try_from(pieces).unwrap_or(u32::MAX);
    match of.acquire_many(pieces).await {
        Ok(permit) => Ok(Room(Some(permit))),
        Err(_) => Err(ParsingError::ShuttingDown),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_usual_history_is_read_at_once_and_a_large_body_is_not() {
        let part = r#"{"type":"tool-a","toolCallId":"call-1","state":"output-available","input":{"a":1},"output":{"b":2}},"#;
        let history = part.repeat(400);
        let photo = format!("\"data:image/jpeg;base64,{}\"", "A".repeat(800_000));
        let cases = [
            (history.as_str(), true),
            (photo.as_str(), false),
            (&"[".repeat(10_000), false),
        ];
        for (text, at_once) in cases {
            let cost = cost(std::iter::once(text.as_bytes()));
            assert_eq!(cost <= AT_ONCE_BYTES, at_once, "{cost}: {text:.40}");
        }
    }

    #[tokio::test]
    async fn small_texts_pass_large_ones_that_wait() {
        let all = room(&ROOM, ROOM_BYTES).await.unwrap();
        let mut second = std::pin::pin!(read(ROOM_BYTES, || 2));
        tokio::select! {
            biased;
            _ = &mut second => panic!("there is no room"),
            small = read(1000, || 1) => assert_eq!(small.unwrap(), 1),
        }
        drop(all);
        assert_eq!(second.await.unwrap(), 2);
    }
}
