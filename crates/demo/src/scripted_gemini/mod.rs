//! A scripted Gemini: a server that talks like Google's and does what the user's words ask for.
//!
//! It understands plain sentences (`sentence.rs`) and an exact form for tests (`script.rs`). It is as strict as Google
//! (`fields.rs`, `rules.rs`): what works here works there.

mod answer;
mod arithmetic;
mod chunks;
mod error;
mod fields;
pub mod live;
mod models;
mod phrase;
mod request;
mod results;
mod rules;
mod script;
mod sentence;
mod signature;

use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use adk_bridge_protocol::json_text::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::{HeaderMap, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tokio::net::TcpListener;

use answer::{Answer, End, Failures};
use chunks::{Chunks, Frame, Next};
use error::ApiError;
use request::Request;

/// The default time between two pieces of an answer, about that of a real model.
pub const PACE: Duration = Duration::from_millis(30);
/// The same for answers that are asked to be slow, so that a person can stop them.
pub const SLOW_PACE: Duration = Duration::from_millis(300);

/// The versions of the API. Google's client takes the first since its third release, the second before that.
const VERSIONS: [&str; 3] = ["v1", "v1beta", "v1alpha"];
/// Those of Vertex AI.
const VERTEX_VERSIONS: [&str; 2] = ["v1", "v1beta1"];
/// Google's limit for a request with files inside.
const MAX_BODY_BYTES: usize = 100 * 1024 * 1024;
const JSON: &str = "application/json; charset=UTF-8";

/// How the scripted Gemini behaves.
#[derive(Debug, Clone)]
pub struct Options {
    /// The accepted keys; if there are none, any key is accepted, but there must be one.
    pub keys: Vec<String>,
    /// The time between two pieces of an answer.
    pub pace: Duration,
    /// The time between two pieces of an answer that is asked to be slow.
    pub slow_pace: Duration,
    /// Whether calls have ids. Google's often do not.
    pub call_ids: bool,
    /// How the lines of a stream end.
    pub line_end: LineEnd,
    /// How long a live connection lasts; a warning comes a minute, or a quarter of this time, before the end.
    pub live_limit: Duration,
}

/// Google ends lines with CR and LF, some proxies with LF alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LineEnd {
    CrLf,
    Lf,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            pace: PACE,
            slow_pace: SLOW_PACE,
            call_ids: false,
            line_end: LineEnd::CrLf,
            live_limit: live::CONNECTION_LIMIT,
        }
    }
}

/// Serves on this listener until `shutdown` is ready.
pub async fn serve(
    listener: TcpListener,
    options: Options,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    // Without it, small pieces wait for each other in the socket. A connection that refuses it is only slower.
    let listener = listener.tap_io(|socket| drop(socket.set_nodelay(true)));
    axum::serve(listener, router(options))
        .with_graceful_shutdown(shutdown)
        .await
}

pub fn router(options: Options) -> Router {
    let scripted = Arc::new(Scripted {
        options,
        failures: Failures::default(),
        handles: live::Handles::default(),
        answers: AtomicU64::new(0),
    });
    Router::new()
        .route("/{version}/models", get(list_models))
        .route(
            "/{version}/models/{target}",
            get(get_model).post(post_model),
        )
        .route(
            "/{version}/projects/{project}/locations/{location}/publishers/google/models/{target}",
            post(post_vertex_model),
        )
        .route("/ws/{service}", get(live::connect))
        .route("/ws/{service}/{method}", get(live::connect_vertex))
        .fallback(async || ApiError::of_code(404))
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(scripted)
}

struct Scripted {
    options: Options,
    failures: Failures,
    handles: live::Handles,
    answers: AtomicU64,
}

type Parameters = Query<HashMap<String, String>>;

async fn list_models(
    State(scripted): State<Arc<Scripted>>,
    Path(version): Path<String>,
    Query(parameters): Parameters,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    scripted.admit(&version, &headers, &parameters)?;
    Ok(pretty(&models::list()))
}

async fn get_model(
    State(scripted): State<Arc<Scripted>>,
    Path((version, model)): Path<(String, String)>,
    Query(parameters): Parameters,
    headers: HeaderMap,
) -> Result<Response, ApiError> {
    scripted.admit(&version, &headers, &parameters)?;
    let model =
        models::about(&model).ok_or_else(|| ApiError::no_model(&version, &model, "getModel"))?;
    Ok(pretty(&model))
}

