//! Refusals: the one place that gives an error its HTTP status, its code, and the code that closes a WebSocket.
//!
//! Every layer below has errors of its own, which say what went wrong and what to do. `From` turns each into an
//! [`AppError`] here.

use std::sync::Arc;
use std::time::Duration;

use adk_bridge_protocol::reply::LONGEST_HOLD;
use adk_bridge_protocol::wire::live::Close;
use axum::Json;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::admission::AdmissionError;
use crate::agent_list::NoAgent;
use crate::auth::{Refusal, RoleNeeded, SourceError};
use crate::budget::{self, BudgetError};
use crate::chat::error::{ChatError, DeclaredToolsError, HandedInError, NotReady, RequestError};
use crate::cluster::Peer;
use crate::connections::TooManyConnections;
use crate::files::FileError;
use crate::files::address::SignatureError;
use crate::parsing::ParsingError;
use crate::sockets::TooManyTickets;
use crate::store::{Entity, StoreError, WriteProblem};

/// The code of a refusal, for clients that get its message as plain text.
const CODE: HeaderName = HeaderName::from_static("x-error-code");
/// A message quotes what was sent, which may be as long as a body.
const MAX_MESSAGE_BYTES: usize = 600;
/// Unavailability is usually short: a busy store, a server that restarts.
const A_MOMENT: Duration = Duration::from_secs(2);
/// Backups and repairs lock a database for seconds.
const LOCKED_FOR: Duration = Duration::from_secs(5);
/// A bucket that does not answer has been asked several times already.
const BUCKET_RETURNS: Duration = Duration::from_secs(10);
/// Messages that wait for a tool move on when it ends, which takes some seconds.
const QUEUE_MOVES: Duration = Duration::from_secs(5);

/// A request that is refused. The message says what to do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct AppError {
    pub status: StatusCode,
    pub code: &'static str,
    pub message: String,
    /// When to try again, if known.
    pub retry_after: Option<Duration>,
    /// Who can answer instead. Nothing has happened to the request.
    pub instead: Option<Instead>,
}

/// Who can answer a request that this replica does not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instead {
    /// The replica that serves the chat.
    Owner(Arc<Peer>),
    /// Whoever takes the chat when this replica has stopped.
    Another,
}

impl AppError {
    pub fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            status,
            code,
            message: shortened(message.into()),
            retry_after: None,
            instead: None,
        }
    }

    pub fn bad_request(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, code, message)
    }

    pub fn forbidden(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, code, message)
    }

    pub fn not_found(what: &str) -> Self {
        Self::new(
            StatusCode::NOT_FOUND,
            "not_found",
            format!("there is no such {what}"),
        )
    }

    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(StatusCode::CONFLICT, "conflict", message)
    }

    pub fn unprocessable(code: &'static str, message: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, code, message)
    }

    /// Refuses a request because a limit is reached; the message names the limit.
    pub fn too_many(message: impl Into<String>, retry_after: Duration) -> Self {
        Self::new(StatusCode::TOO_MANY_REQUESTS, "too_many", message).retry_after(retry_after)
    }

    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", message).retry_after(A_MOMENT)
    }

    /// Says when to try again, if that is known.
    pub fn write_retry_after(&self, headers: &mut HeaderMap) {
        if let Some(after) = self.retry_after {
            // Whole seconds, and never 0: the client would only be refused again.
            let seconds = after.as_secs() + u64::from(after.subsec_nanos() > 0);
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds.max(1)));
        }
    }

    /// Adds when the client may try again.
    #[must_use]
    pub fn retry_after(self, after: Duration) -> Self {
        Self {
            retry_after: Some(after),
            ..self
        }
    }
}

fn shortened(mut message: String) -> String {
    if message.len() > MAX_MESSAGE_BYTES {
        message.truncate(message.floor_char_boundary(MAX_MESSAGE_BYTES));
        message.push('…');
    }
    message
}

