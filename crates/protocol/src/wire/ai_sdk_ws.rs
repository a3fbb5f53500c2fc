//! Frames of AI SDK v7's `WebSocketChatTransport`: many requests over one socket, each with its `requestId`.
//!
//! The client closes the socket, and fails every request on it, if it gets an unknown frame, a chunk that violates its
//! schema, or a gap in a request's sequence.

use std::borrow::Cow;

use super::frame::{self, Fields, FrameError, Trigger, write_json};
use crate::id::{ChatId, MessageId};
use crate::json_text::{Json, RawFields, text_of};
use crate::message::Extra;
use serde::Serialize;

/// One frame of a client.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub enum ClientFrame {
    Send(Send),
    Resume(Resume),
    Abort { request_id: String },
}

/// A chat request; `messages` is an array.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub struct Send {
    pub request_id: String,
    /// The chat.
    pub id: ChatId,
    pub trigger: Trigger,
    pub message_id: Option<MessageId>,
    pub messages: Json,
    pub headers: Extra,
    /// Fields that the front end adds to its requests, such as `dialect`.
    pub body: Extra,
    pub metadata: Option<Json>,
}

/// Asks for the current turn of a chat.
#[derive(Debug, Clone, PartialEq)]
#[expect(
    missing_docs,
    reason = "named as on the wire; PROTOCOL.md describes them"
)]
pub struct Resume {
    pub request_id: String,
    /// The chat.
    pub id: ChatId,
    /// The last sequence number that the client has; absent for a replay from the first chunk.
    pub last_sequence: Option<u64>,
    pub headers: Extra,
    pub body: Extra,
    pub metadata: Option<Json>,
}

/// A frame that was refused, with the request that fails, if it is known.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct RefusedFrame {
    /// The request that the frame belongs to, as far as it could be read.
    pub request_id: Option<String>,
    /// What is wrong with it.
    pub error: FrameError,
}

impl RefusedFrame {
    /// Returns the stable name of this error.
    pub fn code(&self) -> &'static str {
        self.error.code()
    }
}

impl ClientFrame {
    /// Reads one text frame; unknown fields are accepted.
    pub fn parse(text: &str) -> Result<Self, RefusedFrame> {
        let unread = |error| RefusedFrame {
            request_id: super::live::request_id_of(text),
            error,
        };
        let whole = frame::whole(text).map_err(unread)?;
        let map = frame::object(&whole).map_err(unread)?;
        let request_id = frame::find(&map, "requestId").and_then(text_of);
        let request_id = request_id.map(Cow::into_owned);
        read(map).map_err(|error| RefusedFrame { request_id, error })
    }

    /// The request that the frame belongs to.
    pub fn request_id(&self) -> &str {
        match self {
            Self::Send(send) => &send.request_id,
            Self::Resume(resume) => &resume.request_id,
            Self::Abort { request_id } => request_id,
        }
    }
}

/// Appends `start`: the request is accepted.
pub fn start(out: &mut Vec<u8>, request_id: &str) {
    bare(out, "start", request_id, None);
}

/// Appends one chunk, given as JSON; `sequence` counts from 0 in each request.
pub fn chunk(out: &mut Vec<u8>, request_id: &str, sequence: u64, chunk_json: &[u8]) {
    out.reserve(chunk_json.len() + request_id.len() + 64);
    out.extend_from_slice(b"{\"type\":\"chunk\",\"requestId\":");
    write_json(out, request_id);
    out.extend_from_slice(b",\"sequence\":");
    write_json(out, &sequence);
    out.extend_from_slice(b",\"chunk\":");
    out.extend_from_slice(chunk_json);
    out.push(b'}');
}

/// Appends `end`: the turn is over.
pub fn end(out: &mut Vec<u8>, request_id: &str) {
    bare(out, "end", request_id, None);
}

/// Appends `error`: the request failed; others on the socket go on.
pub fn error(out: &mut Vec<u8>, request_id: &str, error_text: &str) {
    bare(out, "error", request_id, Some(error_text));
}

