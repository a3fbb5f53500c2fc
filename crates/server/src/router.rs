//! All endpoints in one place, each with its description.

use axum::extract::{DefaultBodyLimit, Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Router};

use crate::auth::LOGIN_CALLBACK;
use crate::credentials::{AUTHORIZE, CALLBACK};
use crate::metrics::ForwardedKind as Kind;
use crate::openapi::{
    self, Check, Description, Endpoint, Routes, delete, get, hold_to_description,
    operations as does, post,
};
use crate::store;
use crate::telemetry::{RequestLine, in_trace};
use crate::transport::access::Privacy;
use crate::transport::error_body::ErrorForm;
use crate::transport::{
    App, access, adk_stream_protocol, agents, ai_sdk_ws, budget, chat, chats, credentials, files,
    forward, handshake, live, login,
    page::{self, documents},
    users,
};

/// The endpoints that report the state of the server: they are answered however many connections are in use.
pub const INFORMING: &[&str] = &["/health", "/ready", "/metrics"];

pub fn router(app: App) -> Router {
    let check_source = from_fn_with_state(app.access().clone(), access::check_source);
    let authenticate = from_fn_with_state(app.access().clone(), access::authenticate);
    // For requests of pages and programs.
    let shared = from_fn_with_state(app.access().clone(), access::check_origin);
    let description = Description::new(&app);
    let described = Extension(description.clone());

    let owned = |kind, endpoint: Endpoint| {
        endpoint.checked(Check::Owner, |methods| {
            forward::by_owner(&app, kind, methods)
        })
    };
    let compat = match app.config().server.original_dialect() {
        Some(_) => Routes::new()
            .route(
                "/stream",
                owned(
                    Kind::Chat,
                    post(adk_stream_protocol::stream, does::compat::stream()),
                ),
            )
            .route(
                "/clear-sessions",
                post(
                    adk_stream_protocol::clear_sessions,
                    does::compat::clear_sessions(),
                ),
            ),
        None => Routes::new(),
    };

    let resume = owned(Kind::Resume, get(chat::resume, does::chat::resume()));
    let stop = owned(Kind::Stop, post(chat::stop, does::chat::stop()));
    let tool_output = owned(
        Kind::Answer,
        post(chat::tool_output, does::chat::tool_output()),
    );
    let api = Routes::new()
        // Chat. Front ends with `trailingSlash` add a slash to the paths of the AI SDK.
        .route("/api/chat/{id}/stream", resume.clone())
        .route("/api/chat/{id}/stream/", resume.clone())
        .route("/api/chat/{id}/stop", stop.clone())
        .route("/api/chat/{id}/tool-output", tool_output.clone())
        // The same for front ends that name their agent by an address.
        .route("/api/agents/{agent}/chat/{id}/stream", resume.clone())
        .route("/api/agents/{agent}/chat/{id}/stream/", resume)
        .route("/api/agents/{agent}/chat/{id}/stop", stop)
        .route("/api/agents/{agent}/chat/{id}/tool-output", tool_output)
        // Stored data.
        .route("/api/chats", get(chats::list, does::chats::list()))
        .route(
            "/api/chats/{id}",
            owned(
                Kind::Stored,
                get(chats::messages, does::chats::messages())
                    .patch(chats::rename, does::chats::rename())
                    .delete(chats::delete, does::chats::delete()),
            ),
        )
        .route("/api/audit", get(chats::audit, does::chats::audit()))
        .route("/api/audit/export", get(users::audit, does::users::audit()))
        .route("/api/budget", get(budget::state, does::budget::state()))
        .route("/api/export", get(users::export, does::users::export()))
        .route(
            "/api/users/{id}",
            delete(users::erase, does::users::erase()),
        )
        .route("/api/agent", get(agents::default, does::agents::default()))
        .route("/api/agents", get(agents::list, does::agents::list()))
        .route("/api/agents/{agent}", get(agents::one, does::agents::one()))
        .route(
            "/api/files",
            // The handler has its own limit.
            post(files::upload, does::files::upload())
                .layered(|methods| methods.layer(DefaultBodyLimit::disable())),
        )
        .route(
            "/api/ticket",
            post(handshake::ticket, does::sockets::ticket()),
        )
        .route(
            "/api/credentials/{call}",
            owned(
                Kind::Answer,
                post(credentials::give, does::credentials::give()),
            ),
        )
        // For admins.
        .route(
            "/api/users/{id}/logins",
            delete(login::end_all_of, does::login::end_all_of()),
        )
        // Counters.
        .route("/metrics", get(chats::metrics, does::chats::metrics()))
        .merge(compat)
        .checked(Check::User, |routes| routes.layer(authenticate.clone()))
        // Needs a key or a signed URL.
        .route(
            "/api/files/{id}",
            get(files::download, does::files::download())
                .checked(Check::Source, |methods| methods.layer(check_source.clone())),
        )
        // For programs and people of everyone who reaches the server.
        .route(
            "/api/openapi.json",
            get(openapi::json, does::page::description()).checked(Check::Source, |methods| {
                methods.layer(described.clone()).layer(check_source.clone())
            }),
        )
        .checked(Check::Origin, |routes| routes.layer(shared.clone()));

    // The AI SDK's documentation uses the same path for requests and for the WebSocket.
    let socket = || does::sockets::ai_sdk();
    let chat = owned(Kind::Chat, post(chat::post, does::chat::post()))
        .checked(Check::User, |methods| methods.layer(authenticate))
        .checked(Check::Origin, |methods| methods.layer(shared.clone()))
        .get(ai_sdk_ws::open, socket());

    // For whoever is not logged in yet, or not any more.
    let session = Routes::new()
        .route("/logout", post(login::end, does::login::end()))
        .route("/api/session", get(login::session, does::login::session()))
        .checked(Check::Source, |routes| routes.layer(check_source.clone()))
        .checked(Check::Origin, |routes| routes.layer(shared));

    let page = Routes::new()
        .route("/login", get(login::begin, does::login::begin()))
        .route(
            LOGIN_CALLBACK,
            get(login::callback, does::login::callback()),
        )
        // A browser opens them without a key: the token in their address is one.
        .route(
            AUTHORIZE,
            get(credentials::authorize, does::credentials::authorize()),
        )
        .route(
            CALLBACK,
            owned(
                Kind::Answer,
                get(credentials::callback, does::credentials::callback()),
            ),
        )
        .route("/", get(page::index, does::page::index()))
        .route("/assets/{*path}", get(page::asset, does::page::asset()))
        .route(
            "/app-frame.html",
            get(page::app_frame, does::page::app_frame()),
        )
        .route(
            "/docs",
            get(documents::enter, does::page::enter_documents()),
        )
        .route("/docs/", get(documents::open, does::page::documents()))
        .route(
            "/docs/{*path}",
            get(documents::open, does::page::document()),
        )
        .route(
            "/api/docs",
            get(openapi::page, does::page::docs()).layered(|methods| methods.layer(described)),
        )
        .checked(Check::Source, |routes| routes.layer(check_source));

    let routes = Routes::new()
        .merge(api)
        .merge(session)
        .route("/api/chat", chat.clone())
        .route("/api/chat/", chat.clone())
        .route("/api/agents/{agent}/chat", chat.clone())
        .route("/api/agents/{agent}/chat/", chat)
        // WebSockets, which browsers open with a ticket.
        .route("/live", get(live::open, does::sockets::live()))
        .route("/api/chat/ws", get(ai_sdk_ws::open, socket()))
        .route(
            "/api/agents/{agent}/chat/ws",
            get(ai_sdk_ws::open, socket()),
        )
        // For everyone: the page, and whether the server is alive.
        .merge(page)
        .route("/health", get(page::health, does::page::health()))
        .route("/ready", get(page::ready, does::page::ready()));

    let router = description
        .of(routes)
        .fallback(page::not_found)
        .layer(from_fn_with_state(app.clone(), around_all));
    match cfg!(debug_assertions) {
        true => router.layer(from_fn_with_state(description, hold_to_description)),
        false => router,
    }
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
        Ok(()) => store::in_request(next.run(request)).await,
        Err(refusal) => refusal.into_response(),
    };
    let mut response = form.apply(response).await;
    line.end(&mut response);
    privacy.apply(response.headers_mut());
    response
}
