//! The description of the HTTP endpoints, as an OpenAPI document and as a page, made from the routes that serve them.
//!
//! ```text
//!   router ──▶ Routes: a path, its handlers, an Operation for each ──▶ Description ──▶ /api/openapi.json
//!                └── layers, each with the Check that it makes                   └──▶ /api/docs
//! ```
//!
//! A handler cannot be routed without its [`Operation`](operation::Operation), and a layer brings what it refuses. What an answer may be is held to
//! the description in every debug build: see [`hold_to_description`]. What things mean is in PROTOCOL.md, to which each
//! operation points.

mod document;
pub mod operation;
pub mod operations;
mod page;
pub mod refusals;
mod routes;
mod serve;

pub use refusals::Check;
pub use routes::{Endpoint, Routes, delete, get, post};
pub use serve::{Description, hold_to_description, json, page};
