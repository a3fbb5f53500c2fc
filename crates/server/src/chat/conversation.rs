//! The conversation of a chat before its current reply, and which messages clients have received.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::message::{Message, Part, Role};
use tokio::time::{Instant, timeout};

use super::attachments;
use super::branch::{End, ListedMessage, Row, shown_after, shown_at_answer, shown_of_all};
use super::context::ChatContext;
use super::plan::{CutAt, taken_over};
use super::request::{ChatRequest, MessageList};
use crate::files::Files;
use crate::store::{ChatRef, OutlineEntry, Store, StoreError, StoredMessage};

/// How long a page that loaded the chat without its running message may take to ask for it.
const LEFT_OUT: Duration = Duration::from_secs(10);
/// How many such pages are remembered; no user loads one chat more often at once.
const MAX_LEFT_OUT: usize = 16;
/// How long a reader waits until it is noted what it has read: a hundred times the duration of a write, and too short
/// for a human to notice.
const NOTE_TIME: Duration = Duration::from_millis(250);

#[derive(Default)]
pub(super) struct Conversation {
    /// The messages before the current reply.
    messages: Vec<Message>,
    /// Whether the store has the chat, with messages in it.
    known: bool,
    /// The messages that no client is known to have received.
    unseen: HashSet<MessageId>,
    /// The messages that a client has received, which is not stored yet.
    seen: Vec<MessageId>,
    /// Running messages that were missing when a page loaded the chat, and until when the page may ask for them.
    left_out: VecDeque<(MessageId, Instant)>,
}

impl Conversation {
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub(super) fn find(&self, id: &MessageId) -> Option<&Message> {
        self.messages.iter().find(|message| message.id == *id)
    }

    pub(super) fn find_mut(&mut self, id: &MessageId) -> Option<&mut Message> {
        self.messages.iter_mut().rev().find(|it| it.id == *id)
    }

    pub(super) fn is_known(&self) -> bool {
        self.known
    }

    /// Loads the stored messages, without those of the current reply, which the caller has removed.
    pub(super) fn load(&mut self, messages: Vec<StoredMessage>) {
        self.messages = messages.into_iter().map(|stored| stored.message).collect();
    }

    /// Releases the messages: the store has them.
    pub(super) fn release(&mut self) {
        self.messages = Vec::new();
        self.unseen = HashSet::new();
    }

    /// Notes which messages the store has, and which of them are unseen. A chat may have begun with files only.
    pub(super) fn note_stored(&mut self, messages: &[StoredMessage]) {
        let unseen = messages.iter().filter(|stored| !stored.seen);
        self.unseen = unseen.map(|stored| stored.message.id.clone()).collect();
        self.known = !messages.is_empty();
    }

    pub(super) fn note_unknown(&mut self) {
        self.known = false;
    }

    /// Adds the messages that a new reply answers after the previous reply, and cuts what the request removed.
    pub(super) fn begin_reply(
        &mut self,
        reply: &MessageId,
        before: Option<Message>,
        cut: Option<&CutAt>,
        messages: Vec<Message>,
        spoken: bool,
    ) {
        self.unseen.insert(reply.clone());
        if spoken {
            let ids = messages.iter().map(|message| message.id.clone());
            self.unseen.extend(ids);
        }
        self.messages.extend(before);
        if let Some(cut) = cut {
            cut.apply(&mut self.messages);
        }
        self.messages.extend(messages);
        self.known = true;
    }

    /// Appends the message of a reply that is no longer the current one.
    pub(super) fn push(&mut self, message: Message) {
        self.messages.push(message);
    }

    /// Removes the message of a reply that becomes the current one again.
    pub(super) fn remove(&mut self, id: &MessageId) {
        self.messages.retain(|message| message.id != *id);
    }

    /// Notes that a page has loaded messages up to `last`, of which no client had received `news` before. If the
    /// current message was missing, the page asks for it later.
    pub(super) fn note_listed(
        &mut self,
        last: Option<&MessageId>,
        news: &[MessageId],
        current: Option<&MessageId>,
    ) {
        self.unseen.retain(|id| !news.contains(id));
        match current.filter(|id| Some(*id) != last) {
            Some(id) => {
                let until = Instant::now() + LEFT_OUT;
                self.left_out.truncate(MAX_LEFT_OUT - 1);
                self.left_out.push_front((id.to_owned(), until));
            }
            // The page has everything.
            None => self.left_out.clear(),
        }
    }

