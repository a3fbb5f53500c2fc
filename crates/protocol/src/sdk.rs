//! The versions of the AI SDK that clients run, and what each of them knows: the only file that names a version.
//!
//! To serve another version, add its constant and its place in [`Sdk::ALL`]. It then reads and folds like the version
//! before it. Whatever it adds is a [`Feature`] with an arm in [`Feature::since`], and every other file asks for the
//! feature.

use std::fmt;
use std::str::FromStr;

use serde_json::Value;
use thiserror::Error;

/// A version of the AI SDK, by the major version of the package `ai`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Sdk(u8);

impl Sdk {
    /// Version 6.
    pub const V6: Self = Self(6);
    /// Version 7.
    pub const V7: Self = Self(7);

    /// Every version that is served, oldest first.
    pub const ALL: &[Self] = &[Self::V6, Self::V7];

    /// Clients of every version can read what is written for this one.
    pub const OLDEST: Self = Self::ALL[0];

    /// The version that loses nothing: messages are kept as its clients fold them.
    pub const NEWEST: Self = Self::ALL[Self::ALL.len() - 1];

    /// The version of a client of the AI SDK's WebSocket transport that names none: the transport came with v7.
    pub const FIRST_WITH_WEB_SOCKETS: Self = Self::V7;

    /// The number by which clients name it.
    pub fn number(self) -> u8 {
        self.0
    }

    /// Whether its clients have this feature.
    pub fn has(self, feature: Feature) -> bool {
        self >= feature.since()
    }

    /// Reads the version that a client names, as a number or as text; `None` if it names none.
    pub fn from_json(named: Option<&Value>) -> Result<Option<Self>, UnknownSdk> {
        match named {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => text.parse().map(Some),
            Some(other) => other.to_string().parse().map(Some),
        }
    }
}

/// The version of a client that names none.
impl Default for Sdk {
    fn default() -> Self {
        Self::V6
    }
}

impl FromStr for Sdk {
    type Err = UnknownSdk;

    fn from_str(text: &str) -> Result<Self, UnknownSdk> {
        let named = |sdk: &&Self| sdk.number().to_string() == text;
        let found = Self::ALL.iter().find(named).copied();
        found.ok_or_else(|| UnknownSdk(text.to_owned()))
    }
}

impl fmt::Debug for Sdk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "V{}", self.0)
    }
}

/// A version that is not served.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "sdk is {0:?}; this bridge supports versions {versions} of the AI SDK: send {choice}, or omit it. \
     Version 5 and older do not support approvals: upgrade the package `ai`",
    versions = list("and"),
    choice = list("or")
)]
pub struct UnknownSdk(String);

/// The numbers of all versions, as in "6, 7 and 8".
fn list(conjunction: &str) -> String {
    let numbers: Vec<String> = Sdk::ALL
        .iter()
        .map(|sdk| sdk.number().to_string())
        .collect();
    match numbers.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{} {conjunction} {last}", others.join(", ")),
        None => String::new(),
    }
}

/// What some versions do not know. Everything else is the same in all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Feature {
    // Types of chunks.
    /// `tool-approval-response`: tells a reader how a question was answered.
    ApprovalResponses,
    /// `custom`.
    CustomParts,
    /// `reasoning-file`.
    ReasoningFiles,
    /// `reset-step`: takes back the parts of the current step.
    StepResets,
    /// `steering-message`, experimental in the SDK.
    SteeringMessages,

    // Fields of chunks.
    /// `citations` of a `text-end`.
    Citations,
    /// `reason` of a `tool-approval-request`; a message keeps it as `requestReason`.
    RequestReasons,
    /// `isAutomatic` of a `tool-approval-request`.
    AutomaticRequests,
    /// `toolMetadata` of the chunks of a call.
    ToolMetadata,

    // Words of fields.
    /// `interrupted` as a finish reason; other clients read `other`.
    InterruptedFinish,

    // How a client folds.
    /// `finish-step` leaves texts and reasoning open. Without it they are forgotten, and a later delta is refused.
    TextsAcrossSteps,
    /// The input of a `tool-input-error` becomes `input`. Without it, `rawInput` of a static tool, and `input` is absent.
    RefusedInputs,
    /// A streamed input that ends behind `[-` is `[]`. Without it, it has no value.
    UnfinishedArrays,
}

