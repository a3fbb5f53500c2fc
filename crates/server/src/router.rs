//! All endpoints in one place.

use axum::Router;
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state, map_response};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use tower::ServiceBuilder;

use crate::credentials::{AUTHORIZE, CALLBACK};
use crate::metrics::ForwardedKind as Kind;
use crate::telemetry::{RequestLine, in_trace};
use crate::transport::access::Privacy;
use crate::transport::error_body::ErrorForm;
use crate::transport::{
    App, access, adk_stream_protocol, agents, ai_sdk_ws, chat, chats, cors, credentials, files,
    forward, handshake, live, page,
};

/// The endpoints that report the state of the server: they are answered however many connections are in use.
pub const INFORMING: &[&str] = &["/health", "/ready", "/metrics"];

pub fn router(app: App) -> Router {
    let check_source = from_fn_with_state(app.access().clone(), access::check_source);
    let authenticate = from_fn_with_state(app.access().clone(), access::authenticate);
    // For requests of pages and programs. CORS wraps the refusals too, so that a page can read the reason.
    let cors =
        cors::layer(app.allowed_origins()).map(|cors| (map_response(cors::empty_preflight), cors));
    let shared = ServiceBuilder::new()
        .layer(from_fn_with_state(
            app.access().clone(),
            access::check_origin,
        ))
        .option_layer(cors);

    let owned = |kind, route| forward::by_owner(&app, kind, route);
    let compat = match app.config().server.original_dialect() {
        Some(_) => Router::new()
            .route(
                "/stream",
                owned(Kind::Chat, post(adk_stream_protocol::stream)),
            )
            .route("/clear-sessions", post(adk_stream_protocol::clear_sessions)),
        None => Router::new(),
    };

    let api = Router::new()
        // Chat. Front ends with `trailingSlash` add a slash to the paths of the AI SDK.
        .route(
            "/api/chat/{id}/stream",
            owned(Kind::Resume, get(chat::resume)),
        )
        .route(
            "/api/chat/{id}/stream/",
            owned(Kind::Resume, get(chat::resume)),
        )
        .route("/api/chat/{id}/stop", owned(Kind::Stop, post(chat::stop)))
        .route(
            "/api/chat/{id}/tool-output",
            owned(Kind::Answer, post(chat::tool_output)),
        )
        // The same for front ends that name their agent by an address.
        .route(
            "/api/agents/{agent}/chat/{id}/stream",
            owned(Kind::Resume, get(chat::resume)),
        )
        .route(
            "/api/agents/{agent}/chat/{id}/stream/",
            owned(Kind::Resume, get(chat::resume)),
        )
        .route(
            "/api/agents/{agent}/chat/{id}/stop",
            owned(Kind::Stop, post(chat::stop)),
        )
        .route(
            "/api/agents/{agent}/chat/{id}/tool-output",
            owned(Kind::Answer, owned(Kind::Answer, post(chat::tool_output))),
        )
        // Stored data.
        .route("/api/chats", get(chats::list))
        .route(
            "/api/chats/{id}",
            owned(
                Kind::Stored,
                get(chats::messages)
                    .patch(chats::rename)
                    .delete(chats::delete),
            ),
        )
        .route("/api/audit", get(chats::audit))
        .route("/api/agent", get(agents::default))
        .route("/api/agents", get(agents::list))
        .route("/api/agents/{agent}", get(agents::one))
        .route(
            "/api/files",
            // The handler has its own limit.
            post(files::upload).layer(DefaultBodyLimit::disable()),
        )
        .route("/api/ticket", post(handshake::ticket))
        .route(
            "/api/credentials/{call}",
            owned(Kind::Answer, post(credentials::give)),
        )
        // Counters.
        .route("/metrics", get(chats::metrics))
        .merge(compat)
        .layer(authenticate.clone())
        // Needs a key or a signed URL.
        .route(
            "/api/files/{id}",
            get(files::download).layer(check_source.clone()),
        )
        .layer(shared.clone());

    // The AI SDK's documentation uses the same path for requests and for the WebSocket.
    let chat = owned(Kind::Chat, post(chat::post))
        .layer(authenticate)
        .layer(shared)
        .get(ai_sdk_ws::open);

    let page = Router::new()
        // A browser opens them without a key: the token in their address is one.
        .route(AUTHORIZE, get(credentials::authorize))
        .route(CALLBACK, owned(Kind::Answer, get(credentials::callback)))
        .route("/", get(page::index))
        .route("/assets/{*path}", get(page::asset))
        .route("/app-frame.html", get(page::app_frame))
        .layer(check_source);

    Router::new()
        .merge(api)
        .route("/api/chat", chat.clone())
        .route("/api/chat/", chat.clone())
        .route("/api/agents/{agent}/chat", chat.clone())
        .route("/api/agents/{agent}/chat/", chat)
        // WebSockets, which browsers open with a ticket.
        .route("/live", get(live::open))
        .route("/api/chat/ws", get(ai_sdk_ws::open))
        .route("/api/agents/{agent}/chat/ws", get(ai_sdk_ws::open))
        // For everyone: the page, and whether the server is alive.
        .merge(page)
        .route("/health", get(page::health))
        .route("/ready", get(page::ready))
        .fallback(page::not_found)
        .layer(from_fn_with_state(app.clone(), around_all))
        .with_state(app)
}

/// What happens to every request. One middleware: each of its own would clone and box all that is inside it, for every
/// request.
async fn around_all(State(app): State<App>, mut request: Request, next: Next) -> Response {
    let tracer = &app.chats().shared().tracer;
    let line = RequestLine::begin(&mut request, tracer);
    in_trace(line.trace().clone(), answer(app, request, next, line)).await
}

async fn answer(app: App, mut request: Request, next: Next, line: RequestLine) -> Response {
    let form = ErrorForm::of_answer_to(&request);
    let privacy = Privacy::of_answer_to(&request);
    let checked = access::require_one_host(&request);
    let response = match checked.and_then(|()| forward::recognise(&app, &mut request)) {
        Ok(()) => next.run(request).await,
        Err(refusal) => refusal.into_response(),
    };
    let mut response = form.apply(response).await;
    line.end(&mut response);
    privacy.apply(response.headers_mut());
    response
}
