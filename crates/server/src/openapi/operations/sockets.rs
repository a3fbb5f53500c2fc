//! How WebSockets are opened.

use schemars::JsonSchema;
use serde_json::json;

use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{NO_CHAT, ORIGIN, READS, TOO_MANY, UNAVAILABLE, only};
use crate::transport::handshake::Ticket;
use crate::transport::schemas::{DialectName, SdkName};

/// What a page sends instead of a key.
#[derive(JsonSchema)]
#[allow(
    dead_code,
    reason = "only the name is needed: `transport/ai_sdk_ws.rs` reads the query"
)]
struct WithTicket {
    /// From `POST /api/ticket`.
    ticket: Option<String>,
}

/// What a live connection is for.
#[derive(JsonSchema)]
#[allow(
    dead_code,
    reason = "only the names are needed: `transport/live.rs` reads the query"
)]
struct OfLive {
    /// From `POST /api/ticket`.
    ticket: Option<String>,
    /// The id of the chat; without it a new one begins.
    chat: Option<String>,
    /// The form of what is sent; `native` by default.
    #[schemars(with = "Option<DialectName>")]
    dialect: Option<String>,
    /// The version of the AI SDK of the front end.
    #[schemars(with = "Option<SdkName>")]
    sdk: Option<String>,
    /// The id of the agent that answers.
    agent: Option<String>,
}

fn opens(operation: Operation) -> Operation {
    operation
        .answers(101, "The WebSocket is open.", vec![])
        .needs_user()
        .refuses(&[
            &only(
                426,
                "not_a_websocket",
                "the request is not an upgrade of version 13",
            ),
            ORIGIN,
            TOO_MANY,
            UNAVAILABLE,
        ])
}

pub fn live() -> Operation {
    opens(Operation::new(
        "openLive",
        Group::Sockets,
        "Open the bidirectional endpoint of a chat",
    ))
    .says("Text, speech and pictures both ways, one connection per chat.")
    .meaning("`/live` frames")
    .query::<OfLive>()
    .refuses(&[
        &only(422, "bad_dialect", "the dialect is not known"),
        &only(422, "bad_sdk", "the version of the AI SDK is not served"),
        &only(
            422,
            "bad_id",
            "the id of the chat or of the agent is empty or too long",
        ),
        NO_CHAT,
        READS,
    ])
}

pub fn ai_sdk() -> Operation {
    opens(Operation::new(
        "openSocket",
        Group::Sockets,
        "Open the AI SDK's own WebSocket",
    ))
    .says("Many requests over one connection, in version 7 of the AI SDK.")
    .meaning("The stock WebSocket frames")
    .query::<WithTicket>()
    .refuses(&[&only(422, "bad_id", "the id of the agent is too long")])
}

pub fn ticket() -> Operation {
    let ticket = Content::json::<Ticket>(json!({"ticket": "dGlja2V0", "expiresInMs": 30_000}));
    Operation::new("getTicket", Group::Access, "Get a ticket for a WebSocket")
        .says("Browsers cannot send a key with one: `?ticket=` stands for it, once.")
        .answers(200, "The ticket.", vec![ticket])
        .refuses(&[TOO_MANY, UNAVAILABLE])
}
