//! Files of a chat: their content leaves messages for the store, and comes back only where it is needed.
//!
//! ```text
//!   user's message ─┐  data URL                  /api/files/ID ┌─▶ the model: inline data
//!   model's image  ─┼─────────────▶ files ────────────────────▶├─▶ dialect adk: data-image
//!   tool's image   ─┘                                          └─▶ everybody else: the address
//! ```

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use adk_bridge_protocol::base64;
use adk_bridge_protocol::calls::{File, Ids, Outcome};
use adk_bridge_protocol::dialect::Images;
use adk_bridge_protocol::message::{FilePart, Message, Part, Role, TextPart};
use axum::http::StatusCode;

use super::{new_id, now};
use crate::error::AppError;
use crate::files::{FileError, Files, Prepared};
use crate::store::{ChatRef, StoreError, Thing};

/// Where files are served.
const PLACE: &str = "/api/files/";
/// How much content one request to the model may hold; Google takes 20 MB beside the text.
const MAX_INLINE_BYTES: usize = 20_000_000;
/// What the model is told in place of a file that cannot be read back, or is one too many.
const GONE: &str = "(The user sent a file here that is not available any more.)";

/// The name of a recording, by which it is told from a file that the user sent.
pub(super) const RECORDING: &str = "speech.wav";

/// Whether a part is a recording of what its message says in words. A model is told the words.
pub(super) fn is_recording(part: &Part, role: Role) -> bool {
    match part {
        Part::File(file) if file.media_type == "audio/wav" => {
            role == Role::Assistant || file.filename.as_deref() == Some(RECORDING)
        }
        _ => false,
    }
}

pub(super) fn url_of(id: &str) -> String {
    format!("{PLACE}{id}")
}

fn id_of(url: &str) -> Option<&str> {
    url.strip_prefix(PLACE)
}

/// Ids for a reply, and a place for the files that the model makes in it.
pub(super) struct ReplyIds {
    files: Arc<Files>,
    /// What the reply refers to and is not stored yet; to be stored before anybody is told.
    made: Vec<Prepared>,
}

impl ReplyIds {
    pub(super) fn new(files: Arc<Files>) -> Self {
        Self {
            files,
            made: Vec::new(),
        }
    }

    /// Stores what was made since the last time.
    pub(super) async fn store_made(
        &mut self,
        chat: ChatRef<'_>,
        pictures: &Pictures,
    ) -> Result<(), FileError> {
        for made in std::mem::take(&mut self.made) {
            self.files.store(chat, &made, None, now()).await?;
            pictures.add(&made);
        }
        Ok(())
    }
}

impl Ids for ReplyIds {
    fn call(&mut self, _given: Option<&str>) -> String {
        new_id("call")
    }

    fn approval(&mut self, _given: Option<&str>) -> String {
        new_id("approval")
    }

    fn file(&mut self, media_type: &str, data: &str) -> Option<File> {
        let made = prepare(&self.files, media_type, base64::decode(data).ok()?)?;
        let file = File {
            media_type: made.media_type.clone(),
            url: url_of(&made.id),
        };
        self.made.push(made);
        Some(file)
    }
}

/// Why a message cannot be taken: a file in it that nobody but its sender can find. A model would refuse it, and with it
/// every later request that repeats it.
pub(super) fn unreadable(message: &Message) -> Option<AppError> {
    let parts = message.parts.iter().enumerate();
    parts.into_iter().find_map(|(place, part)| match part {
        Part::File(file) if id_of(&file.url).is_none() => {
            let error = content_of(&file.url).err()?;
            let said = format!("parts[{place}].url {error}");
            Some(AppError::unprocessable("bad_message", said))
        }
        _ => None,
    })
}

