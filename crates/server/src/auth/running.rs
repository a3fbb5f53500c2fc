//! The ways to log in of a running server: a reload replaces them, and keeps what is known of providers that stay.

use std::sync::{Arc, Mutex, PoisonError};

use super::oidc::KeySource;
use super::{Authenticator, Logins, Replaceable, Ways, configured_with};
use crate::config::{Config, ConfigError};
use crate::store::{Store, StoreError};

/// What recognises users at the moment, and the logins with the page.
pub(crate) struct RunningWays {
    authenticator: Arc<Replaceable>,
    logins: Arc<Logins>,
    keys: Mutex<Vec<Arc<KeySource>>>,
}

impl RunningWays {
    /// The logins are opened even if nobody can log in yet: a reload may add a provider.
    pub(crate) async fn open(
        ways: Ways,
        config: &Config,
        store: &Arc<dyn Store>,
    ) -> Result<Self, StoreError> {
        let logins = Logins::open(config, ways.with_page(), store.clone()).await?;
        let (logins, keys) = (Arc::new(logins), ways.keys.clone());
        Ok(Self {
            authenticator: Arc::new(Replaceable::new(ways.with_logins(&logins))),
            logins,
            keys: Mutex::new(keys),
        })
    }

    pub(crate) fn authenticator(&self) -> Arc<dyn Authenticator> {
        self.authenticator.clone()
    }

    pub(crate) fn logins(&self) -> &Arc<Logins> {
        &self.logins
    }

    /// The ways of another configuration.
    pub(crate) fn others(&self, config: &Config) -> Result<Ways, ConfigError> {
        // Poisoning is ignored: the list is only replaced.
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        configured_with(config, &keys)
    }

    /// From here on these count.
    pub(crate) fn replace(&self, ways: Ways, config: &Config) {
        self.keys
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone_from(&ways.keys);
        self.logins.set(config, ways.with_page());
        self.authenticator.replace(ways.with_logins(&self.logins));
    }
}
