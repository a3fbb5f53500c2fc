//! The parsers of foreign bytes, for the fuzz targets; nothing else may use them.

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::time::Timestamp;
use axum::body::Body;
use axum::extract::Request;
use axum::http::{HeaderValue, Method, Uri, header};
use futures_util::FutureExt as _;

use crate::chat::request::ChatRequest;
use crate::config::Config;
use crate::files::address::{Addresses, Base, id_of};
use crate::files::media;
use crate::forwarding::{Frames, Signatures};
use crate::sockets::SharedTickets;
use crate::transport::files::{names_tag, receive_form, requested_range};
use crate::transport::{adk_stream_protocol, percent as percents};

pub use crate::audit::fuzzing::audit_export;
pub use crate::auth::fuzzing::{key_set, openid_description, source, token};
pub use crate::auth::login::fuzzing::{cookie, login_answer, login_exchange};
pub use crate::chat::fuzzing::tool_result;
pub use crate::credentials::fuzzing::{credential_callback, credential_request};

/// Reads the body of a chat request, as any client's and as the original front end's.
pub fn chat_request(body: &[u8]) {
    for &dialect in Dialect::ALL {
        let _ = ChatRequest::parse(body, dialect);
        let _ = adk_stream_protocol::parse(body, dialect);
    }
}

/// Reads the text of a configuration file.
pub fn configuration(toml: &str) {
    let (_, problems) = Config::read_text(toml);
    for problem in problems {
        let _ = problem.to_string();
    }
}

/// Decodes percent-encoded text.
pub fn percent(text: &str) {
    if let Some(decoded) = percents::decoded(text) {
        let again = percents::decoded(&percents::encoded(&decoded).to_string());
        assert_eq!(again, Some(decoded), "encoded text is the same text");
    }
}

/// Opens a ticket of a cluster, with a key that has sealed one of alice alone.
pub fn ticket(sealed: &str, key: &[u8], genuine: &str, now: Timestamp) {
    let Ok(tickets) = SharedTickets::new(key) else {
        return;
    };
    let redeemed = tickets.redeem(sealed, now);
    assert!(redeemed.is_some() || sealed != genuine, "it was sealed");
    if let Some(identity) = redeemed {
        assert_eq!(identity.user.as_str(), "alice", "nobody has sealed this");
        assert_eq!(tickets.redeem(sealed, now), None, "it opens once");
        assert_eq!(tickets.redeem(genuine, now), None, "however it is written");
    }
}

/// Checks the header of a request that another replica passes on, with a key that has signed one for alice alone.
pub fn forwarded_request(header: &[u8], key: &[u8], genuine: &str, now: Timestamp) {
    let Ok(header) = HeaderValue::from_bytes(header) else {
        return;
    };
    let signatures = Signatures::new(key, "b");
    let here = Uri::from_static("/api/chat/1/stream");
    let elsewhere = Uri::from_static("/api/chat/2/stream");
    let verify = |uri, method| signatures.verify(method, uri, &header, now);
    assert!(verify(&elsewhere, &Method::GET).is_err(), "another request");
    assert!(verify(&here, &Method::POST).is_err(), "another method");
    let verified = verify(&here, &Method::GET);
    assert!(verified.is_ok() || header != genuine, "it was signed");
    if let Ok(forwarded) = verified {
        let user = forwarded.identity.map(|it| it.user.to_string());
        assert_eq!(user.as_deref(), Some("alice"), "nobody has signed this");
        assert!(verify(&here, &Method::GET).is_err(), "it is good once");
    }
}

/// Checks the address of a file, with a key that has signed one alone.
pub fn file_address(url: &str, key: &[u8], genuine: &str, now: Timestamp) {
    let addresses = Addresses::new(key, Some("https://chat.example"));
    let file_of = |url: &str| {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let id = id_of(path)?;
        let checked = addresses.check(id, Some(query), now)?;
        checked.ok().map(|()| id.to_owned())
    };
    let file = file_of(url);
    assert!(file.is_some() || url != genuine, "it was signed");
    assert!(file.is_none() || file == file_of(genuine), "by nobody");
    if let Some(stored) = addresses.stored_url(&Base::default(), url) {
        assert!(
            id_of(&stored).is_some_and(|id| !id.is_empty()),
            "{stored:?}"
        );
    }
}

/// Reads a `Range` and the tags of `If-None-Match` for a file of so many bytes.
pub fn range(text: &str, bytes: u64) {
    if let Some(Some((first, last))) = requested_range(text, bytes) {
        assert!(first <= last && last < bytes, "{first}-{last} of {bytes}");
    }
    let is_named = names_tag(text, "\"tag\"");
    assert!(!is_named || text.contains("\"tag\"") || text.contains('*'));
}

/// Reads the form of an upload: one file, as it was sent.
pub fn upload_form(body: &[u8]) {
    let request = Request::builder()
        .header(header::CONTENT_TYPE, "multipart/form-data; boundary=X")
        .body(Body::from(body.to_vec()));
    // What is in memory is never waited for.
    let received = request.map(|request| receive_form(request).now_or_never());
    if let Ok(Some(Ok(upload))) = received {
        let content = &upload.content[..];
        let is_sent = content.is_empty() || body.windows(content.len()).any(|it| it == content);
        assert!(is_sent, "other content than was sent");
    }
}

/// Judges what a file is. Nothing is kept as what a browser would run.
pub fn file_kind(declared: &str, head: &[u8]) {
    for declared in [None, Some(declared)] {
        if let Ok(kind) = media::judge(declared, head) {
            let runs = ["html", "svg", "xml", "script"];
            assert!(!runs.iter().any(|it| kind.contains(it)), "{kind} is run");
            assert!(HeaderValue::from_str(&kind).is_ok(), "{kind:?}");
        }
    }
}

/// Follows the frames of a WebSocket; it does not matter in which pieces they come.
pub fn tunnel(bytes: &[u8], split: usize) {
    let (begin, end) = bytes.split_at(split.min(bytes.len()));
    let (mut whole, mut pieces) = (Frames::default(), Frames::default());
    whole.take(bytes);
    pieces.take(begin);
    pieces.take(end);
    assert_eq!(whole, pieces, "pieces do not matter");
}

/// The stream of a recorded run, if it is one.
pub fn translated(recording: &[u8], dialect: Dialect) -> Option<Vec<u8>> {
    crate::translate::translate(recording, dialect, "message", &mut Vec::new()).ok()
}
