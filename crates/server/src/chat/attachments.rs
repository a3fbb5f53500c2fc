//! Files of a chat: their content is moved from messages to the store, and loaded only where it is needed.
//!
//! ```text
//!   user's message ─┐  data URL                  /api/files/ID ┌─▶ the model: inline data
//!   model's image  ─┼─────────────▶ files ────────────────────▶├─▶ dialect adk: data-image
//!   tool's image   ─┘                                          └─▶ everybody else: the address, signed
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use adk_bridge_protocol::base64;
use adk_bridge_protocol::calls::{
    Call, CredentialRequest, File, GrantBy, IdSource, Outcome, Settlement,
};
use adk_bridge_protocol::dialect::Images;
use adk_bridge_protocol::id::{ApprovalId, CallId};
use adk_bridge_protocol::message::{Message, Part, Role, TextPart};
use adk_bridge_protocol::reply::Record;

use super::context::ChatContext;
use super::error::ChatError;
use super::inlining::{Contents, MAX_INLINE_BYTES};
use super::loaded::{FilePurpose, FileRoom, json_bytes};
use super::{new_id, now};
use crate::credentials::Asked;
pub(super) use crate::files::address::url_of;
use crate::files::address::{Addresses, Base, id_of};
use crate::files::{FileError, FileRow, Files, PreparedFile};
use crate::store::{ChatRef, Entity, StoreError};

/// What the model gets instead of a file that cannot be read, or exceeds the limit.
const GONE: &str = "(The user sent a file here that is no longer available.)";

/// The same for a file that a bucket has, which cannot be reached. The note is not stored: the next request has the file
/// again.
const AWAY: &str = "(The user sent a file here that cannot be read at the moment.)";

/// The name of a recording, which distinguishes it from a file that the user sent.
pub(super) const RECORDING: &str = "speech.wav";

/// Whether a part is a recording of its message's text. A model gets the text.
pub(super) fn is_recording(part: &Part, role: Role) -> bool {
    match part {
        Part::File(file) if file.media_type == "audio/wav" => {
            role == Role::Assistant || file.filename.as_deref() == Some(RECORDING)
        }
        _ => false,
    }
}

/// Ids for a reply, and a place for the files that the model makes in it.
pub(super) struct ReplyIds {
    context: ChatContext,
    /// What the addresses for the client begin with.
    base: Base,
    /// Questions for credentials that are not stored yet, like files.
    asked: Vec<Asked>,
    /// The calls for which the store keeps credentials.
    open: Vec<CallId>,
    /// Files that the reply refers to and that are not stored yet; they are stored before anything about them is sent.
    made: Vec<PreparedFile>,
}

impl ReplyIds {
    pub(super) fn new(context: ChatContext) -> Self {
        Self {
            base: context.addresses.public().unwrap_or_default(),
            context,
            asked: Vec::new(),
            open: Vec::new(),
            made: Vec::new(),
        }
    }

    /// Notes what addresses for the client of a request begin with.
    pub(super) fn note_base(&mut self, base: &Base) {
        self.base = base.clone();
    }

    /// Notes that the store keeps credentials for these calls.
    pub(super) fn note_credentials(&mut self, calls: Vec<CallId>) {
        self.open = calls;
    }

    /// Stores the questions for credentials that were asked since the last call.
    pub(super) async fn store_asked(&mut self) -> Result<(), StoreError> {
        for asked in std::mem::take(&mut self.asked) {
            self.open.push(asked.call().clone());
            let credentials = &self.context.credentials;
            credentials.keep(self.context.chat(), asked).await?;
        }
        Ok(())
    }

