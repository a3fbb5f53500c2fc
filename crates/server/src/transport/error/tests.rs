//! Every refusal of chats and of requests with what a client gets for it.

use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::parse_messages;
use adk_bridge_protocol::sdk::Sdk;
use adk_bridge_protocol::wire::json::TooManyValues;
use serde_json::{Value, json};

use super::*;
use crate::chat::error::BadUrl;
use crate::chat::loaded::ChatFull;
use crate::cluster::{ClaimError, Peer};
use crate::spending::Exceeded;
use crate::store::Conflict;

/// A row for each variant. One that is missing does not compile, and the same may be there twice.
macro_rules! rows {
    ($type:ident { $($variant:ident: $error:expr => $status:literal $code:literal $after:expr;)* }) => {{
        #[allow(unreachable_patterns, reason = "a variant may have several rows")]
        fn has_a_row(error: &$type) {
            match error {
                $($type::$variant { .. } => {})*
            }
        }
        $({
            let error: $type = $error;
            has_a_row(&error);
            assert!(matches!(error, $type::$variant { .. }), "{error:?}");
            let after: Option<u64> = $after;
            let name = stringify!($variant);
            let refusal = AppError::from(error);
            assert_eq!(refusal.status.as_u16(), $status, "{name}");
            assert_eq!(refusal.code, $code, "{name}");
            assert_eq!(refusal.retry_after.map(|after| after.as_secs()), after, "{name}");
            assert!(!refusal.message.is_empty(), "{name}");
        })*
    }};
}

