//! Several ways to log in: the first whose credentials a request brings decides.

use std::sync::Arc;

use axum::http::request::Parts;
use futures_util::future::BoxFuture;

use super::{Authenticator, Identity, Refusal};

/// Asks its authenticators in order, until one finds credentials of its kind. What is there and wrong refuses: nothing that
/// comes after makes up for it.
#[derive(Debug)]
pub struct AnyOf(Vec<Arc<dyn Authenticator>>);

impl AnyOf {
    pub fn new(ways: Vec<Arc<dyn Authenticator>>) -> Self {
        Self(ways)
    }

    async fn first(&self, request: &Parts) -> Result<Identity, Refusal> {
        let mut refusal = None;
        for way in &self.0 {
            match way.authenticate(request).await {
                Err(none @ Refusal::NoCredentials(_)) => refusal = refusal.or(Some(none)),
                found => return found,
            }
        }
        Err(refusal.unwrap_or(Refusal::NoCredentials("nobody can log in".into())))
    }
}

impl Authenticator for AnyOf {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        Box::pin(self.first(request))
    }

    fn requires_credentials(&self) -> bool {
        self.0.iter().all(|way| way.requires_credentials())
    }
}

#[cfg(test)]
mod tests {
    use axum::http::Request;

    use super::*;

    /// Gives every request the same result.
    #[derive(Debug)]
    struct Always(Result<Identity, Refusal>);

    impl Authenticator for Always {
        fn authenticate<'a>(
            &'a self,
            _request: &'a Parts,
        ) -> BoxFuture<'a, Result<Identity, Refusal>> {
            Box::pin(std::future::ready(self.0.clone()))
        }
    }

    #[tokio::test]
    async fn the_first_credentials_count_and_nothing_makes_up_for_wrong_ones() {
        let alice = Ok(Identity::new("alice", "test"));
        let bob = Ok(Identity::new("bob", "test"));
        let none = Err(Refusal::NoCredentials("no key".into()));
        let no_token = Err(Refusal::NoCredentials("no token".into()));
        let wrong = Err(Refusal::WrongCredentials("wrong key".into()));
        let away = Err(Refusal::Unavailable("no provider".into()));
        let (parts, ()) = Request::new(()).into_parts();
        for (ways, expected) in [
            (vec![&alice], &alice),
            (vec![&alice, &bob], &alice),
            (vec![&none, &bob], &bob),
            (vec![&wrong, &bob], &wrong),
            (vec![&none, &wrong, &bob], &wrong),
            (vec![&away, &bob], &away),
            (vec![&none, &no_token], &none),
            (vec![&none, &wrong], &wrong),
            (vec![&wrong, &none], &wrong),
            (vec![&wrong, &away], &wrong),
        ] {
            let ways = ways.into_iter().cloned().map(Always);
            let ways = ways.map(|way| Arc::new(way) as Arc<dyn Authenticator>);
            let found = AnyOf::new(ways.collect()).authenticate(&parts).await;
            assert_eq!(&found, expected);
        }
        assert!(AnyOf::new(Vec::new()).authenticate(&parts).await.is_err());
    }
}