    /// Forgets what was kept for questions that are closed in a record.
    pub(super) async fn forget_closed(&mut self, record: &Record) {
        let is_closed = |id: &CallId| {
            let is_refused =
                |call: &Call| !matches!(call.settled(), None | Some(Settlement::Output));
            let call = record.calls.by_id(id);
            call.is_some_and(|call| record.ended.is_some() || is_refused(call))
        };
        let closed: Vec<CallId> = self.open.extract_if(.., |id| is_closed(id)).collect();
        if closed.is_empty() {
            return;
        }
        let (credentials, chat) = (&self.context.credentials, self.context.chat());
        if let Err(error) = credentials.forget(chat, &closed).await {
            self.context.note_refused_write(&error);
            tracing::warn!(chat = chat.id.as_str(), %error, "what was kept for credentials of chat {} stays until it is loaded again", chat.id);
        }
    }

    /// Whether something was made or asked that has to be stored.
    pub(super) fn has_news(&self) -> bool {
        !self.made.is_empty() || !self.asked.is_empty()
    }

    /// Stores the files that were made since the last call.
    pub(super) async fn store_made(&mut self, pictures: &Pictures) -> Result<(), FileError> {
        for made in std::mem::take(&mut self.made) {
            self.context.store_file(&made, None).await?;
            pictures.add(&made);
        }
        Ok(())
    }
}

impl IdSource for ReplyIds {
    fn call(&mut self, _given: Option<&str>) -> CallId {
        new_id("call").into()
    }

    fn approval(&mut self, _given: Option<&str>) -> ApprovalId {
        new_id("approval").into()
    }

    fn credential(&mut self, request: &CredentialRequest<'_>) -> Option<GrantBy> {
        let credentials = &self.context.credentials;
        let (asked, grant) = credentials.ask(self.context.chat(), &self.base, request)?;
        self.asked.push(asked);
        Some(grant)
    }

    fn file(&mut self, media_type: &str, data: &str) -> Option<File> {
        let made = prepare(&self.context.files, media_type, base64::decode(data).ok()?)?;
        let file = File {
            media_type: made.media_type.clone(),
            url: url_of(&made.id),
        };
        self.made.push(made);
        Some(file)
    }
}

impl ChatContext {
    async fn store_file(
        &self,
        made: &PreparedFile,
        name: Option<&str>,
    ) -> Result<FileRow, FileError> {
        let stored = self.files.store(self.chat(), made, name, now()).await;
        stored.inspect_err(|error| self.note_refused_file(error))
    }

    /// Notes that the store has refused a file, if that is because the chat has another owner.
    pub(super) fn note_refused_file(&self, error: &FileError) {
        if let FileError::Store(error) = error {
            self.note_refused_write(error);
        }
    }
}

/// Replaces the signed URLs that a client sends back by the stored ones.
pub(super) fn keep_addresses(addresses: &Addresses, base: &Base, messages: &mut [Message]) {
    for part in messages.iter_mut().flat_map(|message| &mut message.parts) {
        if let Part::File(file) = part
            && let Some(kept) = addresses.stored_url(base, &file.url)
        {
            file.url = kept;
        }
    }
}

/// Replaces the stored URLs of a message by signed ones for its client.
pub(super) fn sign_addresses(addresses: &Addresses, base: &Base, message: &mut Message) {
    let now = now();
    for part in &mut message.parts {
        if let Part::File(file) = part
            && let Some(signed) = addresses.signed_url(base, &file.url, now)
        {
            file.url = signed;
        }
    }
}

/// Why a message is refused: only its sender can reach one of its files. A model would refuse the file, and with it
/// every later request that repeats it.
pub(super) fn unreadable(message: &Message) -> Option<ChatError> {
    let parts = message.parts.iter().enumerate();
    parts.into_iter().find_map(|(part, content)| match content {
        Part::File(file) if id_of(&file.url).is_none() => {
            let why = content_of(&file.url).err()?;
            Some(ChatError::UnreadableFile { part, why })
        }
        _ => None,
    })
}

/// Refuses messages with more files than one request may add to its chat, because each is written or looked up.
pub(super) fn check_count(messages: &[Message], most: usize) -> Result<(), ChatError> {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let count = parts.filter(|part| matches!(part, Part::File(_))).count();
    if count <= most {
        return Ok(());
    }
    Err(ChatError::TooManyFiles { count, most })
}