/// Appends `no-active`: there is nothing to resume.
pub fn no_active(out: &mut Vec<u8>, request_id: &str) {
    bare(out, "no-active", request_id, None);
}

fn bare(out: &mut Vec<u8>, name: &str, request_id: &str, error_text: Option<&str>) {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Bare<'a> {
        r#type: &'a str,
        request_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_text: Option<&'a str>,
    }
    write_json(
        out,
        &Bare {
            r#type: name,
            request_id,
            error_text,
        },
    );
}

fn read(mut map: RawFields<'_>) -> Result<ClientFrame, FrameError> {
    let found = frame::take_type(&mut map)?;
    let frame = match found.as_str() {
        "send" => "send",
        "resume" => "resume",
        "abort" => "abort",
        _ => {
            return Err(FrameError::UnknownFrame {
                found: frame::excerpt(&found),
                known: "send, resume and abort",
            });
        }
    };
    let mut fields = Fields { frame, map };
    let request_id = fields.string("requestId")?;
    if frame == "abort" {
        return Ok(ClientFrame::Abort { request_id });
    }
    let id = ChatId::from(fields.string("id")?);
    let headers = fields.optional_object("headers")?;
    let body = fields.optional_object("body")?;
    let metadata = fields.json("metadata");
    if frame == "resume" {
        return Ok(ClientFrame::Resume(Resume {
            last_sequence: last_sequence(&mut fields)?,
            request_id,
            id,
            headers,
            body,
            metadata,
        }));
    }
    Ok(ClientFrame::Send(Send {
        request_id,
        id,
        trigger: fields
            .optional_word("trigger", Trigger::NAMES)?
            .unwrap_or_default(),
        message_id: fields.optional_string("messageId")?.map(MessageId::from),
        messages: fields.array("messages")?,
        headers,
        body,
        metadata,
    }))
}

