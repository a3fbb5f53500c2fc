//! The endpoints of the front end of adk-stream-protocol.

use serde_json::json;

use super::chat::asks;
use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{NO_CHAT, TOO_MANY, WRITES};
use crate::transport::adk_stream_protocol::Cleared;

pub fn stream() -> Operation {
    asks(Operation::new(
        "sendMessageOriginal",
        Group::Chat,
        "Send a message, in the form of adk-stream-protocol",
    ))
    .meaning("Other front ends")
}

pub fn clear_sessions() -> Operation {
    let cleared = json!({"status": "success", "message": "all chats of this user were deleted"});
    Operation::new(
        "clearSessions",
        Group::Chats,
        "Delete all chats of the user",
    )
    .meaning("Other front ends")
    .answers(
        200,
        "They are deleted.",
        vec![Content::json::<Cleared>(cleared)],
    )
    .refuses(&[NO_CHAT, TOO_MANY, WRITES])
}