/// Refuses a message that names files of other chats.
pub(super) async fn check_files(
    files: &Files,
    chat: ChatRef<'_>,
    message: &Message,
) -> Result<(), ChatError> {
    for part in &message.parts {
        if let Part::File(file) = part
            && let Some(id) = id_of(&file.url)
            && !is_of(files, chat, id).await?
        {
            let url = file.url.clone();
            return Err(ChatError::UnknownFile { url });
        }
    }
    Ok(())
}

/// An upper bound of the file bytes in messages.
pub(super) fn file_bytes(messages: &[Message]) -> u64 {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let bytes = parts.filter_map(|part| match part {
        // Base64 has four characters for three bytes.
        Part::File(file) if file.url.starts_with("data:") => Some(file.url.len() / 4 * 3),
        _ => None,
    });
    bytes.sum::<usize>() as u64
}

/// An upper bound of the bytes that messages take as JSON once their files are stored.
pub(super) fn message_bytes(messages: &[Message]) -> usize {
    let parts = messages.iter().flat_map(|message| &message.parts);
    let files = parts.filter_map(|part| match part {
        Part::File(file) if file.url.starts_with("data:") => Some(file.url.len()),
        _ => None,
    });
    let files: usize = files.sum();
    json_bytes(messages).saturating_sub(files)
}

/// Puts the content of the user's files into the store. Files that are stored elsewhere stay there.
///
/// Older messages may name files of a deleted chat: those parts are dropped.
pub(super) async fn keep_messages(
    context: &ChatContext,
    messages: &mut [Message],
) -> Result<(), FileError> {
    let (files, chat) = (&*context.files, context.chat());
    for message in messages {
        let mut lost = Vec::new();
        for (place, part) in message.parts.iter_mut().enumerate() {
            let Part::File(file) = part else {
                continue;
            };
            if let Some(id) = id_of(&file.url) {
                if !is_of(files, chat, id).await? {
                    lost.push(place);
                }
                continue;
            }
            let content = match content_of(&file.url) {
                Ok(Some(content)) => content,
                Ok(None) => continue,
                Err(_) => {
                    lost.push(place);
                    continue;
                }
            };
            if let Some(made) = prepare(files, &file.media_type, content) {
                let name = file.filename.as_deref();
                let row = context.store_file(&made, name).await?;
                file.media_type = row.media_type;
                file.url = url_of(&row.id);
            } else if let Ok(Some(content)) = content_of(&file.url) {
                // A file that is not stored goes on in the one form that models know.
                file.url = data_url(&file.media_type, &base64::encode(&content));
            }
        }
        for place in lost.into_iter().rev() {
            message.parts.remove(place);
        }
    }
    Ok(())
}

pub(super) fn has_files(message: &Message) -> bool {
    message
        .parts
        .iter()
        .any(|part| matches!(part, Part::File(_)))
}

/// Puts the files that a tool made into the store.
pub(super) async fn keep_outcome(
    context: &ChatContext,
    outcome: &mut Outcome,
    pictures: &Pictures,
) -> Result<(), FileError> {
    let Outcome::Output { files: made, .. } = outcome else {
        return Ok(());
    };
    for file in made {
        if let Ok(Some(content)) = content_of(&file.url)
            && let Some(made) = prepare(&context.files, &file.media_type, content)
        {
            let row = context.store_file(&made, None).await?;
            pictures.add(&made);
            file.media_type = row.media_type;
            file.url = url_of(&row.id);
        }
    }
    Ok(())
}