    /// Whether a page may still ask for this message, which was missing when it loaded the chat. Counts as asking.
    pub(super) fn take_left_out(&mut self, current: &MessageId) -> bool {
        let now = Instant::now();
        self.left_out
            .retain(|(id, until)| *until > now && id == current);
        self.left_out.pop_back().is_some()
    }

    /// Until when a page may ask for a message that was missing. The newest is first.
    pub(super) fn left_out_until(&self) -> Option<Instant> {
        self.left_out.front().map(|(_, until)| *until)
    }

    /// Notes which messages this client has: those that its request names, and those that its connection delivered.
    /// `streamed`: the message that is being sent.
    pub(super) fn note_request(&mut self, request: &mut ChatRequest, streamed: Option<&MessageId>) {
        if request.seen.unread.is_none() {
            let unread = streamed.filter(|id| self.unseen.contains(*id));
            request.seen.unread = unread.cloned();
        }
        let named = request.messages.iter().map(|message| &message.id);
        for id in named.chain(&request.seen.had) {
            self.note_seen(id);
        }
    }

    /// Stores which messages clients have received. Called before the task ends: one write for many turns is enough.
    pub(super) async fn store_seen(&mut self, context: &ChatContext) {
        let seen = std::mem::take(&mut self.seen);
        if let Err(error) = note_seen(&*context.store, context.chat(), &seen).await {
            context.note_refused_write(&error);
        }
    }

    fn note_seen(&mut self, id: &MessageId) {
        if self.unseen.remove(id) {
            self.seen.push(id.to_owned());
        }
    }

    /// Decides which history a new message follows, since the history of its request may differ from ours. If the
    /// message is known, `cut` says where the history ends; messages that the request lacks before it are cut as well.
    pub(super) async fn follow(
        &mut self,
        context: &ChatContext,
        current: Option<&Message>,
        request: &ChatRequest,
        messages: Vec<Message>,
        cut: Option<CutAt>,
    ) -> Result<(Vec<Message>, Option<CutAt>), StoreError> {
        let ours = self.ours(context, current, request);
        let followed = match (self.known, &cut) {
            (false, _) => None,
            (true, None) if request.list == MessageList::Whole => {
                ours.follow_whole(&request.messages, false).await?
            }
            (true, None) if request.list == MessageList::WholeOrNew => {
                ours.follow_whole(&request.messages, true).await?
            }
            (true, cut) => ours.follow(&request.messages, cut.as_ref()).await?,
        };
        let Some(mut followed) = followed else {
            if cut.is_some() {
                self.store_seen(context).await;
            }
            return Ok((messages, cut));
        };
        let mut taken_over = std::mem::take(&mut followed.taken_over);
        if !followed.is_sent_again {
            taken_over.extend(messages);
        }
        let messages = taken_over;
        let cut = self.note_followed(context, request, followed).await;
        Ok((messages, Some(cut)))
    }

    /// Decides what remains next to the current message, whose questions the request answers: its history may differ
    /// from ours. Messages that wait for answers of their own stay.
    pub(super) async fn follow_answers(
        &mut self,
        context: &ChatContext,
        current: &Message,
        request: &ChatRequest,
        waiting: &HashSet<&MessageId>,
    ) -> Result<Option<CutAt>, StoreError> {
        let ours = self.ours(context, Some(current), request);
        let followed = ours.follow_answers(&request.messages, waiting).await?;
        Ok(match followed {
            Some(followed) => Some(self.note_followed(context, request, followed).await),
            None => None,
        })
    }

    /// Keeps only what remains next to the current message.
    pub(super) fn keep_left(&mut self, cut: &CutAt, current: &MessageId) {
        cut.apply(&mut self.messages);
        self.remove(current);
    }

