//! Which messages fit a page: decided by their sizes, before any of them is read.

use super::{MessagePage, StoreError};

/// How many messages are looked at for one page.
pub(super) const PAGE_MESSAGES: i64 = 1_000;

/// The first and the last message of a page, and the size of the page.
pub(super) struct Places {
    pub(super) first: i64,
    pub(super) last: i64,
    pub(super) bytes: usize,
}

impl Places {
    /// Those of the messages that fit a page, given in order by place and size: at least one, if there is any.
    pub(super) fn fitting(
        page: MessagePage,
        messages: impl Iterator<Item = Result<(i64, usize), StoreError>>,
    ) -> Result<Option<Self>, StoreError> {
        let mut found: Option<Self> = None;
        for message in messages {
            let (place, bytes) = message?;
            match &mut found {
                None => {
                    found = Some(Self {
                        first: place,
                        last: place,
                        bytes,
                    });
                }
                Some(places) if places.bytes.saturating_add(bytes) <= page.max_bytes => {
                    places.last = place;
                    places.bytes += bytes;
                }
                Some(_) => break,
            }
        }
        Ok(found)
    }
}
