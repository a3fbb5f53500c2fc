//! What is kept and known: chats, their messages, the audit, the agent.

use std::sync::LazyLock;

use adk_bridge_protocol::calls::RunsOn;
use axum::extract::{Path, Query, State};
use axum::http::header::LINK;
use axum::http::{HeaderMap, StatusCode};
use axum::{Extension, Json};
use serde::Deserialize;
use serde_json::{Value, json};

use super::body::WholeBody;
use super::chat::{View, check_json};
use crate::auth::User;
use crate::chat::new_id;
use crate::chat::request::{dialect_of, read_json};
use crate::config::AgentKind;
use crate::error::AppError;
use crate::router::App;

#[derive(Debug, Deserialize)]
pub struct OfChat {
    pub chat: Option<String>,
}

/// The last chat of the page before.
#[derive(Debug, Deserialize)]
pub struct Page {
    before: Option<String>,
    at: Option<String>,
}

/// The newest chats, or those behind a page; a `Link` leads to the next one.
pub async fn list(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Query(Page { before, at }): Query<Page>,
) -> Result<(HeaderMap, Json<Value>), AppError> {
    let last = match (&before, at.map(|at| at.parse())) {
        (None, None) => None,
        (Some(id), Some(Ok(updated))) => Some((updated, id.as_str())),
        _ => return Err(half_a_page()),
    };
    let page = app.chats.list(&user, last).await?;
    let mut headers = HeaderMap::new();
    if let Some(last) = page.chats.last().filter(|_| page.is_full) {
        let id = percent_encoded(&last.chat.id);
        let link = format!("<?before={id}&at={}>; rel=\"next\"", last.chat.updated);
        // Nothing in it is more than ASCII.
        headers.extend(link.parse().ok().map(|link| (LINK, link)));
    }
    let rows: Vec<Value> = page
        .chats
        .into_iter()
        .map(|listed| {
            json!({
                "id": listed.chat.id,
                "title": listed.chat.title,
                "createdAt": listed.chat.created,
                "updatedAt": listed.chat.updated,
                "pendingApprovals": listed.waiting,
                "pendingOutputs": listed.owed,
            })
        })
        .collect();
    Ok((headers, Json(Value::Array(rows))))
}

fn half_a_page() -> AppError {
    AppError::bad_request(
        "bad_page",
        "`before` and `at` are the id and `updatedAt` of the last chat of a page; send both",
    )
}

/// As a part of an address: what is no plain letter, digit or mark is written in hexadecimal.
fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            _ => format!("%{byte:02X}"),
        })
        .collect()
}

pub async fn messages(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Path(chat_id): Path<String>,
    Query(view): Query<View>,
) -> Result<Json<Value>, AppError> {
    let dialect = dialect_of(view.dialect.as_deref())?;
    let (chat, messages) = app.chats.messages(&user, &chat_id, dialect).await?;
    Ok(Json(json!({
        "id": chat.id,
        "title": chat.title,
        "createdAt": chat.created,
        "updatedAt": chat.updated,
        "messages": messages,
    })))
}

pub async fn delete(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Path(chat_id): Path<String>,
) -> Result<StatusCode, AppError> {
    app.chats.delete(&user, &chat_id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Gives a chat another title.
pub async fn rename(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Path(chat_id): Path<String>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<StatusCode, AppError> {
    #[derive(Deserialize)]
    struct Wanted {
        title: String,
    }
    check_json(&headers)?;
    let Wanted { title } = Wanted::deserialize(read_json(&body)?).map_err(|error| {
        AppError::unprocessable("bad_title", format!("the body is not understood: {error}"))
    })?;
    app.chats.rename(&user, &chat_id, &title).await?;
    Ok(StatusCode::NO_CONTENT)
}

pub async fn audit(
    State(app): State<App>,
    Extension(User(user)): Extension<User>,
    Query(OfChat { chat }): Query<OfChat>,
) -> Result<Json<Value>, AppError> {
    let chat = chat.ok_or_else(|| {
        AppError::unprocessable("missing_field", "say which chat: /api/audit?chat=ID")
    })?;
    Ok(Json(json!(app.chats.audit(&user, &chat).await?)))
}

/// Tells a front end that was cut off whether it is the same process that answers again.
static INSTANCE: LazyLock<String> = LazyLock::new(|| new_id("instance"));

pub async fn agent(State(app): State<App>) -> Json<Value> {
    let tools: Vec<Value> = app
        .chats
        .tools()
        .await
        .iter()
        .map(|tool| {
            let own = &app.config.agent.client_tools;
            let schema = own
                .iter()
                .find(|it| it.name == tool.name)
                .and_then(|it| it.output_schema.as_ref());
            let mut told = json!({
                "name": tool.name,
                "description": tool.description,
                "inputSchema": tool.input_schema,
                "runsOn": match tool.runs_on {
                    RunsOn::Client => "client",
                    RunsOn::Server | RunsOn::Remote => "server",
                },
                "needsApproval": tool.needs_approval,
            });
            if let Some(schema) = schema {
                told["outputSchema"] = schema.clone();
            }
            told
        })
        .collect();
    let settings = &app.config.agent;
    let name = match &settings.app {
        Some(name) if settings.kind == AgentKind::Adk => json!(name),
        _ => json!(settings.kind),
    };
    let voice = app.chats.shared().voice.as_ref();
    Json(json!({
        "name": name,
        "model": app.chats.shared().agent.model(),
        "liveModel": voice.and_then(|voice| voice.model()),
        "modalities": if voice.is_some() { &["text", "audio"][..] } else { &["text"] },
        "tools": tools,
        "approvalTimeoutMs": app.config.approval.timeout.0.as_millis(),
        "instance": *INSTANCE,
    }))
}

/// Counters for Prometheus.
pub async fn metrics(State(app): State<App>) -> ([(&'static str, &'static str); 1], String) {
    let kind = [("content-type", "text/plain; version=0.0.4; charset=utf-8")];
    (kind, app.chats.metrics())
}