    fn ours<'t>(
        &'t self,
        context: &'t ChatContext,
        current: Option<&'t Message>,
        request: &'t ChatRequest,
    ) -> ServerHistory<'t> {
        ServerHistory {
            store: &*context.store,
            files: &context.files,
            chat: context.chat(),
            shown: self.messages.iter().chain(current).collect(),
            unseen: &self.unseen,
            unread: request.seen.unread.as_ref(),
        }
    }

    /// Notes which of the messages that come back are unseen. Earlier notes are stored first: their messages may be
    /// about to be cut.
    async fn note_followed(
        &mut self,
        context: &ChatContext,
        request: &ChatRequest,
        followed: RequestedHistory,
    ) -> CutAt {
        self.store_seen(context).await;
        for id in followed.unseen_again {
            match request.messages.iter().any(|theirs| theirs.id == id) {
                true => self.seen.push(id),
                false => drop(self.unseen.insert(id)),
            }
        }
        let (places, left) = (followed.places, followed.left);
        CutAt::AllBut { places, left }
    }
}

/// Stores that a client has received these messages. If that fails, they are only kept longer than necessary.
async fn note_seen(
    store: &dyn Store,
    chat: ChatRef<'_>,
    ids: &[MessageId],
) -> Result<(), StoreError> {
    if ids.is_empty() {
        return Ok(());
    }
    store.mark_seen(chat, ids).await.inspect_err(|error| {
        tracing::warn!(chat = %chat.id, %error, "the read state of chat {} cannot be stored", chat.id);
    })
}

/// The same for a client that only reads, which a store that cannot be written must not prevent. Usually the note is
/// stored before this returns, so that the next request finds it.
pub(super) async fn note_seen_soon(store: &Arc<dyn Store>, chat: ChatRef<'_>, ids: &[MessageId]) {
    if ids.is_empty() {
        return;
    }
    let (store, ids) = (store.clone(), ids.to_vec());
    let (user, id) = (chat.user.to_owned(), chat.id.to_owned());
    let noted = tokio::spawn(async move {
        let chat = ChatRef {
            user: &user,
            id: &id,
        };
        let _ = note_seen(&*store, chat, &ids).await;
    });
    let _ = timeout(NOTE_TIME, noted).await;
}

/// The history on the server.
struct ServerHistory<'t> {
    store: &'t dyn Store,
    files: &'t Files,
    chat: ChatRef<'t>,
    /// A resumed message is last here; its place in the store says where it belongs.
    shown: Vec<&'t Message>,
    unseen: &'t HashSet<MessageId>,
    /// The message that the client of the request may not have.
    unread: Option<&'t MessageId>,
}

/// The history that a request asks for.
struct RequestedHistory {
    places: Vec<u64>,
    /// The messages at these places.
    left: Vec<Message>,
    /// Messages that come back and that no client is known to have received.
    unseen_again: Vec<MessageId>,
    /// Whether the last message of the request is one that comes back.
    is_sent_again: bool,
    /// Messages of another chat that follow those.
    taken_over: Vec<Message>,
}

