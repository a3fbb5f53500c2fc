//! Chat requests, and what follows them.

use serde_json::{Value, json};

use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{
    AGENT, BODY, BUDGET, JSON, NO_AGENT, NO_CALL, NO_CHAT, OWN_AGENT, Refusal, STORAGE, TOO_LARGE,
    TOO_MANY, WRITES, only,
};
use crate::transport::chat::{ToolOutputBody, View};
use crate::transport::schemas::{ChatRequest, Chunk};

const STREAM: &str = "data: {\"type\":\"start\",\"messageId\":\"message_1\"}\n\n\
                      data: {\"type\":\"start-step\"}\n\n\
                      data: {\"type\":\"text-start\",\"id\":\"t1\"}\n\n\
                      data: {\"type\":\"text-delta\",\"id\":\"t1\",\"delta\":\"hello\"}\n\n\
                      data: {\"type\":\"text-end\",\"id\":\"t1\"}\n\n\
                      data: {\"type\":\"finish-step\"}\n\n\
                      data: {\"type\":\"finish\",\"finishReason\":\"stop\"}\n\n\
                      data: [DONE]\n\n";
const CONTENT: &[Refusal] = &[
    Refusal {
        status: 422,
        code: "bad_message",
        when: "the last message cannot be used",
    },
    Refusal {
        status: 422,
        code: "bad_value",
        when: "a value is not one of those expected",
    },
    Refusal {
        status: 422,
        code: "wrong_type",
        when: "a field is not of its type",
    },
    Refusal {
        status: 422,
        code: "missing_field",
        when: "messages are missing",
    },
    Refusal {
        status: 422,
        code: "bad_id",
        when: "an id is empty or too long",
    },
    Refusal {
        status: 422,
        code: "bad_trigger",
        when: "the trigger is not known",
    },
    Refusal {
        status: 422,
        code: "bad_dialect",
        when: "the dialect is not known",
    },
    Refusal {
        status: 422,
        code: "bad_sdk",
        when: "the version of the AI SDK is not served",
    },
    Refusal {
        status: 422,
        code: "unknown_file",
        when: "a URL is not that of a file of the chat",
    },
    Refusal {
        status: 422,
        code: "too_many_files",
        when: "the request adds too many files",
    },
    Refusal {
        status: 422,
        code: "chat_full",
        when: "the messages of the chat have reached their limit",
    },
];
const FILE: &[Refusal] = &[
    Refusal {
        status: 400,
        code: "incomplete",
        when: "a file did not arrive as a whole",
    },
    Refusal {
        status: 415,
        code: "bad_media_type",
        when: "a file is of a type that is not accepted",
    },
];
const CHANGED: [Refusal; 1] = only(409, "conflict", "the chat has changed: load it again");

/// A question to the agent, and a decision on a call that needs one.
pub fn examples() -> [(&'static str, Value); 2] {
    [
        (
            "question",
            json!({"id": "chat-1", "messages": [
                {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "say hello"}]},
            ]}),
        ),
        (
            "approval",
            json!({"id": "chat-1", "messages": [{"id": "message_1", "role": "assistant", "parts": [
                {
                    "type": "tool-process_payment", "toolCallId": "call_1", "state": "approval-responded",
                    "input": {"amount": 5, "recipient": "Hanako"},
                    "approval": {"id": "approval_1", "approved": true},
                },
            ]}]}),
        ),
    ]
}

pub fn post() -> Operation {
    asks(Operation::new("sendMessage", Group::Chat, "Send a message, or answers to questions"))
        .says(
            "The answer streams until the turn ends. It waits for approvals by ending: the next request brings them. With \
             `Accept: text/plain`, only the text of the answer is sent.",
        )
        .meaning("The chat request")
}

/// What every chat request takes and answers.
pub(super) fn asks(operation: Operation) -> Operation {
    let [(_, question), (name, approval)] = examples();
    streams(operation.body(Content::json::<ChatRequest>(question).or(name, approval))).refuses(&[
        CONTENT, FILE, NO_CHAT, AGENT, OWN_AGENT, &CHANGED, TOO_LARGE, JSON, BODY, STORAGE, BUDGET,
        WRITES,
    ])
}

fn streams(operation: Operation) -> Operation {
    let events = Content::events::<Chunk>(STREAM);
    let plain = Content::text("text/plain", "The text of the answer.", "hello");
    operation
        .answers(200, "The stream of the turn: server-sent events. The data of each is a chunk, and that of the last is `[DONE]`.", vec![events, plain])
        .with_header("x-chat-id", "The id of the chat, percent-encoded.")
        .with_header("x-resumable-stream-id", "The same.")
        .refuses_in_words()
}

pub fn resume() -> Operation {
    let operation = Operation::new(
        "resumeChat",
        Group::Chat,
        "Read the running turn again, from its first chunk",
    );
    streams(operation.query::<View>())
        .answers(204, "Nothing is running, or the chat is unknown.", vec![])
        .refuses(&[
            &only(422, "bad_dialect", "the dialect is not known"),
            &only(422, "bad_sdk", "the version of the AI SDK is not served"),
            NO_CHAT,
            NO_AGENT,
            TOO_MANY,
            WRITES,
        ])
}

pub fn stop() -> Operation {
    Operation::new("stopChat", Group::Chat, "Stop the running turn")
        .answers(204, "It has stopped, or nothing was running.", vec![])
        .refuses(&[
            &only(422, "bad_id", "the id is empty or too long"),
            NO_CHAT,
            NO_AGENT,
            TOO_MANY,
            WRITES,
        ])
}

pub fn tool_output() -> Operation {
    let output = json!({"toolCallId": "call_1", "output": {"latitude": 35.7, "longitude": 139.7}});
    let failure = json!({"toolCallId": "call_1", "errorText": "the user has no position"});
    Operation::new(
        "giveToolOutput",
        Group::Chat,
        "Give the output of a client tool",
    )
    .says("Also what a long-running tool of an ADK agent came to later.")
    .meaning("Results that come later")
    .body(Content::json::<ToolOutputBody>(output).or("failure", failure))
    .answers(204, "It was taken.", vec![])
    .refuses(&[
        &only(
            422,
            "bad_output",
            "neither an output nor an errorText, or both",
        ),
        &only(422, "bad_id", "the id of the call is empty or too long"),
        &only(
            422,
            "bad_value",
            "the output is not what the question asks for",
        ),
        &only(
            422,
            "chat_full",
            "the messages of the chat have reached their limit",
        ),
        &only(
            409,
            "conflict",
            "the call runs on the server, or has its result already",
        ),
        &only(
            410,
            "agent_gone",
            "the agent of the chat is not there any more",
        ),
        NO_CALL,
        NO_AGENT,
        TOO_LARGE,
        JSON,
        BODY,
        WRITES,
    ])
}