impl Feature {
    /// The first version that has it.
    pub const fn since(self) -> Sdk {
        match self {
            Self::ApprovalResponses
            | Self::CustomParts
            | Self::ReasoningFiles
            | Self::StepResets
            | Self::SteeringMessages
            | Self::Citations
            | Self::RequestReasons
            | Self::AutomaticRequests
            | Self::ToolMetadata
            | Self::InterruptedFinish
            | Self::TextsAcrossSteps
            | Self::RefusedInputs
            | Self::UnfinishedArrays => Sdk::V7,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chunk::Chunk;
    use crate::dialect::{Dialect, Reader};
    use crate::json_text::Json;
    use crate::message::fold::Fold;
    use crate::message::replay::replay;
    use crate::message::{Location, Message};
    use crate::reply::Reply;
    use crate::wire::sse;

    /// A future version, of which only the number is known.
    const NEXT: Sdk = Sdk(Sdk::NEWEST.0 + 1);

    #[test]
    fn a_client_names_its_version_as_a_number_or_as_text() {
        for &sdk in Sdk::ALL {
            let number = sdk.number();
            assert_eq!(Sdk::from_json(Some(&json!(number))), Ok(Some(sdk)));
            assert_eq!(
                Sdk::from_json(Some(&json!(number.to_string()))),
                Ok(Some(sdk))
            );
        }
        assert_eq!(Sdk::from_json(None), Ok(None));
        assert_eq!(Sdk::from_json(Some(&Value::Null)), Ok(None));
        for other in [json!(5), json!(6.0), json!("v7"), json!(NEXT.number())] {
            assert!(Sdk::from_json(Some(&other)).is_err(), "{other}");
        }
    }

    #[test]
    fn a_refusal_lists_the_versions() {
        assert_eq!(
            "5".parse::<Sdk>().unwrap_err().to_string(),
            "sdk is \"5\"; this bridge supports versions 6 and 7 of the AI SDK: send 6 or 7, or omit it. \
             Version 5 and older do not support approvals: upgrade the package `ai`"
        );
    }

    #[test]
    fn versions_are_in_order() {
        assert!(Sdk::ALL.is_sorted());
        assert!(Sdk::ALL.contains(&Sdk::default()));
    }

    /// The next version reads and folds at least what the newest one does, without a change in any other file.
    #[test]
    fn the_next_version_loses_nothing() {
        let message = message();
        for sdk in [Sdk::NEWEST, NEXT] {
            let (mut fold, mut written) = (Fold::new(sdk, ""), Vec::new());
            replay(&message, sdk, &mut |chunk| {
                fold.apply(chunk).unwrap();
                assert!(sse::chunk(&mut written, chunk, sdk), "{chunk:?}");
            });
            assert_eq!(fold.into_message(), message, "{sdk:?}");
            let written = String::from_utf8(written).unwrap();
            for known in [
                "tool-approval-response",
                "citations",
                "isAutomatic",
                "custom",
            ] {
                assert!(written.contains(known), "{sdk:?} is not sent {known}");
            }
        }
    }

    #[test]
    fn a_reader_of_the_next_version_is_served_in_every_dialect() {
        let reply = Reply::restore(crate::reply::Record {
            message: message().into(),
            ..Reply::new("m").record()
        });
        for &dialect in Dialect::ALL {
            for may_ask in [true, false] {
                let streams = [Sdk::NEWEST, NEXT].map(|sdk| {
                    let (mut reader, mut out) = (Reader::new(dialect, sdk, may_ask), Vec::new());
                    reader.attach(&reply, None, &mut out);
                    reader.fall_behind(&reply);
                    reader.catch_up(&reply, &mut out);
                    String::from_utf8(out).unwrap()
                });
                assert_eq!(streams[0], streams[1], "{dialect:?}");
                for event in streams[1].lines().filter(|line| !line.is_empty()) {
                    Chunk::parse(event.strip_prefix("data: ").unwrap()).unwrap();
                }
            }
        }
    }

    /// A message with something of every feature that a message can keep.
    fn message() -> Message {
        let source =
            json!({"type": "source", "sourceType": "url", "id": "s", "url": "https://example.com"});
        let message = json!({"id": "m", "role": "assistant", "parts": [
            {"type": "step-start"},
            {"type": "text", "text": "Look:", "state": "done", "citations": [{"source": source}]},
            {"type": "custom", "kind": "x.y"},
            {"type": "reasoning-file", "mediaType": "image/png", "url": "https://example.com/a.png"},
            {"type": "tool-pay", "toolCallId": "c1", "state": "approval-responded", "input": {},
             "approval": {"id": "a1", "approved": false, "reason": "no", "requestReason": "dear", "isAutomatic": true}},
            {"type": "tool-pay", "toolCallId": "c2", "state": "output-available", "input": {}, "output": 1,
             "approval": {"id": "a2", "approved": true}},
        ]});
        Message::parse(Json::from(message).raw(), &Location::Root("message")).unwrap()
    }
}
