//! The messages of a chat for a page that loads it, a few at a time, so that a long chat takes no more memory than a
//! short one.

use std::sync::Arc;

use adk_bridge_protocol::calls::Calls;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::{ChatId, MessageId, UserId};
use adk_bridge_protocol::message::Message;
use tokio::sync::mpsc;

use super::inlining::{Contents, InlinedImages};
use super::{ChatError, Chats, Command, Shared, attachments, conversation};
use crate::budget::BudgetError;
use crate::files::address::Base;
use crate::store::{
    Chat, ChatRef, HistorySize, MessagePage, MessageState, OutlineEntry, Store, StoreError,
    StoredMessage,
};

/// How many bytes of messages are read at once; a larger message is read alone.
pub(super) const PAGE_BYTES: usize = 1024 * 1024;
/// How many pages of one listing are held: one is being read, one waits, one is being written.
const PAGES_HELD: usize = 3;

/// A chat with its messages.
pub struct Listing {
    pub chat: Chat,
    /// The first of them.
    pub first: Vec<Message>,
    /// Those that follow, if there are more.
    pub rest: Option<RemainingMessages>,
}

/// The messages after the first ones of a listing.
pub struct RemainingMessages {
    second: Option<Vec<Message>>,
    pages: mpsc::Receiver<Result<Vec<Message>, StoreError>>,
}

impl RemainingMessages {
    /// The next messages; none at the end.
    pub async fn next(&mut self) -> Result<Vec<Message>, StoreError> {
        match self.second.take() {
            Some(second) => Ok(second),
            None => next_of(&mut self.pages).await,
        }
    }
}

impl Chats {
    /// The messages that have ended or wait for an answer; one that is being streamed is left to a resume. `admit` is
    /// called before anything is read, with the bytes that it will take, and may refuse.
    pub async fn messages(
        &self,
        user: &UserId,
        chat_id: &ChatId,
        dialect: Dialect,
        base: &Base,
        mut admit: impl FnMut(usize) -> Result<(), BudgetError>,
    ) -> Result<Listing, ChatError> {
        let chat = ChatRef { user, id: chat_id };
        let store = &self.shared.store;
        let found = store.chat(chat).await?.ok_or(ChatError::NoSuchChat)?;
        let bytes = held_bytes(store.history_size(chat).await?);
        admit(bytes)?;
        let mut shown = store.outline(chat).await?;
        shown.retain(|placed| placed.is_shown() && placed.state != MessageState::Running);
        self.note_listed(chat, &shown).await?;
        let mut inlined = InlinedImages::default();
        if dialect.inlines_images() {
            inlined = InlinedImages::plan(&self.shared.files, &**store, chat).await?;
            admit(bytes.saturating_add(inlined.bytes()))?;
        }
        let reader = PageReader {
            shared: self.shared.clone(),
            user: user.to_owned(),
            chat_id: chat_id.to_owned(),
            dialect,
            base: base.in_dialect(dialect),
            places: shown.into_iter().map(|placed| placed.place).collect(),
            inlined,
        };
        let (sender, mut pages) = mpsc::channel(1);
        tokio::spawn(reader.read(sender));
        let first = next_of(&mut pages).await?;
        let second = match first.is_empty() {
            true => Vec::new(),
            false => next_of(&mut pages).await?,
        };
        let rest = (!second.is_empty()).then_some(RemainingMessages {
            second: Some(second),
            pages,
        });
        Ok(Listing {
            chat: found,
            first,
            rest,
        })
    }

    /// Notes that a page loads these messages.
    async fn note_listed(
        &self,
        chat: ChatRef<'_>,
        shown: &[OutlineEntry],
    ) -> Result<(), ChatError> {
        let news = shown.iter().filter(|placed| !placed.seen);
        let news: Vec<MessageId> = news.map(|placed| placed.id.clone()).collect();
        conversation::note_seen_soon(&self.shared.store, chat, &news).await;
        if self.is_in_use(chat.user, chat.id) {
            let last = shown.last().map(|placed| placed.id.clone());
            self.ask(chat.user, chat.id, |answer| Command::Listed {
                last,
                news,
                answer,
            })
            .await?;
        }
        Ok(())
    }
}

/// How many bytes a listing holds at most.
fn held_bytes(size: HistorySize) -> usize {
    size.bytes.min(PAGES_HELD * size.largest.max(PAGE_BYTES))
}

async fn next_of(
    pages: &mut mpsc::Receiver<Result<Vec<Message>, StoreError>>,
) -> Result<Vec<Message>, StoreError> {
    // A list that breaks off must not be taken for a complete one.
    pages.recv().await.unwrap_or_else(|| {
        Err(StoreError::Corrupt {
            what: "the list of messages".to_owned(),
        })
    })
}

/// Reads the messages of one listing.
struct PageReader {
    shared: Arc<Shared>,
    user: UserId,
    chat_id: ChatId,
    dialect: Dialect,
    base: Base,
    /// The messages that were shown when the listing began, in order.
    places: Vec<u64>,
    inlined: InlinedImages,
}

impl PageReader {
    /// Sends pages until the end, which is an empty one, or until the receiver is dropped.
    async fn read(self, pages: mpsc::Sender<Result<Vec<Message>, StoreError>>) {
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        let mut contents = Contents::new(&self.shared.files, chat);
        let mut page = first_page();
        loop {
            let read = self.page(chat, &mut page, &mut contents).await;
            let is_last = read.as_ref().map_or(true, Vec::is_empty);
            if pages.send(read).await.is_err() || is_last {
                return;
            }
        }
    }

    async fn page(
        &self,
        chat: ChatRef<'_>,
        page: &mut MessagePage,
        contents: &mut Contents<'_>,
    ) -> Result<Vec<Message>, StoreError> {
        let mut messages = Vec::new();
        while messages.is_empty() {
            let stored = next_page(&*self.shared.store, chat, page).await?;
            if stored.is_empty() {
                break;
            }
            for mut stored in stored {
                // A message that came since then belongs to the next listing.
                if self.places.binary_search(&stored.place).is_ok() {
                    self.inlined.put_into(contents, &mut stored).await;
                    messages.push(self.show(chat, stored).await?);
                }
            }
        }
        Ok(messages)
    }

    /// A message in the form that its client sees.
    async fn show(&self, chat: ChatRef<'_>, stored: StoredMessage) -> Result<Message, StoreError> {
        let StoredMessage {
            mut message, state, ..
        } = stored;
        attachments::sign_addresses(&self.shared.addresses, &self.base, &mut message);
        let has_ended = state == MessageState::Done;
        let calls = if self.dialect.needs_calls(&message, has_ended) {
            let record = self.shared.store.reply(chat, &message.id).await?;
            record.map(|record| record.calls).unwrap_or_default()
        } else {
            Calls::default()
        };
        Ok(self.dialect.show(message, &calls, has_ended))
    }
}

pub(super) fn first_page() -> MessagePage {
    MessagePage {
        after: 0,
        max_bytes: PAGE_BYTES,
    }
}

/// Reads a page and advances to the next one.
pub(super) async fn next_page(
    store: &dyn Store,
    chat: ChatRef<'_>,
    page: &mut MessagePage,
) -> Result<Vec<StoredMessage>, StoreError> {
    let stored = store.messages_after(chat, *page).await?;
    if let Some(last) = stored.last() {
        page.after = last.place;
    }
    Ok(stored)
}