/// Gives the client's copy of a message the URLs of ours if the content is the same: a client repeats a picture that it
/// sent, with its content, in every later request.
pub(super) async fn recognise(
    files: &Files,
    chat: ChatRef<'_>,
    theirs: &mut Message,
    ours: &Message,
) {
    for (theirs, ours) in theirs.parts.iter_mut().zip(&ours.parts) {
        let (Part::File(theirs), Part::File(ours)) = (theirs, ours) else {
            continue;
        };
        if let Some(id) = id_of(&ours.url)
            && let Ok(Some(content)) = content_of(&theirs.url)
            // A file of another size differs, and need not be read.
            && let Ok(row) = files.row(chat.user, id).await
            && row.bytes == content.len() as u64
            && let Ok((_, stored)) = files.content(chat.user, id).await
            && stored == content
        {
            theirs.url.clone_from(&ours.url);
            theirs.media_type.clone_from(&ours.media_type);
        }
    }
}

/// Puts content back into messages for the model, once there is room for it, which is to be kept as long as they are.
pub(super) async fn inline(
    context: &ChatContext,
    messages: &mut [Cow<'_, Message>],
    purpose: FilePurpose,
) -> FileRoom {
    let mut contents = Contents::new(&context.files, context.chat());
    let bytes = inlined_bytes(&mut contents, messages).await;
    let (memory, user) = (&context.capacity.loaded, context.user());
    let room = memory.room_for_files(user, bytes, purpose).await;
    fill(&mut contents, messages, bytes).await;
    room
}

/// The same without waiting: if there is no room, the model gets no content. Somebody speaks meanwhile.
pub(super) async fn inline_now(
    context: &ChatContext,
    messages: &mut [Cow<'_, Message>],
) -> Option<FileRoom> {
    let mut contents = Contents::new(&context.files, context.chat());
    let bytes = inlined_bytes(&mut contents, messages).await;
    let (memory, user) = (&context.capacity.loaded, context.user());
    let room = memory.try_room_for_files(user, bytes, FilePurpose::Question);
    if room.is_none() {
        let chat = context.chat_id().as_str();
        tracing::warn!(
            chat,
            bytes,
            "the live agent of chat {chat} gets no files, because there is no room (limits.loaded_bytes)"
        );
    }
    let bytes = room.as_ref().map_or(0, |_| bytes);
    fill(&mut contents, messages, bytes).await;
    room
}

/// How many bytes of content a request with new messages sends to the model at most.
pub(super) async fn request_bytes(
    files: &Files,
    chat: ChatRef<'_>,
    messages: &[&Message],
) -> usize {
    let messages: Vec<_> = messages.iter().copied().map(Cow::Borrowed).collect();
    let parts = messages.iter().flat_map(|message| &message.parts);
    let new = parts.filter_map(|part| match part {
        Part::File(file) if file.url.starts_with("data:") => Some(file.url.len()),
        _ => None,
    });
    let new: usize = new.sum();
    let stored = inlined_bytes(&mut Contents::new(files, chat), &messages).await;
    stored.saturating_add(new).min(MAX_INLINE_BYTES)
}

/// How many bytes of content messages get: the newest ones, up to the limit of a request. Looks at sizes only.
async fn inlined_bytes(contents: &mut Contents<'_>, messages: &[Cow<'_, Message>]) -> usize {
    let mut room = MAX_INLINE_BYTES;
    for message in messages.iter().rev() {
        for part in message.parts.iter().rev() {
            if let Part::File(file) = part
                && !is_recording(part, message.role)
                && let Some(id) = id_of(&file.url)
                && let Some(size) = contents.size(id).await
            {
                room = room.checked_sub(size).unwrap_or(room);
            }
        }
    }
    MAX_INLINE_BYTES - room
}

/// Puts content into messages, newest first, up to this many bytes. Only messages with files are copied.
async fn fill(contents: &mut Contents<'_>, messages: &mut [Cow<'_, Message>], bytes: usize) {
    let mut room = bytes;
    for message in messages
        .iter_mut()
        .rev()
        .filter(|message| has_files(message))
    {
        let message = message.to_mut();
        let (of_user, role) = (message.role == Role::User, message.role);
        message.parts.retain(|part| !is_recording(part, role));
        for part in message.parts.iter_mut().rev() {
            let Part::File(file) = part else {
                continue;
            };
            let Some(id) = id_of(&file.url) else {
                continue;
            };
            let inlined = match contents.size(id).await.filter(|size| *size <= room) {
                None => None,
                Some(size) => {
                    room -= size;
                    contents.base64(id).await
                }
            };
            match inlined {
                Some(base64) => file.url = data_url(&file.media_type, base64),
                None => {
                    let note = if contents.is_away() { AWAY } else { GONE };
                    *part = Part::Text(TextPart {
                        // An empty text is left out of the request: the model should not think that it wrote the note.
                        text: if of_user { note } else { "" }.to_owned(),
                        ..TextPart::default()
                    });
                }
            }
        }
    }
}

