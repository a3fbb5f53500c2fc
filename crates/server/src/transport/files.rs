//! `/api/files`: binary content of a chat, in and out.

use axum::body::{Body, Bytes};
use axum::extract::multipart::MultipartError;
use axum::extract::{FromRequest as _, Multipart, Path, Query, Request, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};

use super::body::whole;
use super::chats::OfChat;
use crate::auth::User;
use crate::chat::request::check_id;
use crate::error::AppError;
use crate::files::{Described, FileRow};
use crate::router::App;

/// How much of a file is read at once for a client.
const PIECE_BYTES: usize = 64 * 1024;
/// Room for what stands around the file in a form.
const FORM_BYTES: usize = 16 * 1024;
/// Its owner may keep it for ever: another content has another id.
const CACHE: &str = "private, max-age=31536000, immutable";

/// Takes a file: the body itself, or the file of a form.
pub async fn upload(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Query(OfChat { chat }): Query<OfChat>,
    request: Request,
) -> Result<(StatusCode, Json<Value>), AppError> {
    let chat = chat.ok_or_else(|| {
        AppError::unprocessable("missing_field", "say which chat: /api/files?chat=ID")
    })?;
    check_id("chat", &chat)?;
    let sent = receive(request, app.config.server.max_body_bytes).await?;
    let described = Described {
        media_type: sent.media_type.as_deref(),
        name: sent.name.as_deref(),
    };
    let row = app
        .chats
        .save_file(&user, &chat, described, &sent.content)
        .await?;
    let answer = json!({
        "id": row.id,
        "url": format!("/api/files/{}", row.id),
        "mediaType": row.media_type,
        "bytes": row.bytes,
    });
    Ok((StatusCode::CREATED, Json(answer)))
}

pub async fn download(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, AppError> {
    let (row, mut file) = app.chats.file(&user, &id).await?;
    let range = headers
        .get(header::RANGE)
        .and_then(|range| range.to_str().ok())
        .and_then(|range| wanted(range, row.bytes));
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
    file.seek(std::io::SeekFrom::Start(first))
        .await
        .map_err(|_| AppError::unavailable("the file cannot be read; try again in a moment"))?;
    let mut response = Response::new(Body::from_stream(stream::try_unfold(
        file.take(length),
        |mut file| async move {
            let mut piece = Vec::with_capacity(PIECE_BYTES);
            let read = file.read_buf(&mut piece).await?;
            Ok::<_, std::io::Error>((read > 0).then(|| (Bytes::from(piece), file)))
        },
    )));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    let mut set = |name, value: String| {
        // Everything here was made or checked by us and is ASCII; what is not would be left out.
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
struct Sent {
    content: Bytes,
    media_type: Option<String>,
    name: Option<String>,
}

async fn receive(request: Request, limit: usize) -> Result<Sent, AppError> {
    let media_type = request
        .headers()
        .get(header::CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .map(str::to_owned);
    let is_form = media_type
        .as_deref()
        .is_some_and(|kind| kind.starts_with("multipart/form-data"));
    let (parts, body) = request.into_parts();
    if is_form {
        let content = whole(&parts.headers, body, limit.saturating_add(FORM_BYTES)).await?;
        return receive_form(Request::from_parts(parts, Body::from(content))).await;
    }
    Ok(Sent {
        content: whole(&parts.headers, body, limit).await?,
        media_type,
        name: None,
    })
}

async fn receive_form(request: Request) -> Result<Sent, AppError> {
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
        let file = Sent {
            content,
            media_type,
            name,
        };
        if sent.replace(file).is_some() {
            return Err(bad(
                "the form holds several files; send one at a time".into()
            ));
        }
    }
    sent.ok_or_else(|| bad("the form holds no file".into()))
}

/// The range that is asked for: nothing to go by, a range, or one that the file does not have.
#[allow(clippy::option_option, reason = "the three cases of RFC 9110, 14.2")]
fn wanted(range: &str, bytes: u64) -> Option<Option<(u64, u64)>> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    let end = bytes.checked_sub(1);
    let found = match (first.trim().parse::<u64>(), last.trim().parse::<u64>()) {
        (Ok(first), Ok(last)) if first <= last => end.map(|end| (first, last.min(end))),
        (Ok(first), Err(_)) if last.trim().is_empty() => end.map(|end| (first, end)),
        (Err(_), Ok(count)) if first.trim().is_empty() && count > 0 => {
            end.map(|end| (bytes.saturating_sub(count), end))
        }
        (Err(_), Ok(0)) if first.trim().is_empty() => None,
        // Several ranges, or none that is understood: the whole file is a valid answer.
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

/// Only what cannot hold anything that runs is shown by the browser itself.
fn disposition(row: &FileRow) -> String {
    let kind = row.media_type.as_str();
    let shown = kind.starts_with("image/") || kind.starts_with("audio/") || kind == "text/plain";
    let how = if shown { "inline" } else { "attachment" };
    match &row.name {
        None => how.to_owned(),
        Some(name) => format!("{how}; filename*=UTF-8''{}", percent(name)),
    }
}

/// A name as RFC 8187 writes it.
fn percent(name: &str) -> String {
    name.bytes().fold(String::new(), |mut text, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            other => text.push_str(&format!("%{other:02X}")),
        }
        text
    })
}

#[cfg(test)]
mod tests {
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
            assert_eq!(wanted(text, 10), range, "{text}");
        }
        assert_eq!(wanted("bytes=0-3", 0), Some(None));
    }

    #[test]
    fn names_are_written_so_that_no_header_breaks() {
        let row = |media_type: &str, name: Option<&str>| FileRow {
            id: String::new(),
            chat_id: String::new(),
            user: String::new(),
            media_type: media_type.to_owned(),
            bytes: 0,
            name: name.map(str::to_owned),
            created: 0,
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
