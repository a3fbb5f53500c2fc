//! Pages, and the state of the server.

use schemars::JsonSchema;
use serde_json::{Value, json};

use crate::openapi::operation::{Content, Group, Operation};
use crate::openapi::refusals::{NO_PAGE, WRITES, only};
use crate::transport::page::{Health, Readiness};

/// What a browser asks for again.
#[derive(JsonSchema)]
#[allow(
    dead_code,
    reason = "only the name is needed: the files are served by a library"
)]
struct Kept {
    /// Tags of what the client has.
    #[schemars(rename = "if-none-match")]
    if_none_match: Option<String>,
}

/// An OpenAPI document.
#[derive(JsonSchema)]
#[schemars(rename = "OpenApiDocument")]
#[allow(dead_code, reason = "only its schema is needed")]
struct Document {
    #[schemars(extend("pattern" = "^3\\.1\\."))]
    openapi: String,
    info: Value,
    paths: Value,
}

fn html(text: &'static str) -> Vec<Content> {
    vec![Content::text(
        "text/html",
        text,
        "<!doctype html><title>adk-bridge</title>",
    )]
}

pub fn index() -> Operation {
    Operation::new("openPage", Group::Page, "Open the page")
        .says("It works under any base path.")
        .headers::<Kept>()
        .answers(200, "The page.", html("The page."))
        .answers(304, "The client has it.", vec![])
}

pub fn asset() -> Operation {
    let content = Content::text("*/*", "The file.", "");
    Operation::new("getAsset", Group::Page, "Download a file of the page")
        .headers::<Kept>()
        .answers(200, "The file.", vec![content])
        .answers(304, "The client has it.", vec![])
        .refuses(&[NO_PAGE])
}

pub fn app_frame() -> Operation {
    Operation::new(
        "openAppFrame",
        Group::Page,
        "Open the frame for apps of MCP servers",
    )
    .headers::<Kept>()
    .answers(200, "The frame, which has no origin.", html("The frame."))
    .answers(304, "The client has it.", vec![])
    .refuses(&[NO_PAGE])
}

pub fn health() -> Operation {
    let ok = Content::json::<Health>(json!({"status": "ok"}));
    Operation::new(
        "getHealth",
        Group::State,
        "Ask whether the process is alive",
    )
    .answers(200, "It is.", vec![ok])
}

pub fn ready() -> Operation {
    let ready = Content::json::<Readiness>(json!({"status": "ready"}));
    Operation::new(
        "getReadiness",
        Group::State,
        "Ask whether requests can be served",
    )
    .says("There is an agent, and the store accepts writes.")
    .answers(200, "They can.", vec![ready])
    .refuses(&[
        WRITES,
        &only(503, "disk_full", "the disk is full"),
        &only(503, "no_agent", "there is no agent, or no token for any"),
    ])
}

pub fn description() -> Operation {
    let example =
        json!({"openapi": "3.1.0", "info": {"title": "adk-bridge", "version": "1"}, "paths": {}});
    Operation::new("getDescription", Group::State, "Read this description").answers(
        200,
        "The OpenAPI document.",
        vec![Content::json::<Document>(example)],
    )
}

pub fn enter_documents() -> Operation {
    Operation::new("findDocuments", Group::Page, "Find the documents")
        .answers(308, "They are below it.", vec![])
        .with_header("location", "`docs/`, relative to the request")
}

pub fn document() -> Operation {
    let content = Content::text("*/*", "The page or file.", "");
    Operation::new("readDocument", Group::Page, "Read a document")
        .says("If the program was built without its documents, the refusal says so.")
        .headers::<Kept>()
        .answers(200, "The page, or a file that it needs.", vec![content])
        .answers(304, "The client has it.", vec![])
        .refuses(&[NO_PAGE])
        .refuses_with_pages()
}

pub fn documents() -> Operation {
    Operation {
        id: "openDocuments",
        summary: "Open the documents",
        ..document()
    }
}

pub fn docs() -> Operation {
    Operation::new(
        "openDescription",
        Group::Page,
        "Read this description as a page",
    )
    .answers(200, "The page.", html("The page."))
}