/// The id of an image that is stored here.
pub(super) fn image_of(part: &Part) -> Option<&str> {
    match part {
        Part::File(file) if file.media_type.starts_with("image/") => id_of(&file.url),
        _ => None,
    }
}

pub(super) fn data_url(media_type: &str, base64: &str) -> String {
    format!("data:{media_type};base64,{base64}")
}

async fn is_of(files: &Files, chat: ChatRef<'_>, id: &str) -> Result<bool, FileError> {
    match files.row(chat.user, id).await {
        Ok(row) => Ok(row.chat_id == *chat.id),
        Err(FileError::Store(StoreError::NotFound(Entity::File))) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Content that cannot be stored as a file stays in the message: the model may understand it nevertheless.
fn prepare(files: &Files, media_type: &str, content: Vec<u8>) -> Option<PreparedFile> {
    match files.prepare(Some(media_type), content) {
        Ok(made) => Some(made),
        Err(error) => {
            tracing::debug!(%error, "content cannot be stored as a file and stays in its message");
            None
        }
    }
}

/// Why only the sender can reach a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("is not a valid data URL; write data:TYPE;base64,CONTENT")]
    Data,
    #[error(
        "cannot be reached from the server; send the content as a data URL, or an https: or gs: URL"
    )]
    OutOfReach,
}

/// The schemes by which a model reaches files elsewhere. It cannot read other schemes, and some of them run code
/// (`javascript:`) in a page that turns them into links.
const REACHED_BY: [&str; 3] = ["http", "https", "gs"];

/// The content of a data URL, or nothing if the file is stored elsewhere.
fn content_of(url: &str) -> Result<Option<Vec<u8>>, BadUrl> {
    let (scheme, rest) = url.split_once(':').ok_or(BadUrl::OutOfReach)?;
    if !scheme.eq_ignore_ascii_case("data") {
        let is_known = REACHED_BY.iter().any(|it| it.eq_ignore_ascii_case(scheme));
        let reachable = rest.starts_with("//") && is_known;
        return reachable.then_some(None).ok_or(BadUrl::OutOfReach);
    }
    let (kind, data) = rest.split_once(',').ok_or(BadUrl::Data)?;
    let in_base64 = kind
        .rsplit(';')
        .next()
        .is_some_and(|last| last.trim().eq_ignore_ascii_case("base64"));
    if !in_base64 {
        return Ok(Some(unescaped(data)));
    }
    match base64::decode(data) {
        Ok(content) => Ok(Some(content)),
        // Base64 that is broken into lines, or percent-encoded.
        Err(_) => {
            let mut data = unescaped(data);
            data.retain(|byte| !byte.is_ascii_whitespace());
            let data = std::str::from_utf8(&data).map_err(|_| BadUrl::Data)?;
            base64::decode(data).map(Some).map_err(|_| BadUrl::Data)
        }
    }
}

/// Decodes percent-encoding.
fn unescaped(text: &str) -> Vec<u8> {
    percent_encoding::percent_decode_str(text).collect()
}

/// The images of a reply whose content clients of dialect `adk` get; empty while there are no such clients.
///
/// How much one stream writes of them is bounded: an image that does not fit, or is named too often, is shown by its
/// URL.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    wanted: AtomicBool,
    held: Mutex<Gallery>,
}

