//! One person on one machine: every request has the same user, without a login.

use axum::http::request::Parts;
use futures_util::future::{BoxFuture, ready};

use super::{Authenticator, Identity, Refusal};

/// The user, and how it was recognised.
const LOCAL: &str = "local";

/// Treats every request as the local user's.
#[derive(Debug, Clone, Copy)]
pub struct LocalUser;

impl Authenticator for LocalUser {
    fn authenticate<'a>(&'a self, _request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        Box::pin(ready(Ok(Identity::new(LOCAL, LOCAL))))
    }

    fn requires_credentials(&self) -> bool {
        false
    }
}
