//! All doors on one page.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware;
use axum::routing::{get, post};

use crate::auth;
use crate::chat::Chats;
use crate::config::Config;
use crate::error::in_one_form;
use crate::sockets::Sockets;
use crate::telemetry;
use crate::transport::{self, page};

/// What every door knows.
#[derive(Clone)]
pub struct App {
    pub config: Arc<Config>,
    pub chats: Chats,
    pub sockets: Arc<Sockets>,
}

pub fn router(app: App) -> Router {
    let doors = Router::new()
        // Chat.
        .route("/api/chat", post(transport::chat::post))
        .route("/api/chat/{id}/stream", get(transport::chat::resume))
        .route("/api/chat/{id}/stop", post(transport::chat::stop))
        .route(
            "/api/chat/{id}/tool-output",
            post(transport::chat::tool_output),
        )
        // What is kept.
        .route("/api/chats", get(transport::chats::list))
        .route(
            "/api/chats/{id}",
            get(transport::chats::messages)
                .patch(transport::chats::rename)
                .delete(transport::chats::delete),
        )
        .route("/api/audit", get(transport::chats::audit))
        .route("/api/agent", get(transport::chats::agent))
        .route("/api/files/{id}", get(transport::files::download))
        .route("/api/ticket", post(transport::handshake::ticket))
        // What is counted.
        .route("/metrics", get(transport::chats::metrics))
        .route(
            "/api/files",
            // The door has a limit of its own.
            post(transport::files::upload).layer(DefaultBodyLimit::disable()),
        )
        .layer(middleware::from_fn_with_state(app.clone(), auth::guard));
    Router::new()
        .merge(doors)
        // WebSockets: a browser opens them with a ticket.
        .route("/live", get(transport::live::open))
        .route("/api/chat/ws", get(transport::ai_sdk_ws::open))
        // For everybody: the page, and whether the server lives.
        .route("/", get(page::index))
        .route("/assets/{*path}", get(page::asset))
        .route("/health", get(page::health))
        .route("/ready", get(page::ready))
        .fallback(page::not_found)
        .layer(middleware::from_fn(telemetry::log))
        .layer(middleware::map_response(in_one_form))
        .with_state(app)
}
