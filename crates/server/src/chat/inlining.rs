//! Inlines the content of files into an answer or a request: up to a limit, and each file is read once.

use std::collections::HashMap;

use adk_bridge_protocol::base64;
use adk_bridge_protocol::message::{Part, Role};

use super::attachments::{data_url, image_of};
use super::listing;
use crate::files::address::id_of;
use crate::files::{FileError, Files};
use crate::store::{ChatRef, Store, StoreError, StoredMessage};

/// How many bytes of files are written into one request to the model, or into one answer or stream of dialect `adk`;
/// Google accepts 20 MB in addition to the text.
pub(super) const MAX_INLINE_BYTES: usize = 20_000_000;
/// Roughly the length of a data URL without its content.
const URL_BYTES: usize = 64;

/// The images of assistant messages that dialect `adk` shows by content: the newest ones, up to the limit of an answer.
/// The others keep their URLs.
#[derive(Default)]
pub(super) struct InlinedImages {
    /// The parts of each message, by its place.
    parts: HashMap<u64, Vec<usize>>,
    bytes: usize,
}

impl InlinedImages {
    /// Looks at sizes only, a page of messages at a time.
    pub(super) async fn plan(
        files: &Files,
        store: &dyn Store,
        chat: ChatRef<'_>,
    ) -> Result<Self, StoreError> {
        let mut contents = Contents::new(files, chat);
        let mut images = Vec::new();
        let mut page = listing::first_page();
        loop {
            let messages = listing::next_page(store, chat, &mut page).await?;
            if messages.is_empty() {
                break;
            }
            for stored in &messages {
                if stored.message.role != Role::Assistant {
                    continue;
                }
                for (part, shown) in stored.message.parts.iter().enumerate() {
                    if let Some(id) = image_of(shown)
                        && let Some(size) = contents.size(id).await
                    {
                        images.push((stored.place, part, size));
                    }
                }
            }
        }
        let mut inlined = Self::default();
        for (place, part, size) in images.into_iter().rev() {
            if inlined.bytes + size <= MAX_INLINE_BYTES {
                inlined.bytes += size;
                inlined.parts.entry(place).or_default().push(part);
            }
        }
        Ok(inlined)
    }

    /// The bytes of their content.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) async fn put_into(&self, contents: &mut Contents<'_>, stored: &mut StoredMessage) {
        for part in self.parts.get(&stored.place).into_iter().flatten() {
            if let Some(Part::File(file)) = stored.message.parts.get_mut(*part)
                && let Some(id) = id_of(&file.url)
                && contents.size(id).await.is_some()
                && let Some(base64) = contents.base64(id).await
            {
                file.url = data_url(&file.media_type, base64);
            }
        }
    }
}

/// The files of a chat as base64. Each is looked up once and read once, however often it is named.
pub(super) struct Contents<'a> {
    files: &'a Files,
    chat: ChatRef<'a>,
    sizes: HashMap<String, Option<usize>>,
    read: HashMap<String, Option<String>>,
    is_away: bool,
}

impl<'a> Contents<'a> {
    pub(super) fn new(files: &'a Files, chat: ChatRef<'a>) -> Self {
        Self {
            files,
            chat,
            sizes: HashMap::new(),
            read: HashMap::new(),
            is_away: false,
        }
    }

    /// How many bytes a file takes as a data URL, or nothing if the chat does not have it.
    pub(super) async fn size(&mut self, id: &str) -> Option<usize> {
        if let Some(size) = self.sizes.get(id) {
            return *size;
        }
        let row = self.files.row(self.chat.user, id).await.ok();
        let size = row
            .filter(|row| row.chat_id == *self.chat.id)
            .and_then(|row| usize::try_from(row.bytes).ok())
            .map(|bytes| bytes.div_ceil(3).saturating_mul(4) + URL_BYTES);
        self.sizes.insert(id.to_owned(), size);
        size
    }

    /// The content of a file that has a size here.
    pub(super) async fn base64(&mut self, id: &str) -> Option<&str> {
        if !self.read.contains_key(id) {
            let encoded = match self.is_away {
                // Whoever waits for each of many files in vain waits long.
                true => None,
                false => match self.files.content(self.chat.user, id).await {
                    Ok((_, content)) => Some(base64::encode(&content)),
                    Err(error) => {
                        self.is_away = matches!(error, FileError::Unavailable);
                        None
                    }
                },
            };
            self.read.insert(id.to_owned(), encoded);
        }
        self.read.get(id)?.as_deref()
    }

    /// Whether content could not be read that is there, and can be read later.
    pub(super) fn is_away(&self) -> bool {
        self.is_away
    }
}
