//! One person on one machine: every request has the same user, without a login.

use axum::http::request::Parts;
use futures_util::future::{BoxFuture, ready};

use super::{Authenticator, Identity, Refusal};

/// Treats every request as the local user's.
#[derive(Debug, Clone, Copy)]
pub struct LocalUser;

impl LocalUser {
    /// How the user is recognised, and what it is called.
    pub const VIA: &str = "local";
}

impl Authenticator for LocalUser {
    fn authenticate<'a>(&'a self, _request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        Box::pin(ready(Ok(Identity::new(Self::VIA, Self::VIA))))
    }

    fn requires_credentials(&self) -> bool {
        false
    }
}
