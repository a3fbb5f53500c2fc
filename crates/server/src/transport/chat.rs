//! `POST /api/chat` and related endpoints: requests of `useChat`, answered by server-sent events.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::{CallId, ChatId, UserId};
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::sdk::Sdk;
use adk_bridge_protocol::wire::sse;
use axum::body::{Body, HttpBody};
use axum::extract::{FromRequest as _, Path, Query, Request, State};
use axum::http::{Extensions, HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use bytes::Bytes;
use hyper::body::Frame;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::body::{Intake, WholeBody, read_body};
use super::error::AppError;
use super::error_body::accepts;
use super::{percent, schemas, text};
use crate::auth::{Identity, is_forwarded};
use crate::chat::error::RequestError;
use crate::chat::live::{AnswerTo, RequestOrigin};
use crate::chat::readers::Answer;
use crate::chat::request::{ChatRequest, RequestSource, check_id, dialect_of, read_json, sdk_of};
use crate::chat::{Chats, Command};
use crate::connections::WrittenMessages;
use crate::files::address::Base;
use crate::parsing;
use crate::telemetry::RequestTrace;

/// The query parameters of a GET.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(default)]
pub struct View {
    /// The form of messages; `native` by default.
    #[schemars(with = "Option<schemas::DialectName>", example = &"native")]
    pub dialect: Option<String>,
    /// The version of the AI SDK of the front end, for streams.
    #[schemars(with = "Option<schemas::SdkName>", example = 7)]
    pub sdk: Option<Value>,
}

/// The agent in the path of a request, if there is one.
#[derive(Debug, Deserialize)]
pub struct AgentPath {
    pub agent: Option<String>,
}

/// The chat in the path of a request, whatever else is in it.
#[derive(Debug, Deserialize)]
pub struct ChatPath {
    id: ChatId,
}

pub async fn post(
    State(chats): State<Chats>,
    State(intake): State<Intake>,
    Identity { user, .. }: Identity,
    agent: Option<Path<AgentPath>>,
    base: Base,
    request: Request,
) -> Result<Response, AppError> {
    let agent = agent.and_then(|Path(path)| path.agent);
    let parse = move |body: &[u8]| {
        ChatRequest::parse(body, Dialect::default())?.for_agent(agent.as_deref())
    };
    answer_post((&chats, &intake), &user, base, request, parse).await
}

/// Answers a chat request whose body is read by `parse`.
pub(super) async fn answer_post(
    (chats, intake): (&Chats, &Intake),
    user: &UserId,
    base: Base,
    request: Request,
    parse: impl FnOnce(&[u8]) -> Result<ChatRequest, RequestError> + Send + 'static,
) -> Result<Response, AppError> {
    let headers = request.headers().clone();
    let trace = RequestTrace::of(&request);
    // Before the body is read: it may be large.
    chats.shared().capacity.admission.check_refused(user)?;
    check_json(&headers)?;
    let written = written_to(&headers, request.extensions());
    let had = written.so_far();
    let WholeBody(body) = WholeBody::from_request(request, intake).await?;
    let mut request = read_body(body, parse).await?;
    request.from = RequestSource { base, trace };
    request.seen.had = had;
    if request.finds_chat
        && let Some(chat_id) = chats.that_waits_for(user, request.last()).await?
    {
        request.chat_id = chat_id;
    }
    let chat_id = request.chat_id.clone();
    let answer = chats
        .ask(user, &chat_id, |answer| Command::Post {
            request: Box::new(request),
            origin: RequestOrigin::HTTP,
            answer: AnswerTo::Request(answer),
        })
        .await??;
    Ok(streamed(answer, &chat_id, &headers, written))
}

pub async fn resume(
    State(chats): State<Chats>,
    Identity { user, .. }: Identity,
    base: Base,
    Path(ChatPath { id: chat_id }): Path<ChatPath>,
    Query(view): Query<View>,
    request: Request,
) -> Result<Response, AppError> {
    let headers = request.headers();
    let written = written_to(headers, request.extensions());
    let dialect = dialect_of(view.dialect.as_deref())?;
    let sdk = sdk_of(view.sdk.as_ref(), Sdk::default())?;
    // A chat that has nothing running need not be loaded.
    if !chats.may_be_running(&user, &chat_id).await? {
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let answer = chats
        .ask(&user, &chat_id, |answer| Command::Resume {
            dialect,
            sdk,
            base,
            answer,
        })
        .await??;
    Ok(match answer {
        Some(answer) => streamed(answer, &chat_id, headers, written),
        None => StatusCode::NO_CONTENT.into_response(),
    })
}

pub async fn stop(
    State(chats): State<Chats>,
    Identity { user, .. }: Identity,
    Path(ChatPath { id: chat_id }): Path<ChatPath>,
) -> Result<StatusCode, AppError> {
    check_id("chat", chat_id.as_str())?;
    chats.exists(&user, &chat_id).await?;
    chats
        .ask(&user, &chat_id, |answer| Command::Stop { answer })
        .await??;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn tool_output(
    State(chats): State<Chats>,
    Identity { user, .. }: Identity,
    Path(ChatPath { id: chat_id }): Path<ChatPath>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<StatusCode, AppError> {
    check_json(&headers)?;
    // An output is a tree until it is stored.
    let _held = parsing::hold(std::iter::once(&*body)).await?;
    let (call_id, outcome) = read_body(body, output_of).await?;
    check_id("toolCallId", call_id.as_str())?;
    chats.exists(&user, &chat_id).await?;
    chats
        .ask(&user, &chat_id, |answer| Command::ToolOutput {
            call_id,
            outcome: Box::new(outcome),
            answer,
        })
        .await??;
    Ok(StatusCode::NO_CONTENT)
}

/// What a call of a client tool came to: one of `output` and `errorText`.
#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ToolOutputBody {
    #[schemars(with = "String", length(min = 1, max = 200))]
    tool_call_id: CallId,
    #[serde(default, deserialize_with = "present")]
    #[schemars(with = "Option<Value>")]
    output: Option<Json>,
    error_text: Option<String>,
}

fn present<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<Json>, D::Error> {
    Json::deserialize(from).map(Some)
}

fn output_of(body: &[u8]) -> Result<(CallId, Outcome), AppError> {
    let given: ToolOutputBody = read_json(body, |error| {
        AppError::unprocessable(
            "bad_output",
            format!("the body could not be understood: {error}"),
        )
    })?;
    let outcome = match (given.output, given.error_text) {
        (Some(value), None) => Outcome::output(value),
        (None, Some(text)) => Outcome::error(text),
        _ => {
            return Err(AppError::unprocessable(
                "bad_output",
                "send either output or errorText",
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

/// The messages that were written to the connection of a request. Only a browser's connection says what its page has: a
/// proxy or server in between may have read what the page never got.
fn written_to(headers: &HeaderMap, connection: &Extensions) -> WrittenMessages {
    let is_browser = headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
    let written = connection.get::<WrittenMessages>();
    let written = written.filter(|_| is_browser && !is_forwarded(headers));
    written.cloned().unwrap_or_default()
}

/// The stream, in the form that the client asks for. Proxies must not buffer it, nor compress it, which would buffer it
/// too.
fn streamed(
    answer: Answer,
    chat_id: &ChatId,
    asked: &HeaderMap,
    written: WrittenMessages,
) -> Response {
    let id = percent::encoded(chat_id.as_str()).to_string();
    let common = [
        ("cache-control", "no-cache, no-transform"),
        ("x-accel-buffering", "no"),
        // Where a client finds the stream again: `/api/chat/{id}/stream`.
        ("x-resumable-stream-id", &id),
        ("x-chat-id", &id),
    ];
    if accepts(asked, "text/plain") && !accepts(asked, "text/event-stream") {
        let kind = [("content-type", "text/plain; charset=utf-8")];
        return (common, kind, Body::from_stream(text::of(answer))).into_response();
    }
    (
        common,
        [
            // Without a charset some clients take the text for Latin-1.
            ("content-type", "text/event-stream; charset=utf-8"),
            ("x-vercel-ai-ui-message-stream", "v1"),
        ],
        Body::new(AnswerBody { answer, written }),
    )
        .into_response()
}

/// The stream as the body of a response.
struct AnswerBody {
    answer: Answer,
    written: WrittenMessages,
}

impl HttpBody for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let Some(piece) = ready!(self.answer.poll_recv(context)) else {
            // The connection breaks, so that the client does not take this for the end of the answer.
            let cut = || Err(io::Error::other("the chat goes on at another replica"));
            return Poll::Ready(self.answer.is_cut().then(cut));
        };
        if piece.ends_with(sse::DONE)
            && let Some(message) = self.answer.whole_message()
        {
            self.written.note(message);
        }
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }
}