/// The answer carries the error as an extension: the log names its code, and its body may be written in another form.
impl IntoResponse for AppError {
    fn into_response(self) -> Response {
        let body = json!({"error": {"code": self.code, "message": self.message}});
        let mut response = (self.status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(CODE, HeaderValue::from_static(self.code));
        add_required(self.status, headers);
        self.write_retry_after(headers);
        response.extensions_mut().insert(self);
        response
    }
}

/// Adds the headers that HTTP requires of an answer with this status.
fn add_required(status: StatusCode, headers: &mut HeaderMap) {
    let mut add = |name, value| headers.insert(name, HeaderValue::from_static(value));
    match status {
        StatusCode::UNAUTHORIZED => {
            add(header::WWW_AUTHENTICATE, "Bearer");
        }
        StatusCode::UPGRADE_REQUIRED => {
            add(header::CONNECTION, "upgrade");
            add(header::UPGRADE, "websocket");
            add(header::SEC_WEBSOCKET_VERSION, "13");
        }
        _ => {}
    }
}

/// How a WebSocket is closed after a refusal.
impl From<&AppError> for Close {
    fn from(error: &AppError) -> Self {
        match error.status {
            StatusCode::REQUEST_TIMEOUT => Self::TIMEOUT,
            _ => Self::BUSY,
        }
    }
}

/// How a WebSocket is closed whose user is unknown.
impl From<&Refusal> for Close {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::NoCredentials(_)
            | Refusal::WrongCredentials(_)
            | Refusal::Expired(_)
            | Refusal::Forbidden(_) => Self::UNAUTHORIZED,
            Refusal::Unavailable(_) => Self::INTERNAL,
        }
    }
}

impl From<Refusal> for AppError {
    fn from(refusal: Refusal) -> Self {
        let message = refusal.to_string();
        match refusal {
            Refusal::NoCredentials(_) | Refusal::WrongCredentials(_) | Refusal::Expired(_) => {
                Self::new(StatusCode::UNAUTHORIZED, "unauthorized", message)
            }
            Refusal::Forbidden(_) => Self::forbidden("foreign_origin", message),
            Refusal::Unavailable(_) => Self::unavailable(message),
        }
    }
}

impl From<SourceError> for AppError {
    fn from(error: SourceError) -> Self {
        let code = match error {
            SourceError::Host { .. } => "foreign_host",
            SourceError::Origin { .. } | SourceError::NoOrigin => "foreign_origin",
            SourceError::Forwarded { .. } => "forwarded",
        };
        Self::forbidden(code, error.to_string())
    }
}

impl From<RoleNeeded> for AppError {
    fn from(error: RoleNeeded) -> Self {
        Self::forbidden("role_needed", error.to_string())
    }
}

impl From<SignatureError> for AppError {
    fn from(error: SignatureError) -> Self {
        Self::forbidden("bad_signature", error.to_string())
    }
}

impl From<TooManyTickets> for AppError {
    fn from(error: TooManyTickets) -> Self {
        Self::too_many(error.to_string(), error.wait)
    }
}

impl From<TooManyConnections> for AppError {
    fn from(error: TooManyConnections) -> Self {
        Self::too_many(error.to_string(), A_MOMENT)
    }
}

impl From<AdmissionError> for AppError {
    fn from(error: AdmissionError) -> Self {
        let message = error.to_string();
        match error {
            AdmissionError::Turns { .. } | AdmissionError::Memory { .. } => {
                Self::unavailable(message).retry_after(error.retry_after())
            }
            AdmissionError::UserTurns { .. }
            | AdmissionError::UserUploads { .. }
            | AdmissionError::RefusedAnswers { .. } => Self::too_many(message, error.retry_after()),
        }
    }
}

impl From<BudgetError> for AppError {
    fn from(error: BudgetError) -> Self {
        let message = error.to_string();
        match error {
            BudgetError::User { .. } => Self::too_many(message, budget::RETRY_AFTER),
            BudgetError::Total { .. } => {
                Self::unavailable(message).retry_after(budget::RETRY_AFTER)
            }
        }
    }
}

impl From<ParsingError> for AppError {
    fn from(error: ParsingError) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<FileError> for AppError {
    fn from(error: FileError) -> Self {
        let message = error.to_string();
        match error {
            FileError::TooLarge { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            }
            FileError::MediaType { .. } => Self::new(
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "bad_media_type",
                message,
            ),
            FileError::UserFull { .. } => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "storage_full", message)
            }
            FileError::Full { .. } => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "storage_full", message)
            }
            FileError::Incomplete(_) => Self::bad_request("incomplete", message),
            FileError::Unavailable => Self::unavailable(message).retry_after(BUCKET_RETURNS),
            FileError::Store(error) => error.into(),
        }
    }
}