/// Refuses a message that names files which its chat does not have.
pub(super) async fn check_files(
    files: &Files,
    chat: ChatRef<'_>,
    message: &Message,
) -> Result<(), AppError> {
    for part in &message.parts {
        if let Part::File(file) = part
            && let Some(id) = id_of(&file.url)
            && !is_of(files, chat, id).await?
        {
            return Err(AppError::unprocessable(
                "unknown_file",
                format!("{:?} is no file of this chat; upload it again", file.url),
            ));
        }
    }
    Ok(())
}

/// Puts the content of the user's files into the store. What lies elsewhere stays there.
///
/// Messages that the user did not write just now may name files of a chat that is gone: those parts are dropped.
pub(super) async fn keep_messages(
    files: &Files,
    chat: ChatRef<'_>,
    messages: &mut [Message],
) -> Result<(), AppError> {
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
                let row = files
                    .store(chat, &made, file.filename.as_deref(), now())
                    .await?;
                file.media_type = row.media_type;
                file.url = url_of(&row.id);
            } else if let Ok(Some(content)) = content_of(&file.url) {
                // What is not kept is told in the one form that models know.
                file.url = inline_url(&file.media_type, &content);
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
    files: &Files,
    chat: ChatRef<'_>,
    outcome: &mut Outcome,
    pictures: &Pictures,
) -> Result<(), FileError> {
    let Outcome::Output { files: made, .. } = outcome else {
        return Ok(());
    };
    for file in made {
        if let Ok(Some(content)) = content_of(&file.url)
            && let Some(made) = prepare(files, &file.media_type, content)
        {
            let row = files.store(chat, &made, None, now()).await?;
            pictures.add(&made);
            file.media_type = row.media_type;
            file.url = url_of(&row.id);
        }
    }
    Ok(())
}

/// Gives the client's copy of a message the addresses of ours where the content is the same: a client that sent a
/// picture sends it again, as it was, with everything that follows.
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
            && let Ok((_, stored)) = files.content(chat.user, id).await
            && stored == content
        {
            theirs.url.clone_from(&ours.url);
            theirs.media_type.clone_from(&ours.media_type);
        }
    }
}

/// Puts content back into messages for the model, the newest first, as far as a request may hold it. Only those that
/// hold files are copied.
pub(super) async fn inline(files: &Files, chat: ChatRef<'_>, messages: &mut [Cow<'_, Message>]) {
    let mut room = MAX_INLINE_BYTES;
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
            match data_url(files, chat, id, file, room).await {
                Some(url) => {
                    room = room.saturating_sub(url.len());
                    file.url = url;
                }
                None => {
                    *part = Part::Text(TextPart {
                        // An empty text is not told: the model should not think that it wrote the note.
                        text: if of_user { GONE } else { "" }.to_owned(),
                        ..TextPart::default()
                    });
                }
            }
        }
    }
}

/// Puts the images of a message back into it, for dialect `adk`.
pub(super) async fn inline_images(files: &Files, chat: ChatRef<'_>, message: &mut Message) {
    for part in &mut message.parts {
        if let Part::File(file) = part
            && file.media_type.starts_with("image/")
            && let Some(id) = id_of(&file.url)
            && let Some(url) = data_url(files, chat, id, file, usize::MAX).await
        {
            file.url = url;
        }
    }
}

async fn data_url(
    files: &Files,
    chat: ChatRef<'_>,
    id: &str,
    file: &FilePart,
    room: usize,
) -> Option<String> {
    let (row, content) = files.content(chat.user, id).await.ok()?;
    let fits = content.len() / 3 * 4 <= room;
    (row.chat_id == chat.id && fits).then(|| inline_url(&file.media_type, &content))
}

fn inline_url(media_type: &str, content: &[u8]) -> String {
    format!("data:{media_type};base64,{}", base64::encode(content))
}