#[derive(Debug, Default)]
struct Gallery {
    by_url: HashMap<String, String>,
    /// How many bytes a stream writes that shows every image of the reply.
    written: usize,
}

impl Gallery {
    /// Whether an image of this size may be shown so often.
    fn make_room(&mut self, size: usize, times: usize) -> bool {
        let written = self.written.saturating_add(size.saturating_mul(times));
        let fits = written <= MAX_INLINE_BYTES;
        if fits {
            self.written = written;
        }
        fits
    }
}

impl Pictures {
    /// Reads the images of a message, and remembers those that are made from here on.
    pub(super) async fn load(&self, files: &Files, chat: ChatRef<'_>, message: Option<&Message>) {
        self.wanted.store(true, Ordering::Relaxed);
        let parts = message.into_iter().flat_map(|message| &message.parts);
        let mut named: HashMap<&str, usize> = HashMap::new();
        for id in parts.filter_map(image_of) {
            *named.entry(id).or_default() += 1;
        }
        let mut contents = Contents::new(files, chat);
        for (id, times) in named {
            let url = url_of(id);
            if self.lock().by_url.contains_key(&url) {
                continue;
            }
            if let Some(size) = contents.size(id).await
                && self.lock().make_room(size, times)
                && let Some(base64) = contents.base64(id).await
            {
                self.lock().by_url.insert(url, base64.to_owned());
            }
        }
    }

    /// Forgets the images of an earlier reply.
    pub(super) fn clear(&self) {
        self.wanted.store(false, Ordering::Relaxed);
        *self.lock() = Gallery::default();
    }

    fn add(&self, made: &PreparedFile) {
        if self.wanted.load(Ordering::Relaxed) && made.media_type.starts_with("image/") {
            let mut held = self.lock();
            if held.make_room(made.content.len().div_ceil(3) * 4, 1) {
                held.by_url
                    .insert(url_of(&made.id), base64::encode(&made.content));
            }
        }
    }

    /// Poisoning is ignored: no critical section can leave the map inconsistent.
    fn lock(&self) -> std::sync::MutexGuard<'_, Gallery> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Images for Pictures {
    fn base64(&self, url: &str) -> Option<String> {
        self.lock().by_url.get(url).cloned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_found_in_every_form_of_a_data_url() {
        type Found = Result<Option<&'static [u8]>, BadUrl>;
        let cases: &[(&str, Found)] = &[
            ("data:image/png;base64,AAEC", Ok(Some(&[0, 1, 2]))),
            ("DATA:image/png;BASE64,AAEC", Ok(Some(&[0, 1, 2]))),
            ("data:text/csv;charset=utf-8;base64,YSxi", Ok(Some(b"a,b"))),
            ("data:image/png;base64,AA\r\nEC", Ok(Some(&[0, 1, 2]))),
            ("data:image/png;base64,%2B%2f8%3D", Ok(Some(&[0xfb, 0xff]))),
            ("data:text/plain,a%20b,c%", Ok(Some(b"a b,c%"))),
            ("data:,%C3%A9%zz", Ok(Some("é%zz".as_bytes()))),
            ("data:image/png;base64,!!!", Err(BadUrl::Data)),
            ("data:image/png;base64", Err(BadUrl::Data)),
            ("https://example.org/a.png", Ok(None)),
            ("gs://bucket/a.png", Ok(None)),
            ("blob:http://localhost/1", Err(BadUrl::OutOfReach)),
            ("file:///etc/passwd", Err(BadUrl::OutOfReach)),
            ("javascript:alert(1)", Err(BadUrl::OutOfReach)),
            ("/images/a.png", Err(BadUrl::OutOfReach)),
            ("", Err(BadUrl::OutOfReach)),
        ];
        for (url, content) in cases {
            let found = content_of(url);
            assert_eq!(
                found.as_ref().map(|it| it.as_deref()),
                content.as_ref().map(|it| *it),
                "{url}"
            );
        }
    }
}