impl From<ChatError> for AppError {
    fn from(error: ChatError) -> Self {
        use ChatError as E;
        let message = error.to_string();
        match error {
            E::NoSuchChat | E::NoSuchCall => Self::new(StatusCode::NOT_FOUND, "not_found", message),
            E::UnknownAgent { .. } => Self::new(StatusCode::NOT_FOUND, "unknown_agent", message),
            E::OtherAgent { .. } => Self::new(StatusCode::CONFLICT, "other_agent", message),
            E::AgentGone { .. } => Self::new(StatusCode::GONE, "agent_gone", message),
            E::NoAgent(error) => error.into(),
            E::MessageNotInChat { .. }
            | E::CallsNotInChat
            | E::OutputRefused
            | E::ResultTaken
            | E::ToolResultRefused => Self::conflict(message),
            E::QuestionAnswered => Self::new(StatusCode::CONFLICT, "answered", message),
            E::QuestionExpired => Self::new(StatusCode::GONE, "expired", message),
            E::QuestionSuperseded => Self::new(StatusCode::GONE, "superseded", message),
            E::QuestionLost => Self::new(StatusCode::GONE, "lost", message),
            E::OtherSecret { .. } => Self::unprocessable("bad_credential", message),
            E::DuplicateMessageId { .. }
            | E::LastMessageIsSystem
            | E::EmptyMessage
            | E::UnreadableFile { .. }
            | E::AnswersAmongWords
            | E::AnswersToSeveralMessages { .. } => Self::unprocessable("bad_message", message),
            E::Full(_) => Self::unprocessable("chat_full", message),
            E::HandedIn(error) => error.into(),
            E::DeclaredTools(error) => error.into(),
            E::TooManyFiles { .. } => Self::unprocessable("too_many_files", message),
            E::UnknownFile { .. } => Self::unprocessable("unknown_file", message),
            E::UnclearApproval { .. }
            | E::UnfitAnswer { .. }
            | E::UnclearUserAnswer { .. }
            | E::UnclearToolResult
            | E::ContradictoryToolResult => Self::unprocessable("bad_value", message),
            E::MissingToolResult => Self::unprocessable("missing_field", message),
            E::EmptyTitle => Self::unprocessable("bad_title", message),
            E::LiveUnsupported { .. } => {
                Self::new(StatusCode::NOT_IMPLEMENTED, "live_unsupported", message)
            }
            E::StillAnswering => Self::conflict(message).retry_after(QUEUE_MOVES),
            E::QueueFull { .. } => Self::too_many(message, QUEUE_MOVES),
            E::TooManyHeld { .. } => Self::too_many(message, LONGEST_HOLD),
            E::Elsewhere(owner) => Self {
                instead: Some(Instead::Owner(Arc::new(owner))),
                ..Self::unavailable(message)
            },
            E::Fenced | E::Unclaimed(_) => Self::unavailable(message),
            E::ShuttingDown => Self {
                instead: Some(Instead::Another),
                ..Self::unavailable(message)
            },
            E::AnswerNotStored | E::NotLoaded { .. } | E::TaskEnded | E::LiveAgentFailed { .. } => {
                Self::unavailable(message)
            }
            // Speech has no request that could be refused, so its client gets one code for all of these.
            E::SpokenTurnNotStored(why) => Self::unavailable(Self::from(*why).message),
            E::Unwritable(trouble) => trouble.into(),
            E::Admission(error) => error.into(),
            E::Budget(error) => error.into(),
            E::OverBudget(exceeded) => {
                Self::new(StatusCode::TOO_MANY_REQUESTS, "budget_exceeded", message)
                    .retry_after(exceeded.wait)
            }
            E::Store(error) => error.into(),
            E::File(error) => error.into(),
        }
    }
}

impl From<HandedInError> for AppError {
    fn from(error: HandedInError) -> Self {
        use HandedInError as E;
        let message = error.to_string();
        match error {
            E::TooLarge { .. } => Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message),
            E::NotAnObject { .. } => Self::unprocessable("wrong_type", message),
            E::TooDeep { .. }
            | E::BadKey { .. }
            | E::ReservedKey { .. }
            | E::ConfiguredKey { .. } => Self::unprocessable("bad_value", message),
        }
    }
}

impl From<DeclaredToolsError> for AppError {
    fn from(error: DeclaredToolsError) -> Self {
        use DeclaredToolsError as E;
        let message = error.to_string();
        match error {
            E::TooLarge | E::TooMany { .. } => {
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", message)
            }
            E::WrongType { .. } => Self::unprocessable("wrong_type", message),
            E::NotTaken { .. }
            | E::TooDeep
            | E::BadName { .. }
            | E::Twice { .. }
            | E::Taken { .. } => Self::unprocessable("bad_value", message),
        }
    }
}