fn last_sequence(fields: &mut Fields<'_>) -> Result<Option<u64>, FrameError> {
    match fields.some("lastSequence") {
        None => Ok(None),
        Some(value) => match serde_json::from_str(value.get()) {
            Ok(sequence) => Ok(Some(sequence)),
            Err(_) => Err(fields.wrong_type("lastSequence", value, "a whole number from 0")),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn reads_what_the_transport_sends() {
        let send = ClientFrame::parse(
            r#"{"type":"send","requestId":"r1","id":"c1","trigger":"regenerate-message","messageId":"m1","messages":[{"id":"u1"}],
                "headers":{"x-a":"1"},"body":{"dialect":"adk"},"metadata":{"n":1},"later":true}"#,
        );
        assert_eq!(
            send,
            Ok(ClientFrame::Send(Send {
                request_id: "r1".into(),
                id: "c1".into(),
                trigger: Trigger::RegenerateMessage,
                message_id: Some("m1".into()),
                messages: json!([{"id": "u1"}]).into(),
                headers: object(json!({"x-a": "1"})),
                body: object(json!({"dialect": "adk"})),
                metadata: Some(json!({"n": 1}).into()),
            }))
        );
        let resume =
            ClientFrame::parse(r#"{"type":"resume","requestId":"r2","id":"c1","lastSequence":7}"#);
        assert_eq!(
            resume,
            Ok(ClientFrame::Resume(Resume {
                request_id: "r2".into(),
                id: "c1".into(),
                last_sequence: Some(7),
                headers: Extra::default(),
                body: Extra::default(),
                metadata: None,
            }))
        );
        let abort = ClientFrame::parse(r#"{"type":"abort","requestId":"r2"}"#).unwrap();
        assert_eq!(abort.request_id(), "r2");
        for absent in [r#""messageId":null,"#, ""] {
            let text =
                format!(r#"{{"type":"send",{absent}"requestId":"r","id":"c","messages":[]}}"#);
            let Ok(ClientFrame::Send(send)) = ClientFrame::parse(&text) else {
                panic!("{text}");
            };
            assert_eq!(
                (send.message_id, send.trigger),
                (None, Trigger::SubmitMessage)
            );
        }
    }

    #[test]
    fn names_what_is_wrong_and_whose_it_is() {
        let cases = [
            ("{", None, "bad_json", "not a JSON object: EOF"),
            ("[]", None, "bad_json", "not a JSON object: found an array"),
            ("{}", None, "missing_field", "client frame without \"type\""),
            (
                r#"{"type":1,"requestId":"r"}"#,
                Some("r"),
                "wrong_type",
                "\"type\" of the client frame is a number",
            ),
            (
                r#"{"type":"sned","requestId":"r"}"#,
                Some("r"),
                "unknown_frame",
                "unknown frame type \"sned\"",
            ),
            (
                r#"{"type":"abort"}"#,
                None,
                "missing_field",
                "abort frame without \"requestId\"",
            ),
            (
                r#"{"type":"send","requestId":"r"}"#,
                Some("r"),
                "missing_field",
                "send frame without \"id\"",
            ),
            (
                r#"{"type":"send","requestId":"r","id":"c"}"#,
                Some("r"),
                "missing_field",
                "send frame without \"messages\"",
            ),
            (
                r#"{"type":"send","requestId":"r","id":"c","messages":{}}"#,
                Some("r"),
                "wrong_type",
                "\"messages\" of the send frame is an object; send an array",
            ),
            (
                r#"{"type":"send","requestId":"r","id":"c","messages":[],"body":[]}"#,
                Some("r"),
                "wrong_type",
                "\"body\" of the send frame is an array",
            ),
            (
                r#"{"type":"send","requestId":"r","id":"c","messages":[],"trigger":"x"}"#,
                Some("r"),
                "bad_value",
                "\"trigger\" of the send frame is \"x\"; send \"submit-message\" or",
            ),
            (
                r#"{"type":"resume","requestId":"r","id":"c","lastSequence":-1}"#,
                Some("r"),
                "wrong_type",
                "\"lastSequence\" of the resume frame",
            ),
        ];
        for (text, request_id, code, message) in cases {
            let refused = ClientFrame::parse(text).unwrap_err();
            assert_eq!(refused.request_id.as_deref(), request_id, "{text}");
            assert_eq!(refused.code(), code, "{text}");
            assert!(refused.to_string().starts_with(message), "{refused}");
        }
    }

    #[test]
    fn writes_frames() {
        type Write = fn(&mut Vec<u8>);
        let cases: &[(Write, &str)] = &[
            (
                |out| start(out, "r\"1"),
                r#"{"type":"start","requestId":"r\"1"}"#,
            ),
            (
                |out| chunk(out, "r", 3, br#"{"type":"finish"}"#),
                r#"{"type":"chunk","requestId":"r","sequence":3,"chunk":{"type":"finish"}}"#,
            ),
            (|out| end(out, "r"), r#"{"type":"end","requestId":"r"}"#),
            (
                |out| error(out, "r", "no \"x\"\n"),
                r#"{"type":"error","requestId":"r","errorText":"no \"x\"\n"}"#,
            ),
            (
                |out| no_active(out, "r"),
                r#"{"type":"no-active","requestId":"r"}"#,
            ),
        ];
        for (write, expected) in cases {
            let mut out = Vec::new();
            write(&mut out);
            assert_eq!(String::from_utf8(out).unwrap(), *expected);
        }
    }

    proptest! {
        #[test]
        fn chunks_are_wrapped_whole(request_id in ".{0,12}", sequence: u64, text in ".{0,30}") {
            let inner = json!({"type": "text-delta", "id": "t", "delta": text});
            let mut out = Vec::new();
            chunk(&mut out, &request_id, sequence, inner.to_string().as_bytes());
            let read: Value = serde_json::from_slice(&out).unwrap();
            prop_assert_eq!(read, json!({"type": "chunk", "requestId": request_id, "sequence": sequence, "chunk": inner}));
        }
    }

    fn object(value: Value) -> Extra {
        match value {
            Value::Object(map) => map.into(),
            other => panic!("{other}"),
        }
    }
}