async fn post_model(
    State(scripted): State<Arc<Scripted>>,
    Path((version, target)): Path<(String, String)>,
    Query(parameters): Parameters,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    scripted.admit(&version, &headers, &parameters)?;
    scripted.post(&version, &target, &parameters, body).await
}

/// Vertex AI takes a token instead of a key, and does not know the field `store`.
async fn post_vertex_model(
    State(scripted): State<Arc<Scripted>>,
    Path((version, _, _, target)): Path<(String, String, String, String)>,
    Query(parameters): Parameters,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Response, ApiError> {
    if !VERTEX_VERSIONS.contains(&version.as_str()) {
        return Err(ApiError::of_code(404));
    }
    scripted.admit_token(&headers)?;
    let read: Option<Json> = serde_json::from_slice(&body).ok();
    if read.is_some_and(|body| body.get("store").is_some()) {
        let unknown = "Invalid JSON payload received. Unknown name \"store\": Cannot find field.";
        return Err(ApiError::bad_field("", unknown.to_owned()));
    }
    scripted.post(&version, &target, &parameters, body).await
}

impl Scripted {
    async fn post(
        &self,
        version: &str,
        target: &str,
        parameters: &HashMap<String, String>,
        body: Bytes,
    ) -> Result<Response, ApiError> {
        let (model, method) = target
            .split_once(':')
            .ok_or_else(|| ApiError::of_code(404))?;
        if !models::is_known(model) {
            return Err(ApiError::no_model(version, model, method));
        }
        let read: Json = serde_json::from_slice(&body).map_err(|error| {
            ApiError::invalid(format!("Invalid JSON payload received. {error}"))
        })?;
        // It may be long, and is not needed again.
        drop(body);
        let body = read;
        match method {
            "countTokens" => count_tokens(&body),
            "generateContent" => self.generate(model, body).await,
            "streamGenerateContent" => {
                let sse = parameters.get("alt").is_some_and(|alt| alt == "sse");
                self.stream(model, body, sse)
            }
            _ => Err(ApiError::of_code(404)),
        }
    }
}

fn count_tokens(body: &Json) -> Result<Response, ApiError> {
    let body = fields::count_request(body.raw())?;
    let request = body.get("generateContentRequest");
    let request = request.filter(|it| !it.is_null()).unwrap_or(body);
    let contents = request.get("contents").unwrap_or_default();
    let (total, details) = chunks::count_tokens([contents.raw()]);
    Ok(pretty(
        &json!({"totalTokens": total, "promptTokensDetails": details}),
    ))
}

impl Scripted {
    fn admit(
        &self,
        version: &str,
        headers: &HeaderMap,
        parameters: &HashMap<String, String>,
    ) -> Result<(), ApiError> {
        if !VERSIONS.contains(&version) {
            return Err(ApiError::of_code(404));
        }
        let header = headers
            .get("x-goog-api-key")
            .and_then(|key| key.to_str().ok());
        let key = header
            .or_else(|| parameters.get("key").map(String::as_str))
            .unwrap_or_default();
        let keys = &self.options.keys;
        match key.is_empty() {
            true => Err(ApiError::no_key()),
            false if keys.is_empty() || keys.iter().any(|known| known == key) => Ok(()),
            false => Err(ApiError::bad_key()),
        }
    }

    /// If there are keys, they are the tokens that are accepted.
    fn admit_token(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let token = headers.get(header::AUTHORIZATION);
        let token = token.and_then(|token| token.to_str().ok()?.strip_prefix("Bearer "));
        let keys = &self.options.keys;
        let is_good = |token: &&str| keys.is_empty() || keys.iter().any(|known| known == token);
        match token.filter(|token| !token.is_empty()).filter(is_good) {
            Some(_) => Ok(()),
            None => Err(ApiError::of_code(401)),
        }
    }

    fn answer(&self, model: &str, body: Json) -> Result<(Chunks, Duration), ApiError> {
        let checked = fields::generate_request(body.raw())?;
        drop(body);
        let contents = checked.contents();
        let request = Request::read(contents, &checked.rest)?;
        rules::check(&request.contents, model)?;
        let answer = answer::decide(&request, contents, &self.failures);
        if let Answer {
            end: End::Refused(error),
            ..
        } = answer
        {
            return Err(error);
        }
        let (prompt_token_count, prompt_tokens) = chunks::count_tokens([contents]);
        let pace = if answer.slow {
            self.options.slow_pace
        } else {
            self.options.pace
        };
        let frame = Frame {
            model: model.to_owned(),
            response_id: self.response_id(contents),
            prompt_tokens,
            prompt_token_count,
            max_output_tokens: request.max_output_tokens,
            streams_args: request.streams_args,
            call_ids: self.options.call_ids,
        };
        Ok((Chunks::new(answer, frame), pace))
    }

    fn next_number(&self) -> u64 {
        self.answers.fetch_add(1, Ordering::Relaxed)
    }

    /// Differs for every answer, and is the same in every run with the same requests.
    fn response_id(&self, contents: &RawValue) -> String {
        let mut digest = Sha256::new();
        digest.update(format!("{} ", self.next_number()));
        digest.update(contents.get());
        URL_SAFE_NO_PAD.encode(&digest.finalize()[..15])
    }

    async fn generate(&self, model: &str, body: Json) -> Result<Response, ApiError> {
        let (chunks, pace) = self.answer(model, body)?;
        if !pace.is_zero() {
            tokio::time::sleep(pace).await;
        }
        let Some(whole) = chunks::whole(chunks) else {
            return Ok(respond(JSON, cut_body()));
        };
        match &whole["error"]["code"] {
            Value::Null => Ok(pretty(&whole)),
            code => Err(ApiError::of_code(
                code.as_u64()
                    .and_then(|code| u16::try_from(code).ok())
                    .unwrap_or(500),
            )),
        }
    }

    fn stream(&self, model: &str, body: Json, sse: bool) -> Result<Response, ApiError> {
        let (chunks, pace) = self.answer(model, body)?;
        let framing = match (sse, self.options.line_end) {
            (true, LineEnd::CrLf) => Framing {
                open: "",
                before: "data: ",
                between: "",
                after: "\r\n\r\n",
                close: "",
            },
            (true, LineEnd::Lf) => Framing {
                open: "",
                before: "data: ",
                between: "",
                after: "\n\n",
                close: "",
            },
            (false, _) => Framing {
                open: "[",
                before: "",
                between: ",\r\n",
                after: "\n",
                close: "]",
            },
        };
        let content_type = if sse { "text/event-stream" } else { JSON };
        let state = Streaming {
            chunks,
            pace,
            framing,
            sent: 0,
            is_over: false,
        };
        Ok(respond(
            content_type,
            Body::from_stream(futures_util::stream::unfold(state, Streaming::next)),
        ))
    }
}

struct Streaming {
    chunks: Chunks,
    pace: Duration,
    framing: Framing,
    sent: usize,
    is_over: bool,
}

/// The text around the chunks of a stream.
struct Framing {
    open: &'static str,
    before: &'static str,
    between: &'static str,
    after: &'static str,
    close: &'static str,
}

impl Streaming {
    async fn next(mut self) -> Option<(io::Result<Bytes>, Self)> {
        if self.is_over {
            return None;
        }
        // Yielding once lets the socket send what it has: chunks are sent separately, and none is lost if the
        // connection is cut.
        match self.pace.is_zero() {
            true => tokio::task::yield_now().await,
            false => tokio::time::sleep(self.pace).await,
        }
        let framing = &self.framing;
        let start = if self.sent == 0 {
            framing.open
        } else {
            framing.between
        };
        let piece = match self.chunks.next() {
            Some(Next::Chunk(chunk)) => Ok(Bytes::from(format!(
                "{start}{}{chunk}{}",
                framing.before, framing.after
            ))),
            Some(Next::Cut) => Err(cut()),
            None if framing.close.is_empty() => return None,
            None => {
                self.is_over = true;
                Ok(Bytes::from_static(framing.close.as_bytes()))
            }
        };
        self.is_over |= piece.is_err();
        self.sent += 1;
        Some((piece, self))
    }
}

/// A body that breaks off before its first byte.
fn cut_body() -> Body {
    Body::from_stream(futures_util::stream::once(async {
        tokio::task::yield_now().await;
        Err::<Bytes, _>(cut())
    }))
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "cut on demand")
}

fn pretty(value: &Value) -> Response {
    respond(JSON, Body::from(format!("{value:#}\n")))
}

fn respond(content_type: &'static str, body: Body) -> Response {
    ([(header::CONTENT_TYPE, content_type)], body).into_response()
}
