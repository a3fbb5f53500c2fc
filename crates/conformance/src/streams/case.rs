//! One line of the corpus: a stream, and the message that a client must have at its end.

use adk_bridge_protocol::chunk::{Chunk, FinishReason, Sdk};
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::message::replay::replay;
use adk_bridge_protocol::message::{Message, Part, ToolState};
use adk_bridge_protocol::reply::{EndReason, Reply};
use adk_bridge_protocol::sdk::Feature;
use adk_bridge_protocol::wire::sse;
use serde_json::json;

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
            "message": self.expected(),
            "ends": self.ends,
            "clientMaySend": self.client_may_send,
        });
        format!("{case}\n")
    }

    /// The message as clients of this version can have it.
    pub(crate) fn expected(&self) -> Message {
        let mut message = self.message.clone();
        if !self.sdk.has(Feature::ToolMetadata) {
            for part in &mut message.parts {
                if let Part::Tool(tool) = part {
                    tool.tool_metadata = None;
                }
            }
        }
        message
    }
}

/// A resume of a message that does not change any more, for each version.
pub(crate) fn resumes(
    name: &str,
    dialect: Dialect,
    message: &Message,
    may_send: bool,
) -> Vec<Case> {
    Sdk::ALL
        .iter()
        .map(|&sdk| {
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
    dialect.show(
        reply.message().clone(),
        reply.calls(),
        reply.ended().is_some(),
    )
}

/// The message that a reader without any part of it gets: v6 cannot receive the answer to an approval, and no version
/// can receive what was filled in with it.
pub(crate) fn carried(message: &Message, sdk: Sdk) -> Message {
    let mut message = message.clone();
    for part in &mut message.parts {
        let Part::Tool(tool) = part else {
            continue;
        };
        let Some(approval) = &mut tool.approval else {
            continue;
        };
        let mut extra = approval.extra.map();
        extra.remove("payload");
        approval.extra = extra.into();
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

/// The last chunk of a turn that left the reply in this state.
pub(crate) fn terminal(ended: Option<EndReason>) -> &'static str {
    match ended {
        None | Some(EndReason::Finished | EndReason::TooLong | EndReason::Cut) => "finish",
        Some(EndReason::Failed) => "error",
        Some(EndReason::Stopped | EndReason::Superseded | EndReason::Interrupted) => "abort",
    }
}

pub(crate) fn word(dialect: Dialect) -> &'static str {
    dialect.as_str()
}

pub(crate) fn number(sdk: Sdk) -> u8 {
    sdk.number()
}
