//! One line of the corpus: a stream, and the message that a client must have at its end.

use adk_bridge_protocol::chunk::{Chunk, FinishReason, Sdk};
use adk_bridge_protocol::dialect::{Dialect, project};
use adk_bridge_protocol::message::replay::replay;
use adk_bridge_protocol::message::{Message, Part, ToolState};
use adk_bridge_protocol::reply::{Ended, Reply};
use adk_bridge_protocol::wire::sse;
use serde_json::json;

pub struct Case {
    pub name: String,
    pub dialect: Dialect,
    pub sdk: Sdk,
    pub prior: Option<Message>,
    pub sse: Vec<u8>,
    pub message: Message,
    pub ends: &'static str,
    /// Whether the client has something to send at the end.
    pub client_may_send: bool,
}

impl Case {
    pub fn line(&self) -> String {
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
pub fn resumes(name: &str, dialect: Dialect, message: &Message, may_send: bool) -> Vec<Case> {
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
pub fn shown(reply: &Reply, dialect: Dialect) -> Message {
    match dialect {
        Dialect::Native => reply.message().clone(),
        Dialect::Adk => project(reply.message(), reply.calls(), reply.ended().is_some()),
    }
}

/// What a reader gets of a message that it has nothing of: v6 cannot be told the answer to an approval.
pub fn carried(message: &Message, sdk: Sdk) -> Message {
    let mut message = message.clone();
    for part in &mut message.parts {
        if let Part::Tool(tool) = part
            && let (Sdk::V6, Some(approval)) = (sdk, &mut tool.approval)
        {
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
pub fn terminal(ended: Option<Ended>) -> &'static str {
    match ended {
        None | Some(Ended::Finished | Ended::TooLong) => "finish",
        Some(Ended::Failed) => "error",
        Some(Ended::Stopped | Ended::Superseded | Ended::Interrupted) => "abort",
    }
}

pub fn word(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::Native => "native",
        Dialect::Adk => "adk",
    }
}

pub fn number(sdk: Sdk) -> u8 {
    match sdk {
        Sdk::V6 => 6,
        Sdk::V7 => 7,
    }
}
