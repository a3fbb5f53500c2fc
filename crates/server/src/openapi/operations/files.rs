//! Files, in and out.

use schemars::JsonSchema;
use serde_json::json;

use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{BODY, NO_CHAT, NO_FILE, READS, STORAGE, WRITES, only};
use crate::transport::chats::OfChat;
use crate::transport::files::StoredFile;

/// What allows to read a file without a key.
#[derive(JsonSchema)]
#[allow(
    dead_code,
    reason = "only the names are needed: `files/address.rs` reads the query"
)]
struct Signature {
    /// When the URL expires.
    e: Option<String>,
    /// What shows that this server made it.
    s: Option<String>,
}

/// What a client may ask for of a file.
#[derive(JsonSchema)]
#[allow(
    dead_code,
    reason = "only the names are needed: the handler reads the headers"
)]
struct Wanted {
    /// One range of bytes, such as `bytes=0-99`; anything else gets the whole file.
    range: Option<String>,
    /// The tag that a range belongs to.
    #[schemars(rename = "if-range")]
    if_range: Option<String>,
    /// Tags of what the client has.
    #[schemars(rename = "if-none-match")]
    if_none_match: Option<String>,
}

pub fn upload() -> Operation {
    let example = json!({
        "id": "file_0123456789abcdef", "url": "/api/files/file_0123456789abcdef?e=1700000000&s=c2ln",
        "mediaType": "text/plain", "bytes": 5,
    });
    let form = "--b\r\ncontent-disposition: form-data; name=\"file\"; filename=\"a.txt\"\r\n\
                content-type: text/plain\r\n\r\nhello\r\n--b--\r\n";
    Operation::new("uploadFile", Group::Files, "Upload a file into a chat")
        .says("The body is the file, or a form with one file.")
        .meaning("Files")
        .query::<OfChat>()
        .body(Content::text("text/plain", "The file.", "hello"))
        .body(Content::text(
            "image/png",
            "The file.",
            "\u{89}PNG\r\n\u{1a}\n",
        ))
        .body(Content::text(
            "multipart/form-data",
            "A form with one file.",
            form,
        ))
        .body(Content::text(
            "*/*",
            "A file of another type that is accepted.",
            "hello",
        ))
        .answers(
            201,
            "It is stored.",
            vec![Content::json::<StoredFile>(example)],
        )
        .refuses(&[
            &only(422, "missing_field", "the chat is not named"),
            &only(422, "bad_id", "the id of the chat is empty or too long"),
            &only(
                400,
                "bad_form",
                "the form cannot be read, or has not one file",
            ),
            &only(400, "incomplete", "the file did not arrive as a whole"),
            &only(
                415,
                "bad_media_type",
                "the type is not accepted, or not that of the content",
            ),
            NO_CHAT,
            BODY,
            STORAGE,
            WRITES,
        ])
}

pub fn download() -> Operation {
    let content = || {
        vec![Content::text(
            "*/*",
            "The file, in its media type.",
            "hello",
        )]
    };
    Operation::new("downloadFile", Group::Files, "Download a file")
        .says("For its owner, or for anyone with a signed URL.")
        .meaning("Files")
        .query::<Signature>()
        .headers::<Wanted>()
        .needs_user()
        .answers(200, "The file.", content())
        .with_header("etag", "The tag of the content, which never changes.")
        .answers(206, "The range.", content())
        .with_header("content-range", "Which bytes these are.")
        .answers(304, "The client has it.", vec![])
        .refuses(&[
            &only(
                403,
                "bad_signature",
                "the URL has expired, or another server made it",
            ),
            &only(416, "bad_range", "the file does not have this range"),
            NO_FILE,
            READS,
        ])
}
