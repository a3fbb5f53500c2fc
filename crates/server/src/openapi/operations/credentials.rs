//! What users grant to agents.

use schemars::JsonSchema;
use serde_json::json;

use crate::credentials::GivenSecret;
use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{BODY, JSON, NO_AGENT, NO_CALL, Refusal, TOO_LARGE, WRITES, only};

const MEANING: &str = "Credentials";
const PAGE: &str = "<!doctype html><title>Access granted</title>";
const UNKNOWN: [Refusal; 1] = only(
    400,
    "unknown_login",
    "the address is not that of a login of this server",
);
const CLOSED: &[Refusal] = &[
    Refusal {
        status: 409,
        code: "answered",
        when: "the question was answered before",
    },
    Refusal {
        status: 410,
        code: "expired",
        when: "the question has expired",
    },
    Refusal {
        status: 410,
        code: "superseded",
        when: "the conversation went on without an answer",
    },
    Refusal {
        status: 410,
        code: "lost",
        when: "the question cannot be answered any more",
    },
    Refusal {
        status: 410,
        code: "agent_gone",
        when: "the agent of the chat is not there any more",
    },
];

/// Who goes to a provider.
#[derive(JsonSchema)]
#[allow(
    dead_code,
    reason = "only the name is needed: the handler reads the query as it is"
)]
struct OfLink {
    /// The token of the question.
    #[schemars(example = &"c2VhbGVk")]
    request: Option<String>,
}

/// What a provider sends back.
#[derive(JsonSchema)]
#[allow(
    dead_code,
    reason = "only the names are needed: the handler reads the query as it is"
)]
struct OfCallback {
    /// The token that the provider was sent.
    #[schemars(example = &"c2VhbGVk")]
    state: Option<String>,
    /// What the provider grants.
    code: Option<String>,
    /// Why it does not.
    error: Option<String>,
}

pub fn authorize() -> Operation {
    Operation::new("beginLogin", Group::Access, "Go to the page of a provider")
        .says("The `authorizeUrl` of a question for credentials, opened by the user's browser.")
        .meaning(MEANING)
        .query::<OfLink>()
        .answers(303, "To the provider.", vec![])
        .with_header("location", "The page of the provider.")
        .refuses(&[&UNKNOWN, CLOSED, NO_CALL, NO_AGENT, WRITES])
        .refuses_with_pages()
}

pub fn callback() -> Operation {
    let page = Content::text("text/html", "A page that closes itself.", PAGE);
    Operation::new(
        "endLogin",
        Group::Access,
        "Come back from the page of a provider",
    )
    .meaning(MEANING)
    .query::<OfCallback>()
    .answers(200, "The agent goes on.", vec![page])
    .refuses(&[&UNKNOWN, CLOSED, NO_CALL, NO_AGENT, WRITES])
    .refuses_with_pages()
}

pub fn give() -> Operation {
    let secret = Content::json::<GivenSecret>(json!({"apiKey": "a-key-of-the-user"}))
        .or(
            "password",
            json!({"username": "alice", "password": "her password"}),
        )
        .or("refusal", json!({"granted": false}));
    Operation::new(
        "giveCredential",
        Group::Access,
        "Give an agent a key or a password, or refuse it",
    )
    .meaning(MEANING)
    .body(secret)
    .answers(204, "The agent goes on.", vec![])
    .refuses(&[
        &only(
            422,
            "bad_credential",
            "the question asks for something else",
        ),
        &only(422, "bad_id", "the id of the call is empty or too long"),
        CLOSED,
        NO_CALL,
        NO_AGENT,
        TOO_LARGE,
        JSON,
        BODY,
        WRITES,
    ])
}
