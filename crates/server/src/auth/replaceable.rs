//! An authenticator that a reload of the configuration replaces.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::http::request::Parts;
use futures_util::future::BoxFuture;

use super::{Authenticator, Identity, Refusal};

/// Asks the authenticator that counts at the moment of a request.
#[derive(Debug)]
pub struct Replaceable(ArcSwap<Arc<dyn Authenticator>>);

impl Replaceable {
    pub fn new(authenticator: Arc<dyn Authenticator>) -> Self {
        Self(ArcSwap::from_pointee(authenticator))
    }

    pub fn replace(&self, authenticator: Arc<dyn Authenticator>) {
        self.0.store(Arc::new(authenticator));
    }
}

impl Authenticator for Replaceable {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        let current = self.0.load_full();
        Box::pin(async move { current.authenticate(request).await })
    }

    fn requires_credentials(&self) -> bool {
        self.0.load().requires_credentials()
    }
}
