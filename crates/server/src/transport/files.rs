//! `/api/files`: binary content of a chat, in and out.

use std::sync::Arc;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::multipart::MultipartError;
use axum::extract::{
    FromRef, FromRequest as _, FromRequestParts, Multipart, Path, Query, Request, State,
};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use schemars::JsonSchema;
use serde::Serialize;

use super::access::Access;
use super::body::{Intake, whole};
use super::chats::OfChat;
use super::error::AppError;
use super::percent;
use crate::auth::Identity;
use crate::chat::request::check_id;
use crate::chat::{Chats, now};
use crate::files::address::{Base, id_of};
use crate::files::{FileDescription, FileRow};

/// Room for the parts of a form around the file.
const FORM_BYTES: usize = 16 * 1024;
/// Browsers may keep it forever: other content has another id.
const CACHE: &str = "private, max-age=31536000, immutable";

/// A file that was taken.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StoredFile {
    id: String,
    /// Signed: for anyone who has it, and for messages.
    url: String,
    media_type: String,
    bytes: u64,
}

/// Takes a file: the body itself, or the file of a form.
pub async fn upload(
    State(chats): State<Chats>,
    State(intake): State<Intake>,
    Identity { user, .. }: Identity,
    base: Base,
    Query(OfChat { chat }): Query<OfChat>,
    request: Request,
) -> Result<(StatusCode, Json<StoredFile>), AppError> {
    let chat = chat.ok_or_else(|| {
        AppError::unprocessable("missing_field", "name the chat: /api/files?chat=ID")
    })?;
    check_id("chat", chat.as_str())?;
    let _permit = chats.shared().capacity.admission.upload(&user)?;
    let sent = receive(request, &intake).await?;
    let described = FileDescription {
        media_type: sent.media_type.as_deref(),
        name: sent.name.as_deref(),
    };
    let row = chats
        .save_file(&user, &chat, described, sent.content)
        .await?;
    let answer = StoredFile {
        url: chats.shared().addresses.signed(&base, &row.id, now()),
        id: row.id,
        media_type: row.media_type,
        bytes: row.bytes,
    };
    Ok((StatusCode::CREATED, Json(answer)))
}

/// Who requests a file.
pub enum Reader {
    Owner(Box<Identity>),
    /// Anyone with a signed URL, since browsers send no key with a picture.
    Anybody,
}

impl<S> FromRequestParts<S> for Reader
where
    Arc<Access>: FromRef<S>,
    Chats: FromRef<S>,
    S: Send + Sync,
{
    type Rejection = AppError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AppError> {
        let chats = Chats::from_ref(state);
        let signature = id_of(parts.uri.path()).and_then(|id| {
            let addresses = &chats.shared().addresses;
            addresses.check(id, parts.uri.query(), now())
        });
        if let Some(checked) = signature {
            checked?;
            return Ok(Self::Anybody);
        }
        let access = Arc::<Access>::from_ref(state);
        match access.authenticate(parts).await {
            Ok(identity) => Ok(Self::Owner(Box::new(identity))),
            Err(refusal) => Err(access.refuse(refusal, parts)),
        }
    }
}