#[test]
fn every_refusal_of_a_chat_has_its_status_code_and_time() {
    let text = String::new;
    rows!(ChatError {
        NoSuchChat: ChatError::NoSuchChat => 404 "not_found" None;
        NoSuchCall: ChatError::NoSuchCall => 404 "not_found" None;
        UnknownAgent: ChatError::UnknownAgent { id: text() } => 404 "unknown_agent" None;
        OtherAgent: ChatError::OtherAgent { own: text(), wanted: text() } => 409 "other_agent" None;
        AgentGone: ChatError::AgentGone { id: text() } => 410 "agent_gone" None;
        NoAgent: ChatError::NoAgent(NoAgent::Empty { name: text() }) => 503 "no_agent" Some(2);
        NoAgent: ChatError::NoAgent(NoAgent::Unreachable { name: text() }) => 503 "no_agent" Some(2);
        MessageNotInChat: ChatError::MessageNotInChat { id: text().into() } => 409 "conflict" None;
        CallsNotInChat: ChatError::CallsNotInChat => 409 "conflict" None;
        OutputRefused: ChatError::OutputRefused => 409 "conflict" None;
        ResultTaken: ChatError::ResultTaken => 409 "conflict" None;
        StillAnswering: ChatError::StillAnswering => 409 "conflict" Some(5);
        ToolResultRefused: ChatError::ToolResultRefused => 409 "conflict" None;
        QuestionAnswered: ChatError::QuestionAnswered => 409 "answered" None;
        QuestionExpired: ChatError::QuestionExpired => 410 "expired" None;
        QuestionSuperseded: ChatError::QuestionSuperseded => 410 "superseded" None;
        QuestionLost: ChatError::QuestionLost => 410 "lost" None;
        OtherSecret: ChatError::OtherSecret { wanted: "token" } => 422 "bad_credential" None;
        DuplicateMessageId: ChatError::DuplicateMessageId { id: text().into() } => 422 "bad_message" None;
        LastMessageIsSystem: ChatError::LastMessageIsSystem => 422 "bad_message" None;
        EmptyMessage: ChatError::EmptyMessage => 422 "bad_message" None;
        UnreadableFile: ChatError::UnreadableFile { part: 0, why: BadUrl::Data } => 422 "bad_message" None;
        AnswersAmongWords: ChatError::AnswersAmongWords => 422 "bad_message" None;
        AnswersToSeveralMessages: ChatError::AnswersToSeveralMessages { call: text().into() } => 422 "bad_message" None;
        TooManyFiles: ChatError::TooManyFiles { count: 2, most: 1 } => 422 "too_many_files" None;
        UnknownFile: ChatError::UnknownFile { url: text() } => 422 "unknown_file" None;
        UnclearApproval: ChatError::UnclearApproval { approval: text().into() } => 422 "bad_value" None;
        UnfitAnswer: ChatError::UnfitAnswer { problem: text() } => 422 "bad_value" None;
        UnclearUserAnswer: ChatError::UnclearUserAnswer { tool: text() } => 422 "bad_value" None;
        UnclearToolResult: ChatError::UnclearToolResult => 422 "bad_value" None;
        ContradictoryToolResult: ChatError::ContradictoryToolResult => 422 "bad_value" None;
        MissingToolResult: ChatError::MissingToolResult => 422 "missing_field" None;
        EmptyTitle: ChatError::EmptyTitle => 422 "bad_title" None;
        LiveUnsupported: ChatError::LiveUnsupported { what: "hear" } => 501 "live_unsupported" None;
        QueueFull: ChatError::QueueFull { most: 32 } => 429 "too_many" Some(5);
        TooManyHeld: ChatError::TooManyHeld { most: 32 } => 429 "too_many" Some(5);
        Admission: ChatError::from(AdmissionError::Turns { running: 1, limit: 1 }) => 503 "unavailable" Some(2);
        Admission: ChatError::from(AdmissionError::UserTurns { running: 1, limit: 1 }) => 429 "too_many" Some(2);
        Admission: ChatError::from(AdmissionError::UserUploads { limit: 1 }) => 429 "too_many" Some(2);
        Budget: ChatError::from(BudgetError::User { what: "a", key: "b" }) => 429 "too_many" Some(5);
        Budget: ChatError::from(BudgetError::Total { what: "a", key: "b" }) => 503 "unavailable" Some(5);
        OverBudget: ChatError::OverBudget(Box::new(Exceeded::sample(90))) => 429 "budget_exceeded" Some(90);
        Full: ChatError::from(ChatFull::Message { bytes: 1, limit: 1 }) => 422 "chat_full" None;
        Full: ChatError::from(ChatFull::Unloadable { bytes: 1 }) => 422 "chat_full" None;
        HandedIn: ChatError::from(HandedInError::TooLarge { field: "state" }) => 413 "too_large" None;
        HandedIn: ChatError::from(HandedInError::NotAnObject { field: "state" }) => 422 "wrong_type" None;
        HandedIn: ChatError::from(HandedInError::TooDeep { field: "state" }) => 422 "bad_value" None;
        HandedIn: ChatError::from(HandedInError::BadKey { field: "state", key: text() }) => 422 "bad_value" None;
        HandedIn: ChatError::from(HandedInError::ReservedKey { field: "state", key: text() }) => 422 "bad_value" None;
        HandedIn: ChatError::from(HandedInError::ConfiguredKey { field: "state", key: text() }) => 422 "bad_value" None;
        DeclaredTools: ChatError::from(DeclaredToolsError::TooLarge) => 413 "too_large" None;
        DeclaredTools: ChatError::from(DeclaredToolsError::TooMany { count: 65 }) => 413 "too_large" None;
        DeclaredTools: ChatError::from(DeclaredToolsError::WrongType { index: 0, field: "", expected: "" }) => 422 "wrong_type" None;
        DeclaredTools: ChatError::from(DeclaredToolsError::NotTaken { agent: text() }) => 422 "bad_value" None;
        DeclaredTools: ChatError::from(DeclaredToolsError::TooDeep) => 422 "bad_value" None;
        DeclaredTools: ChatError::from(DeclaredToolsError::BadName { index: 0, name: text() }) => 422 "bad_value" None;
        DeclaredTools: ChatError::from(DeclaredToolsError::Twice { name: text() }) => 422 "bad_value" None;
        DeclaredTools: ChatError::from(DeclaredToolsError::Taken { name: text() }) => 422 "bad_value" None;
        Elsewhere: ChatError::Elsewhere(Peer { name: text(), address: "http://a/".parse().unwrap() }) => 503 "unavailable" Some(2);
        Unclaimed: ChatError::from(ClaimError::Alone) => 503 "unavailable" Some(2);
        Fenced: ChatError::Fenced => 503 "unavailable" Some(2);
        Store: ChatError::from(StoreError::Fenced) => 503 "unavailable" Some(2);
        AnswerNotStored: ChatError::AnswerNotStored => 503 "unavailable" Some(2);
        NotLoaded: ChatError::NotLoaded { why: text() } => 503 "unavailable" Some(2);
        Unwritable: ChatError::Unwritable(WriteProblem::Full) => 507 "disk_full" None;
        Unwritable: ChatError::Unwritable(WriteProblem::ReadOnly) => 503 "read_only" None;
        Unwritable: ChatError::Unwritable(WriteProblem::Locked) => 503 "locked" Some(5);
        TaskEnded: ChatError::TaskEnded => 503 "unavailable" Some(2);
        ShuttingDown: ChatError::ShuttingDown => 503 "unavailable" Some(2);
        LiveAgentFailed: ChatError::LiveAgentFailed { message: "lost".to_owned() } => 503 "unavailable" Some(2);
        SpokenTurnNotStored: ChatError::SpokenTurnNotStored(Box::new(StoreError::Unwritable(WriteProblem::Full).into()))
            => 503 "unavailable" Some(2);
        Store: ChatError::from(StoreError::NotFound(Entity::Chat)) => 404 "not_found" None;
        Store: ChatError::from(StoreError::Conflict(Conflict::ReplyOpen)) => 409 "conflict" None;
        Store: ChatError::from(StoreError::TooLarge { bytes: 2, limit: 1 }) => 413 "too_large" None;
        Store: ChatError::from(StoreError::Busy) => 503 "unavailable" Some(2);
        Store: ChatError::from(StoreError::Unwritable(WriteProblem::Full)) => 507 "disk_full" None;
        File: ChatError::from(FileError::TooLarge { limit: 1 }) => 413 "too_large" None;
        File: ChatError::from(FileError::MediaType { found: text() }) => 415 "bad_media_type" None;
        File: ChatError::from(FileError::UserFull { kept: 1, limit: 1 }) => 429 "storage_full" None;
        File: ChatError::from(FileError::Full { limit: 1 }) => 503 "storage_full" None;
        File: ChatError::from(FileError::Unavailable) => 503 "unavailable" Some(10);
        File: ChatError::from(FileError::Store(StoreError::Busy)) => 503 "unavailable" Some(2);
    });
}

