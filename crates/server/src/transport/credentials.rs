//! Endpoints for what users grant to agents: the way to a provider and back, and keys and passwords.
//!
//! ```text
//!   GET  /api/oauth/authorize?request=…   ──▶ the provider's page           opened by the user, in a window of its own
//!   GET  /api/oauth/callback?state=…      ──▶ the agent goes on             opened by the provider, with its answer
//!   POST /api/credentials/{callId}        ──▶ the agent goes on             a key or a password, or a refusal
//! ```
//!
//! Browsers open the first two without any key: the token in the address says which question of which user is meant. Secrets
//! are in bodies and queries, which are not logged.

use adk_bridge_protocol::id::{CallId, ChatId, UserId};
use axum::extract::{Path, RawQuery, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{Html, IntoResponse as _, Response};
use uuid::Uuid;

use super::body::{WholeBody, read_body};
use super::chat::check_json;
use super::error::AppError;
use super::{page, percent};
use crate::auth::Identity;
use crate::chat::error::ChatError;
use crate::chat::request::{check_id, read_json};
use crate::chat::{Chats, Command, CredentialDecision};
use crate::credentials::{CALLBACK, Callback, GivenSecret, Question};
use crate::files::address::Base;

/// Sends the user to the page of the provider.
pub async fn authorize(
    State(chats): State<Chats>,
    base: Base,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    match provider_page(&chats, &base, &query.unwrap_or_default()).await {
        Ok(page) => {
            let away = [
                (header::LOCATION, page),
                (
                    header::REFERRER_POLICY,
                    HeaderValue::from_static("no-referrer"),
                ),
            ];
            (StatusCode::SEE_OTHER, away).into_response()
        }
        Err(refusal) => refused(refusal, None, &headers),
    }
}

/// Takes the answer of a provider, and shows the user a page that closes.
pub async fn callback(
    State(chats): State<Chats>,
    base: Base,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    let query = query.unwrap_or_default();
    let state = Callback::state_in(&query);
    let credentials = &chats.shared().credentials;
    let question = state.and_then(|state| credentials.of_state(&state));
    let Some(question) = question else {
        return refused(unknown(), None, &headers);
    };
    match answered(&chats, &question, &query, &base.url(CALLBACK)).await {
        Ok(end) => shown(StatusCode::OK, end, Some(&question), &headers),
        Err(refusal) => refused(refusal, Some(&question), &headers),
    }
}

/// Takes a key or a password, or the user's refusal.
pub async fn give(
    State(chats): State<Chats>,
    Identity { user, .. }: Identity,
    Path(call_id): Path<CallId>,
    headers: HeaderMap,
    WholeBody(body): WholeBody,
) -> Result<StatusCode, AppError> {
    check_json(&headers)?;
    check_id("call", call_id.as_str())?;
    let given = read_body(body, |body| -> Result<GivenSecret, AppError> {
        // The reason is not quoted: it may contain what was sent.
        read_json(body, |_| {
            let message =
                "send one of {apiKey}, {username, password}, {token} and {granted: false}";
            AppError::unprocessable("bad_credential", message)
        })
    });
    let given = given.await?;
    let chat_id = chats.that_asks(&user, &call_id).await?;
    let chat_id = chat_id.ok_or(ChatError::NoSuchCall)?;
    let decision = match &given {
        GivenSecret::Refused { granted: false } => {
            CredentialDecision::Refused("denied: the user did not grant access".to_owned())
        }
        given => {
            let login = chats.login(&user, &chat_id, &call_id).await?;
            let answer = login.answer_with(given).ok_or(ChatError::OtherSecret {
                wanted: login.wanted(),
            })?;
            CredentialDecision::Granted(answer)
        }
    };
    decide(&chats, &user, &chat_id, call_id, decision).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// What the user's window shows at the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    Granted,
    Denied,
    Unknown,
    Answered,
    Expired,
    Failed,
}

async fn provider_page(chats: &Chats, base: &Base, query: &str) -> Result<HeaderValue, AppError> {
    let credentials = &chats.shared().credentials;
    let token = query.strip_prefix("request=").unwrap_or_default();
    let question = credentials.of_link(token).ok_or_else(unknown)?;
    let login = chats.login_for(&question).await?;
    let state = credentials.state(&question).ok_or(ChatError::TaskEnded)?;
    let page = login.page_for(&state, &base.url(CALLBACK));
    let page = page.ok_or(ChatError::QuestionLost)?;
    page.as_str()
        .parse()
        .map_err(|_| ChatError::QuestionLost.into())
}

async fn answered(
    chats: &Chats,
    question: &Question,
    query: &str,
    redirect_uri: &str,
) -> Result<End, AppError> {
    let (end, decision) = match Callback::of(query) {
        Callback::Granted => {
            let login = chats.login_for(question).await?;
            let answer = login.answer_of_provider(query, redirect_uri);
            let answer = answer.ok_or(ChatError::QuestionLost)?;
            (End::Granted, CredentialDecision::Granted(answer))
        }
        Callback::Refused(word) => {
            let why = match word.as_str() {
                "access_denied" => "denied: the user did not grant access".to_owned(),
                word => format!("denied: the provider did not grant access ({word})"),
            };
            (End::Denied, CredentialDecision::Refused(why))
        }
        // The question stays open.
        Callback::Unclear => return Err(unknown()),
    };
    let call = question.call.clone();
    decide(chats, &question.user, &question.chat, call, decision).await?;
    Ok(end)
}

async fn decide(
    chats: &Chats,
    user: &UserId,
    chat_id: &ChatId,
    call_id: CallId,
    decision: CredentialDecision,
) -> Result<(), AppError> {
    chats.exists(user, chat_id).await?;
    let decided = chats.ask(user, chat_id, |answer| Command::Credential {
        call_id,
        decision: Box::new(decision),
        answer,
    });
    Ok(decided.await??)
}

/// For addresses that this server has not made, or that were changed.
fn unknown() -> AppError {
    AppError::bad_request(
        "unknown_login",
        "this address does not belong to a login of this server; go back to the chat and begin there",
    )
}

fn refused(refusal: AppError, question: Option<&Question>, headers: &HeaderMap) -> Response {
    let end = match refusal.code {
        "unknown_login" => End::Unknown,
        "answered" => End::Answered,
        "expired" | "superseded" | "lost" | "not_found" => End::Expired,
        _ => End::Failed,
    };
    let mut response = shown(refusal.status, end, question, headers);
    response.extensions_mut().insert(refusal);
    response
}

/// A page that tells the window that opened it, and closes.
fn shown(
    status: StatusCode,
    end: End,
    question: Option<&Question>,
    headers: &HeaderMap,
) -> Response {
    let japanese = is_japanese(headers);
    let (title, text) = end.words(japanese);
    let (language, back) = match japanese {
        true => ("ja", "チャットに戻る"),
        false => ("en", "Back to the chat"),
    };
    let back = match page::is_built() {
        true => {
            let chat = question.map(|question| percent::encoded(question.chat.as_str()));
            let chat = chat.map(|chat| chat.to_string()).unwrap_or_default();
            format!("<p><a href=\"/#{chat}\">{back}</a></p>")
        }
        false => String::new(),
    };
    let nonce = Uuid::new_v4().simple().to_string();
    let call = question.map(|question| escaped(question.call.as_str()));
    let call = call.unwrap_or_default();
    let word = end.word();
    let body = format!(
        "<!doctype html>\n<html lang=\"{language}\" data-call=\"{call}\" data-end=\"{word}\"><head><meta charset=\"utf-8\">\
         <meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title>\
         <style nonce=\"{nonce}\">{STYLE}</style></head>\n\
         <body><main><h1>{title}</h1><p>{text}</p>{back}</main>\
         <script nonce=\"{nonce}\">{SCRIPT}</script></body></html>\n"
    );
    let policy = format!(
        "default-src 'none'; style-src 'nonce-{nonce}'; script-src 'nonce-{nonce}'; base-uri 'none'; form-action 'none'; \
         frame-ancestors 'none'"
    );
    let mut response = (status, Html(body)).into_response();
    let headers = response.headers_mut();
    if let Ok(policy) = policy.parse() {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    response
}

pub(super) const STYLE: &str = ":root{color-scheme:light dark;font:1rem/1.5 system-ui,sans-serif}\
                     body{margin:0;min-height:100vh;display:grid;place-items:center}\
                     main{max-width:28rem;padding:2rem;text-align:center}h1{font-size:1.25rem;margin:0 0 .5rem}";
/// Other windows learn what happened, nothing secret. A login that took the place of a page goes back to it; what is wrong
/// stays, so that its user can read why.
const SCRIPT: &str = "const {call, end} = document.documentElement.dataset;\
                      const said = {type: 'adk-bridge/credential', toolCallId: call, end};\
                      try { new BroadcastChannel('adk-bridge/credential').postMessage(said); } catch {}\
                      try { opener?.postMessage(said, '*'); } catch {}\
                      let back; try { back = sessionStorage.getItem('adk-bridge/return'); sessionStorage.removeItem('adk-bridge/return'); } catch {}\
                      if (end === 'granted' || end === 'denied') {\
                      if (back?.startsWith(location.origin + '/')) location.replace(back); else close(); }";

impl End {
    fn word(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Denied => "denied",
            Self::Unknown => "unknown",
            Self::Answered => "answered",
            Self::Expired => "expired",
            Self::Failed => "failed",
        }
    }

    fn words(self, japanese: bool) -> (&'static str, &'static str) {
        match (self, japanese) {
            (Self::Granted, false) => (
                "Access granted",
                "The conversation goes on. You can close this window.",
            ),
            (Self::Granted, true) => (
                "アクセスが許可されました",
                "会話は続きます。このウィンドウを閉じてください。",
            ),
            (Self::Denied, false) => (
                "Access not granted",
                "The agent goes on without it. You can close this window.",
            ),
            (Self::Denied, true) => (
                "アクセスは許可されませんでした",
                "エージェントはアクセスなしで続けます。このウィンドウを閉じてください。",
            ),
            (Self::Unknown, false) => (
                "Unknown login",
                "This address does not belong to a login of this server. Go back to the chat and begin there.",
            ),
            (Self::Unknown, true) => (
                "不明なログイン",
                "このアドレスはこのサーバーのログインのものではありません。チャットに戻ってやり直してください。",
            ),
            (Self::Answered, false) => (
                "Already answered",
                "This question was answered before. You can close this window.",
            ),
            (Self::Answered, true) => (
                "回答済みです",
                "この質問にはすでに回答があります。このウィンドウを閉じてください。",
            ),
            (Self::Expired, false) => (
                "No longer asked",
                "This question has expired, or the conversation went on without it. Ask the agent again.",
            ),
            (Self::Expired, true) => (
                "この質問は終了しました",
                "期限が切れたか、会話が先に進みました。もう一度エージェントに頼んでください。",
            ),
            (Self::Failed, false) => (
                "That did not work",
                "The answer could not be taken now. Load this page again in a moment.",
            ),
            (Self::Failed, true) => (
                "うまくいきませんでした",
                "今は回答を受け取れませんでした。しばらくしてからこのページを再読み込みしてください。",
            ),
        }
    }
}

/// Whether a browser's first language is Japanese; there are words in English and in Japanese.
pub(super) fn is_japanese(headers: &HeaderMap) -> bool {
    let languages = headers.get(header::ACCEPT_LANGUAGE);
    let languages = languages.and_then(|languages| languages.to_str().ok());
    languages.is_some_and(|languages| languages.trim_start().starts_with("ja"))
}

pub(super) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('"', "&quot;")
        .replace('<', "&lt;")
}
