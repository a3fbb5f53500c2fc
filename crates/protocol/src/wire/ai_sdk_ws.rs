//! Frames of the `WebSocketChatTransport` that AI SDK v7 ships: many requests over one socket, told apart by `requestId`.
//!
//! The client closes the socket, and fails every request on it, at a frame that it does not know, a chunk that fails its
//! schema, or a gap in a request's sequence.

use serde::Serialize;
use serde_json::{Map, Value};

use super::frame::{self, Fields, FrameError, Trigger, write_json};

/// One frame of a client.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientFrame {
    Send(Send),
    Resume(Resume),
    Abort { request_id: String },
}

/// A chat request; `messages` is an array.
#[derive(Debug, Clone, PartialEq)]
pub struct Send {
    pub request_id: String,
    /// The chat.
    pub id: String,
    pub trigger: Trigger,
    pub message_id: Option<String>,
    pub messages: Value,
    pub headers: Map<String, Value>,
    /// What the front end adds to its requests: `dialect` and the like.
    pub body: Map<String, Value>,
    pub metadata: Option<Value>,
}

/// Asks for the running turn of a chat.
#[derive(Debug, Clone, PartialEq)]
pub struct Resume {
    pub request_id: String,
    /// The chat.
    pub id: String,
    /// The last sequence number that the client has; absent for a replay from the first chunk.
    pub last_sequence: Option<u64>,
    pub headers: Map<String, Value>,
    pub body: Map<String, Value>,
    pub metadata: Option<Value>,
}

/// A frame that was refused, with the request to fail where one can be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Refused {
    pub request_id: Option<String>,
    pub error: FrameError,
}

impl Refused {
    /// Returns the stable name of this error.
    pub fn code(&self) -> &'static str {
        self.error.code()
    }
}

impl ClientFrame {
    /// Reads one text frame; unknown fields are accepted.
    pub fn parse(text: &str) -> Result<Self, Refused> {
        let map = frame::object(text).map_err(|error| Refused {
            request_id: None,
            error,
        })?;
        let request_id = map
            .get("requestId")
            .and_then(Value::as_str)
            .map(str::to_owned);
        read(map).map_err(|error| Refused { request_id, error })
    }

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

/// Appends one chunk, which is JSON already; `sequence` counts from 0 in each request.
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

fn read(mut map: Map<String, Value>) -> Result<ClientFrame, FrameError> {
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
    let id = fields.string("id")?;
    let headers = fields.optional_object("headers", "an object")?;
    let body = fields.optional_object("body", "an object")?;
    let metadata = fields.take("metadata");
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
        message_id: fields.optional_string("messageId")?,
        messages: fields.array("messages")?,
        headers,
        body,
        metadata,
    }))
}

fn last_sequence(fields: &mut Fields) -> Result<Option<u64>, FrameError> {
    match fields.take("lastSequence") {
        None | Some(Value::Null) => Ok(None),
        Some(value) => match value.as_u64() {
            Some(sequence) => Ok(Some(sequence)),
            None => Err(fields.wrong_type("lastSequence", &value, "a whole number from 0")),
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

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
                messages: json!([{"id": "u1"}]),
                headers: object(json!({"x-a": "1"})),
                body: object(json!({"dialect": "adk"})),
                metadata: Some(json!({"n": 1})),
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
                headers: Map::new(),
                body: Map::new(),
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

    fn object(value: Value) -> Map<String, Value> {
        match value {
            Value::Object(map) => map,
            other => panic!("{other}"),
        }
    }
}