#[test]
fn every_request_that_cannot_be_read_has_its_status_and_code() {
    let json = || serde_json::from_str::<Value>("{").unwrap_err();
    let message = || parse_messages(Json::from(json!(1)).raw()).unwrap_err();
    let field = || "id".to_owned();
    rows!(RequestError {
        TooManyValues: TooManyValues.into() => 413 "too_many_values" None;
        NotJson: RequestError::NotJson(json()) => 400 "bad_json" None;
        TooDeep: RequestError::TooDeep => 400 "bad_json" None;
        AmbiguousJson: RequestError::AmbiguousJson(json()) => 400 "bad_json" None;
        WrongType: RequestError::WrongType { field: field(), expected: "a string" } => 422 "wrong_type" None;
        NoMessages: RequestError::NoMessages => 422 "missing_field" None;
        EmptyMessages: RequestError::EmptyMessages => 422 "missing_field" None;
        SystemMessage: RequestError::SystemMessage => 422 "bad_message" None;
        Message: message().into() => 422 "bad_message" None;
        UnknownTrigger: RequestError::UnknownTrigger { trigger: field() } => 422 "bad_trigger" None;
        UnknownDialect: "?".parse::<Dialect>().unwrap_err().into() => 422 "bad_dialect" None;
        UnknownSdk: "?".parse::<Sdk>().unwrap_err().into() => 422 "bad_sdk" None;
        AgentsDiffer: RequestError::AgentsDiffer { address: field(), body: field() } => 409 "other_agent" None;
        BadId: RequestError::BadId { field: field() } => 422 "bad_id" None;
    });
}

#[test]
fn a_server_that_is_not_ready_says_so_with_one_status() {
    rows!(NotReady {
        Unwritable: NotReady::Unwritable(WriteProblem::Full) => 503 "disk_full" None;
        Unwritable: NotReady::Unwritable(WriteProblem::Locked) => 503 "locked" Some(5);
        Slow: NotReady::Slow => 503 "unavailable" Some(2);
        Unreachable: NotReady::Unreachable => 503 "unavailable" Some(2);
        Busy: NotReady::Busy => 503 "unavailable" Some(2);
        Failed: NotReady::Failed { doing: "syncing" } => 503 "unavailable" Some(2);
        Unusable: NotReady::Unusable => 503 "unavailable" Some(2);
        NotTried: NotReady::NotTried => 503 "unavailable" Some(2);
        NoAgent: NotReady::NoAgent(Vec::new()) => 503 "no_agent" Some(2);
        Draining: NotReady::Draining => 503 "unavailable" Some(2);
        Alone: NotReady::Alone => 503 "unavailable" Some(2);
        NoToken: NotReady::NoToken(Vec::new()) => 503 "no_agent" Some(2);
    });
}
