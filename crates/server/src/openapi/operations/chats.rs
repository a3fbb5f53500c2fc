//! What is stored of chats.

use serde_json::json;

use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{
    BODY, INTERNAL, JSON, NO_CHAT, READS, Refusal, TOO_LARGE, TOO_MANY, WRITES, only,
};
use crate::store::AuditRow;
use crate::transport::chat::View;
use crate::transport::chats::{ChatSummary, OfAudit, Page, StoredChat, TitleBody};

const NEXT: &str = "`<…>; rel=\"next\"` leads to the next page, if there may be one.";
const BAD_DIALECT: [Refusal; 1] = only(422, "bad_dialect", "the dialect is not known");
const BAD_SDK: [Refusal; 1] = only(422, "bad_sdk", "the version of the AI SDK is not served");

pub fn list() -> Operation {
    let example = json!([{
        "id": "chat-1", "title": "say hello", "createdAt": 1_700_000_000_000_u64, "updatedAt": 1_700_000_001_000_u64,
        "agent": "demo", "pendingApprovals": 0, "pendingOutputs": [],
    }]);
    Operation::new("listChats", Group::Chats, "List the chats of the user")
        .says(
            "The most recently changed come first, at most 200 of them. A search goes through 10,000 chats at most, so that \
             a page of it may have fewer, or none, and still lead to a next one.",
        )
        .query::<Page>()
        .answers(
            200,
            "The chats.",
            vec![Content::json::<Vec<ChatSummary>>(example)],
        )
        .with_header("link", NEXT)
        .refuses(&[READS, TOO_MANY, INTERNAL])
}

pub fn messages() -> Operation {
    let example = json!({
        "id": "chat-1", "title": "say hello", "createdAt": 1_700_000_000_000_u64, "updatedAt": 1_700_000_001_000_u64,
        "agent": "demo", "messages": [
            {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "say hello"}]},
            {"id": "message_1", "role": "assistant", "parts": [{"type": "step-start"}, {"type": "text", "text": "hello"}]},
        ],
    });
    Operation::new("getChat", Group::Chats, "Read a chat with its messages")
        .says("Those that have ended or wait for an answer; one that still streams is read with resume.")
        .query::<View>()
        .answers(200, "The chat.", vec![Content::json::<StoredChat<'_>>(example)])
        .refuses(&[NO_CHAT, &BAD_DIALECT, &BAD_SDK, READS, TOO_MANY, WRITES, INTERNAL])
}

pub fn rename() -> Operation {
    Operation::new("renameChat", Group::Chats, "Give a chat another title")
        .body(Content::json::<TitleBody>(
            json!({"title": "Trip to Kyoto"}),
        ))
        .answers(204, "It has the title.", vec![])
        .refuses(&[
            NO_CHAT,
            &only(422, "bad_title", "the title is missing or empty"),
            TOO_LARGE,
            JSON,
            BODY,
            WRITES,
        ])
}

pub fn delete() -> Operation {
    Operation::new("deleteChat", Group::Chats, "Delete a chat and its files")
        .says("Its audit rows stay.")
        .answers(204, "It is deleted.", vec![])
        .refuses(&[NO_CHAT, TOO_MANY, WRITES])
}

pub fn audit() -> Operation {
    let example = json!([{
        "id": 1, "at": 1_700_000_000_000_u64, "chatId": "chat-1", "turnId": "turn_1", "connectionId": null,
        "kind": "approval.requested", "toolCallId": "call_1", "toolName": "process_payment", "approvalId": "approval_1",
        "user": "alice", "transport": "http", "dialect": "native", "reason": null, "inputHash": null,
    }]);
    Operation::new(
        "getAudit",
        Group::Chats,
        "Read what was asked, decided and run in a chat",
    )
    .says("Oldest first, at most 1000 rows.")
    .meaning("Audit kinds")
    .query::<OfAudit>()
    .answers(
        200,
        "The rows.",
        vec![Content::json::<Vec<AuditRow>>(example)],
    )
    .with_header("link", NEXT)
    .refuses(&[
        &only(422, "missing_field", "the chat is not named"),
        &only(403, "role_needed", "the user is not an auditor"),
        NO_CHAT,
        READS,
        TOO_MANY,
        INTERNAL,
    ])
}

pub fn metrics() -> Operation {
    let text = Content::text(
        "text/plain",
        "The text format of Prometheus.",
        "# TYPE adk_bridge_turns_total counter\nadk_bridge_turns_total 3\n",
    );
    Operation::new("getMetrics", Group::State, "Read the counters").answers(
        200,
        "The counters.",
        vec![text],
    )
}