async fn is_of(files: &Files, chat: ChatRef<'_>, id: &str) -> Result<bool, AppError> {
    match files.read(chat.user, id).await {
        Ok((row, _)) => Ok(row.chat_id == chat.id),
        Err(FileError::Store(StoreError::NotFound(Thing::File))) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// What is not taken as a file stays where it is: the model may know it nevertheless.
fn prepare(files: &Files, media_type: &str, content: Vec<u8>) -> Option<Prepared> {
    match files.prepare(Some(media_type), content) {
        Ok(made) => Some(made),
        Err(error) => {
            tracing::debug!(%error, "content stays in its message");
            None
        }
    }
}

/// Why nobody but the sender can find a file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum BadUrl {
    #[error("is no data URL that can be read; write data:TYPE;base64,CONTENT")]
    Data,
    #[error("names nothing that can be reached from here; send the content as a data URL")]
    OutOfReach,
}

/// The content of a data URL; nothing where it lies elsewhere.
fn content_of(url: &str) -> Result<Option<Vec<u8>>, BadUrl> {
    let (scheme, rest) = url.split_once(':').ok_or(BadUrl::OutOfReach)?;
    if !scheme.eq_ignore_ascii_case("data") {
        let reachable = rest.starts_with("//") && !scheme.eq_ignore_ascii_case("file");
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
        // Broken into lines, or with its signs escaped.
        Err(_) => {
            let mut data = unescaped(data);
            data.retain(|byte| !byte.is_ascii_whitespace());
            let data = std::str::from_utf8(&data).map_err(|_| BadUrl::Data)?;
            base64::decode(data).map(Some).map_err(|_| BadUrl::Data)
        }
    }
}

/// The bytes that a part of a URL stands for.
fn unescaped(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        let escaped = after
            .get(..2)
            .filter(|_| first == b'%')
            .filter(|digits| digits.iter().all(u8::is_ascii_hexdigit))
            .and_then(|digits| std::str::from_utf8(digits).ok())
            .and_then(|digits| u8::from_str_radix(digits, 16).ok());
        bytes.push(escaped.unwrap_or(first));
        rest = if escaped.is_some() {
            &after[2..]
        } else {
            after
        };
    }
    bytes
}

/// The images of a chat that clients of dialect `adk` are shown; empty as long as there is none.
#[derive(Debug, Default)]
pub(super) struct Pictures {
    wanted: AtomicBool,
    by_url: Mutex<HashMap<String, String>>,
}

impl Pictures {
    /// Reads the images of a message; from here on those that are made are remembered.
    pub(super) async fn load(&self, files: &Files, chat: ChatRef<'_>, message: Option<&Message>) {
        self.wanted.store(true, Ordering::Relaxed);
        for part in message.into_iter().flat_map(|message| &message.parts) {
            if let Part::File(file) = part
                && file.media_type.starts_with("image/")
                && let Some(id) = id_of(&file.url)
                && self.base64(&file.url).is_none()
                && let Ok((row, content)) = files.content(chat.user, id).await
                && row.chat_id == chat.id
            {
                self.lock()
                    .insert(file.url.clone(), base64::encode(&content));
            }
        }
    }

    /// Forgets what belongs to an earlier reply.
    pub(super) fn clear(&self) {
        self.wanted.store(false, Ordering::Relaxed);
        self.lock().clear();
    }

    fn add(&self, made: &Prepared) {
        if self.wanted.load(Ordering::Relaxed) && made.media_type.starts_with("image/") {
            self.lock()
                .insert(url_of(&made.id), base64::encode(&made.content));
        }
    }

    /// A map is whole even if somebody panicked who held it.
    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, String>> {
        self.by_url.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Images for Pictures {
    fn base64(&self, url: &str) -> Option<String> {
        self.lock().get(url).cloned()
    }
}

impl From<FileError> for AppError {
    fn from(error: FileError) -> Self {
        let message = error.to_string();
        match error {
            FileError::TooLarge { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            }
            FileError::MediaType { .. } => Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "bad_media_type",
                message,
            ),
            FileError::Incomplete(_) => Self::bad_request("incomplete", message),
            FileError::Store(error) => error.into(),
        }
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
