//! One line of the corpus: a stream, and the message that a client must have at its end.

use std::error::Error;
use std::path::{Path, PathBuf};

use adk_bridge_protocol::chunk::{Chunk, FinishReason, Sdk};
use adk_bridge_protocol::dialect::{Dialect, project};
use adk_bridge_protocol::message::replay::replay;
use adk_bridge_protocol::message::{Message, Part, ToolState};
use adk_bridge_protocol::reply::{Ended, Reply};
use adk_bridge_protocol::wire::sse;
use serde_json::json;

pub(crate) type Result<T> = std::result::Result<T, Box<dyn Error>>;

pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) dialect: Dialect,
    pub(crate) sdk: Sdk,
    pub(crate) prior: Option<Message>,
    pub(crate) sse: Vec<u8>,
    pub(crate) message: Message,
    pub(crate) ends: &'static str,
    /// Whether the client has something to send at the end.
    pub(crate) client_may_send: bool,
}

impl Case {
    pub(crate) fn line(&self) -> String {
        let case = json!({
            "name": self.name,
            "dialect": word(self.dialect),
            "sdk": number(self.sdk),
            "prior": self.prior,
            "sse": String::from_utf8_lossy(&self.sse),
            "message": self.message,
            "ends": self.ends,
            "clientMaySend": self.client_may_send,
        });
        format!("{case}\n")
    }
}

/// A resume of a message that rests, for each version.
pub(crate) fn resumes(
    name: &str,
    dialect: Dialect,
    message: &Message,
    may_send: bool,
) -> Vec<Case> {
    [Sdk::V6, Sdk::V7]
        .into_iter()
        .map(|sdk| {
            let mut sse = Vec::new();
            replay(message, sdk, &mut |chunk| {
                sse::chunk(&mut sse, chunk, sdk);
            });
            sse::chunk(&mut sse, &Chunk::finish(FinishReason::Stop), sdk);
            sse.extend_from_slice(sse::DONE);
            let carried = carried(message, sdk);
            Case {
                name: format!("{name}, resumed by v{} ({})", number(sdk), word(dialect)),
                dialect,
                sdk,
                prior: None,
                sse,
                message: carried,
                ends: "finish",
                client_may_send: may_send,
            }
        })
        .collect()
}

/// The message of a reply as a client of this dialect must have it.
pub(crate) fn shown(reply: &Reply, dialect: Dialect) -> Message {
    match dialect {
        Dialect::Native => reply.message().clone(),
        Dialect::Adk => project(reply.message(), reply.calls(), reply.ended().is_some()),
    }
}

/// What a reader gets of a message that it has nothing of: v6 cannot be told the answer to an approval, and no version
/// what was filled in beside it.
pub(crate) fn carried(message: &Message, sdk: Sdk) -> Message {
    let mut message = message.clone();
    for part in &mut message.parts {
        let Part::Tool(tool) = part else {
            continue;
        };
        let Some(approval) = &mut tool.approval else {
            continue;
        };
        approval.extra.remove("payload");
        if sdk == Sdk::V6 {
            approval.approved = None;
            approval.reason = None;
            if tool.state == ToolState::ApprovalResponded {
                tool.state = ToolState::ApprovalRequested;
            }
        }
    }
    message
}

/// The last chunk of a turn that left the reply so.
pub(crate) fn terminal(ended: Option<Ended>) -> &'static str {
    match ended {
        None | Some(Ended::Finished | Ended::TooLong | Ended::Cut) => "finish",
        Some(Ended::Failed) => "error",
        Some(Ended::Stopped | Ended::Superseded | Ended::Interrupted) => "abort",
    }
}

pub(crate) fn word(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Native => "native",
        Dialect::Adk => "adk",
    }
}

pub(crate) fn number(sdk: Sdk) -> u8 {
    match sdk {
        Sdk::V6 => 6,
        Sdk::V7 => 7,
    }
}

/// Where the recordings lie.
pub(crate) fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/adk")
}