pub async fn download(
    State(chats): State<Chats>,
    reader: Reader,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, AppError> {
    let row = match &reader {
        Reader::Owner(identity) => chats.file(&identity.user, &id).await?,
        Reader::Anybody => chats.signed_file(&id).await?,
    };
    let tag = format!("\"{}\"", row.id);
    let asked = |name| headers.get(name).and_then(|value| value.to_str().ok());
    if asked(header::IF_NONE_MATCH).is_some_and(|tags| names_tag(tags, &tag)) {
        let kept = [(header::ETAG, tag.as_str()), (header::CACHE_CONTROL, CACHE)];
        return Ok((StatusCode::NOT_MODIFIED, kept).into_response());
    }
    let range = asked(header::RANGE)
        // A part of something else cannot be continued.
        .filter(|_| asked(header::IF_RANGE).is_none_or(|validator| validator == tag))
        .and_then(|range| requested_range(range, row.bytes));
    let (status, first, length) = match range {
        None => (StatusCode::OK, 0, row.bytes),
        Some(Some((first, last))) => (StatusCode::PARTIAL_CONTENT, first, last - first + 1),
        Some(None) => {
            let refusal = AppError::new(
                StatusCode::RANGE_NOT_SATISFIABLE,
                "bad_range",
                format!("the file has {} bytes", row.bytes),
            );
            let whole = [(header::CONTENT_RANGE, format!("bytes */{}", row.bytes))];
            return Ok((whole, refusal).into_response());
        }
    };
    let content = chats.file_content(&row, first..first + length).await?;
    let mut response = Response::new(Body::from_stream(content));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name, value: String| {
        // All values were made or checked by us and are ASCII; any other would be left out.
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    };
    set(header::CONTENT_TYPE, content_type(&row.media_type));
    set(header::CONTENT_LENGTH, length.to_string());
    set(header::CONTENT_DISPOSITION, disposition(&row));
    set(header::X_CONTENT_TYPE_OPTIONS, "nosniff".into());
    set(header::CONTENT_SECURITY_POLICY, "sandbox".into());
    set(header::CACHE_CONTROL, CACHE.into());
    set(header::ACCEPT_RANGES, "bytes".into());
    set(header::ETAG, tag);
    if matches!(reader, Reader::Anybody) {
        // Pages that embed only what allows it can show the file too.
        let policy = HeaderName::from_static("cross-origin-resource-policy");
        set(policy, "cross-origin".into());
    }
    if status == StatusCode::PARTIAL_CONTENT {
        let last = first + length - 1;
        set(
            header::CONTENT_RANGE,
            format!("bytes {first}-{last}/{}", row.bytes),
        );
    }
    Ok(response)
}

/// What a client sent.
pub(crate) struct Upload {
    pub(crate) content: Bytes,
    media_type: Option<String>,
    name: Option<String>,
}

async fn receive(request: Request, intake: &Intake) -> Result<Upload, AppError> {
    let media_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .map(str::to_owned);
    let is_form = media_type
        .as_deref()
        .is_some_and(|kind| kind.starts_with("multipart/form-data"));
    let limit = intake.max_file();
    let (parts, body) = request.into_parts();
    if is_form {
        let content = whole(&parts, body, limit.saturating_add(FORM_BYTES), intake).await?;
        return receive_form(Request::from_parts(parts, Body::from(content))).await;
    }
    Ok(Upload {
        content: whole(&parts, body, limit, intake).await?,
        media_type,
        name: None,
    })
}

pub(crate) async fn receive_form(request: Request) -> Result<Upload, AppError> {
    let bad = |problem: String| AppError::bad_request("bad_form", problem);
    let mut form = Multipart::from_request(request, &())
        .await
        .map_err(|error| bad(error.body_text()))?;
    let refused = |error: MultipartError| bad(error.body_text());
    let mut sent = None;
    while let Some(field) = form.next_field().await.map_err(refused)? {
        let name = field.file_name().map(str::to_owned);
        if name.is_none() && field.name() != Some("file") {
            continue;
        }
        let media_type = field.content_type().map(str::to_owned);
        let content = field.bytes().await.map_err(refused)?;
        let file = Upload {
            content,
            media_type,
            name,
        };
        if sent.replace(file).is_some() {
            return Err(bad("the form has several files; send one at a time".into()));
        }
    }
    sent.ok_or_else(|| bad("the form has no file".into()))
}

/// Whether a list of entity tags names this one. Tags are compared weakly, as RFC 9110, 13.1.2 asks for.
pub(crate) fn names_tag(tags: &str, tag: &str) -> bool {
    let mut tags = tags.split(',').map(str::trim);
    tags.any(|given| given == "*" || given.strip_prefix("W/").unwrap_or(given) == tag)
}

/// The requested range: none, a range, or one that the file does not have.
#[allow(clippy::option_option, reason = "the three cases of RFC 9110, 14.2")]
pub(crate) fn requested_range(range: &str, bytes: u64) -> Option<Option<(u64, u64)>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let end = bytes.checked_sub(1);
    let found = match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => end.map(|end| (first, last.min(end))),
        (Ok(first), Err(_)) if last.trim().is_empty() => end.map(|end| (first, end)),
        (Err(_), Ok(count)) if first.trim().is_empty() && count > 0 => {
            end.map(|end| (bytes.saturating_sub(count), end))
        }
        (Err(_), Ok(0)) if first.trim().is_empty() => None,
        // Several ranges, or one that is not understood: the whole file is a valid answer.
        _ => return None,
    };
    Some(found.filter(|(first, last)| first <= last && *first < bytes))
}

fn content_type(media_type: &str) -> String {
    match media_type {
        "text/plain" => "text/plain; charset=utf-8".to_owned(),
        other => other.to_owned(),
    }
}

/// A browser displays only types that cannot contain code.
fn disposition(row: &FileRow) -> String {
    let kind = row.media_type.as_str();
    let shown = kind.starts_with("image/") || kind.starts_with("audio/") || kind == "text/plain";
    let how = if shown { "inline" } else { "attachment" };
    match &row.name {
        None => how.to_owned(),
        // As RFC 8187 writes it.
        Some(name) => format!("{how}; filename*=UTF-8''{}", percent::encoded(name)),
    }
}

#[cfg(test)]
mod tests {
    use adk_bridge_protocol::time::Timestamp;

    use super::*;

    #[test]
    fn ranges() {
        let cases = [
            ("bytes=0-3", Some(Some((0, 3)))),
            ("bytes=4-", Some(Some((4, 9)))),
            ("bytes=-3", Some(Some((7, 9)))),
            ("bytes=-30", Some(Some((0, 9)))),
            ("bytes=5-100", Some(Some((5, 9)))),
            ("bytes=10-", Some(None)),
            ("bytes=-0", Some(None)),
            ("bytes=3-1", None),
            ("bytes=0-1,4-5", None),
            ("bytes=a-b", None),
            ("lines=1-2", None),
        ];
        for (text, range) in cases {
            assert_eq!(requested_range(text, 10), range, "{text}");
        }
        assert_eq!(requested_range("bytes=0-3", 0), Some(None));
    }

    #[test]
    fn names_are_written_so_that_no_header_breaks() {
        let row = |media_type: &str, name: Option<&str>| FileRow {
            id: String::new(),
            chat_id: String::new().into(),
            user: String::new().into(),
            media_type: media_type.to_owned(),
            bytes: 0,
            name: name.map(str::to_owned),
            created: Timestamp::default(),
        };
        let cases = [
            (row("image/png", None), "inline"),
            (row("application/pdf", None), "attachment"),
            (
                row("video/mp4", Some("a\"b\r\né.mp4")),
                "attachment; filename*=UTF-8''a%22b%0D%0A%C3%A9.mp4",
            ),
        ];
        for (row, expected) in cases {
            assert_eq!(disposition(&row), expected);
        }
    }
}