impl ServerHistory<'_> {
    /// The history of a request whose last message follows the others, or nothing if it changes no more than `cut`
    /// does.
    async fn follow(
        &self,
        theirs: &[Message],
        cut: Option<&CutAt>,
    ) -> Result<Option<RequestedHistory>, StoreError> {
        let Some((last, earlier)) = theirs.split_last() else {
            return Ok(None);
        };
        let until = match cut {
            None => None,
            Some(_) => self.shown.iter().position(|ours| ours.id == last.id),
        };
        if earlier.is_empty() || self.are(until, earlier) {
            return Ok(None);
        }
        let outline = self.store.outline(self.chat).await?;
        if !knows_any(&outline, earlier) {
            return Ok(None);
        }
        let again = match cut {
            None => self.sent_again(&outline, last).await?,
            Some(_) => None,
        };
        let shown = outline.iter().find(|it| it.is_shown() && it.id == last.id);
        let shown = shown.map(|placed| placed.place);
        let end = match cut {
            // A cut message is sent again: it comes back, and is not duplicated.
            None => again.map_or(End::Open, End::With),
            Some(CutAt::After(_)) => shown.map_or(End::Open, End::With),
            Some(_) => shown.map_or(End::Open, End::Before),
        };
        let mut rows = self.rows(&outline);
        // The client that edits a message has all of its texts, so none of them comes back next to the new one.
        for row in rows.iter_mut().filter(|row| *row.id == last.id) {
            row.seen = true;
        }
        let listed = match end {
            End::With(_) => theirs,
            End::Open | End::Before(_) => earlier,
        };
        let listed = self.listed(&outline, listed).await?;
        let Some(places) = shown_after(&rows, &listed, end) else {
            return Ok(None);
        };
        let followed = self.followed(&outline, places, again.is_some()).await?;
        Ok(Some(followed))
    }

    /// The history of a request whose messages are everything that its client shows: what it does not list is cut, and
    /// what the chat does not know is taken over. `may_be_new`: it may begin another conversation in this chat.
    async fn follow_whole(
        &self,
        theirs: &[Message],
        may_be_new: bool,
    ) -> Result<Option<RequestedHistory>, StoreError> {
        let Some((last, earlier)) = theirs.split_last() else {
            return Ok(None);
        };
        if self.shown.len() == earlier.len() && (earlier.is_empty() || self.are(None, earlier)) {
            return Ok(None);
        }
        let outline = self.store.outline(self.chat).await?;
        let nameless = |message: &Message| message.id.is_empty();
        if earlier.iter().any(nameless) || self.sent_again(&outline, last).await?.is_some() {
            return self.follow(theirs, None).await;
        }
        let known = known_ids(&outline);
        let unknown = earlier.iter().filter(|theirs| !known.contains(&theirs.id));
        let taken_over: Vec<Message> = unknown.filter_map(taken_over).collect();
        let listed = self.listed(&outline, earlier).await?;
        let places = shown_of_all(&self.rows(&outline), &listed, may_be_new);
        let Some(places) = places.or_else(|| {
            let shown = outline.iter().filter(|placed| placed.is_shown());
            (!taken_over.is_empty()).then(|| shown.map(|placed| placed.place).collect())
        }) else {
            return Ok(None);
        };
        let followed = self.followed(&outline, places, false).await?;
        Ok(Some(RequestedHistory {
            taken_over,
            ..followed
        }))
    }

    /// The history of a request that answers the questions of its last message, which is the last of ours here.
    async fn follow_answers(
        &self,
        theirs: &[Message],
        waiting: &HashSet<&MessageId>,
    ) -> Result<Option<RequestedHistory>, StoreError> {
        let Some((last, earlier)) = theirs.split_last() else {
            return Ok(None);
        };
        if earlier.is_empty() || self.are(Some(self.shown.len() - 1), earlier) {
            return Ok(None);
        }
        let outline = self.store.outline(self.chat).await?;
        let answered = outline.iter().find(|it| it.is_shown() && it.id == last.id);
        let Some(answered) = answered.filter(|_| knows_any(&outline, earlier)) else {
            return Ok(None);
        };
        let rows = self.rows(&outline);
        let listed = self.listed(&outline, theirs).await?;
        let Some(places) = shown_at_answer(&rows, &listed, answered.place, waiting) else {
            return Ok(None);
        };
        Ok(Some(self.followed(&outline, places, false).await?))
    }

    /// Whether a history equals ours up to a message, or its end: true for nearly every request.
    fn are(&self, until: Option<usize>, earlier: &[Message]) -> bool {
        let shown = &self.shown[..until.unwrap_or(self.shown.len())];
        let first = earlier.first().map(|theirs| &theirs.id);
        let start = shown.iter().position(|ours| Some(&ours.id) == first);
        let Some(shown) = start.map(|start| &shown[start..]) else {
            return false;
        };
        let same = |(ours, theirs): (&&Message, &Message)| {
            ours.id == theirs.id && (ours.role != Role::User || words(ours).eq(words(theirs)))
        };
        shown.len() == earlier.len() && shown.iter().zip(earlier).all(same)
    }

    fn rows<'o>(&self, outline: &'o [OutlineEntry]) -> Vec<Row<'o>> {
        let roles = self.shown.iter().map(|ours| (&ours.id, ours.role));
        let roles: HashMap<&MessageId, Role> = roles.collect();
        let row = |placed: &'o OutlineEntry| {
            let id = &placed.id;
            let role = match roles.get(id).filter(|_| placed.is_shown()) {
                Some(role) => *role,
                None if placed.is_reply => Role::Assistant,
                None => Role::User,
            };
            // For shown messages, receipt is stored later.
            let seen = placed.is_shown() || placed.seen;
            Row {
                place: placed.place,
                id,
                role,
                cut_in: placed.cut_in,
                seen: seen && !self.unseen.contains(id) && self.unread != Some(id),
            }
        };
        outline.iter().map(row).collect()
    }

    /// The messages of a request, each with the rows of the same text if several have its id.
    async fn listed<'m>(
        &self,
        outline: &[OutlineEntry],
        theirs: &'m [Message],
    ) -> Result<Vec<ListedMessage<'m>>, StoreError> {
        let mut places: HashMap<&MessageId, Vec<u64>> = HashMap::new();
        for placed in outline {
            places.entry(&placed.id).or_default().push(placed.place);
        }
        let mut listed = Vec::with_capacity(theirs.len());
        for message in theirs {
            let mut same = Vec::new();
            let several = places.get(&message.id).filter(|it| it.len() > 1);
            for place in several.into_iter().flatten() {
                if let Some(ours) = self.store.message_at(self.chat, *place).await? {
                    let theirs = self.recognised(message, &ours).await;
                    if words(&ours).eq(words(&theirs)) && files(&ours).eq(files(&theirs)) {
                        same.push(*place);
                    }
                }
            }
            listed.push(ListedMessage {
                id: &message.id,
                role: message.role,
                same,
            });
        }
        Ok(listed)
    }

    /// The place of the cut message that is equal to this one, if any.
    async fn sent_again(
        &self,
        outline: &[OutlineEntry],
        last: &Message,
    ) -> Result<Option<u64>, StoreError> {
        let newest = outline.iter().rfind(|placed| placed.id == last.id);
        let Some(place) = newest.filter(|it| !it.is_shown()).map(|it| it.place) else {
            return Ok(None);
        };
        let Some(ours) = self.store.message_at(self.chat, place).await? else {
            return Ok(None);
        };
        let theirs = self.recognised(last, &ours).await;
        let is_same = ours.role == theirs.role && ours.parts == theirs.parts;
        Ok(is_same.then_some(place))
    }

    /// The client's copy of a message, with our URLs.
    async fn recognised(&self, theirs: &Message, ours: &Message) -> Message {
        let mut theirs = theirs.clone();
        attachments::recognise(self.files, self.chat, &mut theirs, ours).await;
        theirs
    }

    async fn followed(
        &self,
        outline: &[OutlineEntry],
        places: Vec<u64>,
        is_sent_again: bool,
    ) -> Result<RequestedHistory, StoreError> {
        let shown = self.shown.iter().map(|ours| (&ours.id, *ours));
        let shown: HashMap<&MessageId, &Message> = shown.collect();
        let mut left = Vec::with_capacity(places.len());
        let mut unseen_again = Vec::new();
        for placed in outline {
            if places.binary_search(&placed.place).is_err() {
                continue;
            }
            match shown.get(&placed.id).filter(|_| placed.is_shown()) {
                Some(ours) => left.push((*ours).clone()),
                None => left.extend(self.store.message_at(self.chat, placed.place).await?),
            }
            if !placed.is_shown() && !placed.seen {
                unseen_again.push(placed.id.clone());
            }
        }
        Ok(RequestedHistory {
            places,
            left,
            unseen_again,
            is_sent_again,
            taken_over: Vec::new(),
        })
    }
}

fn known_ids(outline: &[OutlineEntry]) -> HashSet<&MessageId> {
    outline.iter().map(|placed| &placed.id).collect()
}

fn knows_any(outline: &[OutlineEntry], theirs: &[Message]) -> bool {
    let known = known_ids(outline);
    theirs.iter().any(|it| known.contains(&it.id))
}

/// The texts of a message.
fn words(message: &Message) -> impl Iterator<Item = &str> {
    message.parts.iter().filter_map(|part| match part {
        Part::Text(part) => Some(part.text.as_str()),
        _ => None,
    })
}

/// The URLs of a message's files.
fn files(message: &Message) -> impl Iterator<Item = &str> {
    message.parts.iter().filter_map(|part| match part {
        Part::File(part) => Some(part.url.as_str()),
        _ => None,
    })
}
