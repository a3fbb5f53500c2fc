//! `POST /api/chat` and the doors beside it: requests of `useChat`, answered by server-sent events.

use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::chunk::Sdk;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, Query, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde::Deserialize;
use serde_json::Value;

use super::body::WholeBody;
use crate::auth::User;
use crate::chat::Command;
use crate::chat::live::{AnswerTo, Via};
use crate::chat::readers::Answer;
use crate::chat::request::{ChatRequest, check_id, dialect_of, read_json};
use crate::error::AppError;
use crate::router::App;

/// What a client may add to the address of a GET.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct View {
    pub dialect: Option<String>,
    pub sdk: Option<u8>,
}

pub async fn post(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<Response, AppError> {
    check_json(&headers)?;
    let request = ChatRequest::parse(&body)?;
    let chat_id = request.chat_id.clone();
    let answer = app
        .chats
        .ask(&user, &chat_id, |answer| Command::Post {
            request: Box::new(request),
            via: Via::HTTP,
            answer: AnswerTo::Request(answer),
        })
        .await??;
    Ok(sse(answer))
}

pub async fn resume(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Path(chat_id): Path<String>,
    Query(view): Query<View>,
) -> Result<Response, AppError> {
    let dialect = dialect_of(view.dialect.as_deref())?;
    let sdk = match view.sdk {
        Some(7) => Sdk::V7,
        _ => Sdk::V6,
    };
    // A chat without a task has nothing running: no need to load it for that answer.
    if !app.chats.is_in_use(&user, &chat_id) {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let answer = app
        .chats
        .ask(&user, &chat_id, |answer| Command::Resume {
            dialect,
            sdk,
            answer,
        })
        .await?;
    Ok(answer.map_or_else(|| StatusCode::NO_CONTENT.into_response(), sse))
}

pub async fn stop(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Path(chat_id): Path<String>,
) -> Result<StatusCode, AppError> {
    check_id("chat", &chat_id)?;
    app.chats.exists(&user, &chat_id).await?;
    app.chats
        .ask(&user, &chat_id, |answer| Command::Stop { answer })
        .await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn tool_output(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Path(chat_id): Path<String>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<StatusCode, AppError> {
    check_json(&headers)?;
    let (call_id, outcome) = output_of(&body)?;
    check_id("toolCallId", &call_id)?;
    app.chats.exists(&user, &chat_id).await?;
    app.chats
        .ask(&user, &chat_id, |answer| Command::ToolOutput {
            call_id,
            outcome: Box::new(outcome),
            answer,
        })
        .await??;
    Ok(StatusCode::NO_CONTENT)
}

fn output_of(body: &[u8]) -> Result<(String, Outcome), AppError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Given {
        tool_call_id: String,
        #[serde(default, deserialize_with = "present")]
        output: Option<Value>,
        error_text: Option<String>,
    }
    fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Value>, D::Error> {
        Value::deserialize(from).map(Some)
    }
    let given = Given::deserialize(read_json(body)?).map_err(|error| {
        AppError::unprocessable("bad_output", format!("the body is not understood: {error}"))
    })?;
    let outcome = match (given.output, given.error_text) {
        (Some(value), None) => Outcome::output(value),
        (None, Some(text)) => Outcome::error(text),
        _ => {
            return Err(AppError::unprocessable(
                "bad_output",
                "give either output or errorText",
            ));
        }
    };
    Ok((given.tool_call_id, outcome))
}

pub(super) fn check_json(headers: &HeaderMap) -> Result<(), AppError> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else {
        return Ok(());
    };
    let kind = String::from_utf8_lossy(kind.as_bytes());
    let kind = kind.split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    Err(AppError::new(
        StatusCode::UNSUPPORTED_MEDIA_TYPE,
        "not_json",
        format!("the content type is {kind:?}; send application/json"),
    ))
}

/// The headers that the AI SDK's own servers send, and the stream.
fn sse(answer: Answer) -> Response {
    let pieces = stream::unfold(answer, |mut answer| async move {
        let piece = answer.recv().await?;
        Some((Ok::<_, std::convert::Infallible>(piece), answer))
    });
    (
        [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-cache"),
            ("x-vercel-ai-ui-message-stream", "v1"),
            ("x-accel-buffering", "no"),
        ],
        Body::from_stream(pieces),
    )
        .into_response()
}