impl From<RequestError> for AppError {
    fn from(error: RequestError) -> Self {
        use RequestError as E;
        let code = match error {
            E::TooManyValues(_) => {
                let status = StatusCode::PAYLOAD_TOO_LARGE;
                return Self::new(status, "too_many_values", error.to_string());
            }
            E::AgentsDiffer { .. } => {
                return Self::new(StatusCode::CONFLICT, "other_agent", error.to_string());
            }
            E::NotJson(_) | E::TooDeep | E::AmbiguousJson(_) => {
                return Self::bad_request("bad_json", error.to_string());
            }
            E::WrongType { .. } => "wrong_type",
            E::NoMessages | E::EmptyMessages => "missing_field",
            E::SystemMessage | E::Message(_) => "bad_message",
            E::UnknownTrigger { .. } => "bad_trigger",
            E::UnknownDialect(_) => "bad_dialect",
            E::UnknownSdk(_) => "bad_sdk",
            E::BadId { .. } => "bad_id",
        };
        Self::unprocessable(code, error.to_string())
    }
}

impl From<NoAgent> for AppError {
    fn from(error: NoAgent) -> Self {
        no_agent(error.to_string())
    }
}

fn no_agent(message: String) -> AppError {
    AppError::new(StatusCode::SERVICE_UNAVAILABLE, "no_agent", message).retry_after(A_MOMENT)
}

/// Health checks expect one status.
impl From<NotReady> for AppError {
    fn from(error: NotReady) -> Self {
        match error {
            NotReady::Unwritable(trouble) => Self {
                status: StatusCode::SERVICE_UNAVAILABLE,
                ..trouble.into()
            },
            NotReady::Slow
            | NotReady::Busy
            | NotReady::Unreachable
            | NotReady::Failed { .. }
            | NotReady::Unusable
            | NotReady::Draining
            | NotReady::Alone
            | NotReady::NotTried => Self::unavailable(error.to_string()),
            NotReady::NoAgent(_) | NotReady::NoToken(_) => no_agent(error.to_string()),
        }
    }
}

impl From<StoreError> for AppError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound(Entity::Chat) => Self::not_found("chat"),
            StoreError::NotFound(Entity::Message) => Self::not_found("message"),
            StoreError::NotFound(Entity::File) => Self::not_found("file"),
            StoreError::Conflict(conflict) => Self::conflict(conflict.to_string()),
            StoreError::Fenced => Self::unavailable(error.to_string()),
            StoreError::TooLarge { .. } => Self::new(
                StatusCode::PAYLOAD_TOO_LARGE,
                "too_large",
                error.to_string(),
            ),
            StoreError::Unwritable(trouble) => {
                tracing::error!("the store cannot be written to: {trouble}");
                trouble.into()
            }
            StoreError::Busy => Self::unavailable(error.to_string()),
            // Readiness is reported once; here it would be for every request.
            StoreError::Unreachable { why } => {
                tracing::debug!(%why, "a request cannot be answered without the database");
                Self::unavailable("the database cannot be reached; try again in a moment")
            }
            other => {
                tracing::error!(%other, "the store failed");
                Self::unavailable("the store is not available; try again in a moment")
            }
        }
    }
}

impl From<WriteProblem> for AppError {
    fn from(trouble: WriteProblem) -> Self {
        let (status, code, remedy) = match trouble {
            WriteProblem::Full => (
                StatusCode::INSUFFICIENT_STORAGE,
                "disk_full",
                "delete chats that are not needed, or ask the operator to free space",
            ),
            WriteProblem::ReadOnly => (
                StatusCode::SERVICE_UNAVAILABLE,
                "read_only",
                "ask the operator to make it writable",
            ),
            WriteProblem::Locked => (
                StatusCode::SERVICE_UNAVAILABLE,
                "locked",
                "try again in a moment",
            ),
        };
        let error = Self::new(status, code, format!("{trouble}; {remedy}"));
        match trouble {
            WriteProblem::Locked => error.retry_after(LOCKED_FOR),
            WriteProblem::Full | WriteProblem::ReadOnly => error,
        }
    }
}

#[cfg(test)]
mod tests;
