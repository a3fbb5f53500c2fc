//! What handlers can ask for: each takes the parts that it needs as `State`.

use std::sync::Arc;

use arc_swap::ArcSwap;
use axum::extract::FromRef;

use super::access::Access;
use super::body::Intake;
use super::handshake::Upgrades;
use crate::auth::{Authenticator, Logins};
use crate::budget::Budget;
use crate::chat::Chats;
use crate::config::Config;
use crate::forwarding::Forwarding;
use crate::sockets::Sockets;

/// The parts of the server, behind one pointer: every request clones it several times.
#[derive(Clone)]
pub struct App(Arc<Parts>);

struct Parts {
    /// Replaced when it is loaded again.
    config: ArcSwap<Config>,
    chats: Chats,
    sockets: Arc<Sockets>,
    access: Arc<Access>,
    /// Present where users log in with the page.
    logins: Option<Arc<Logins>>,
    intake: Intake,
    upgrades: Upgrades,
    /// Present in a cluster.
    forwarding: Option<Arc<Forwarding>>,
    /// Counts the bytes of unread answers.
    unread: Arc<Budget>,
}

impl App {
    pub fn new(
        config: Arc<Config>,
        chats: Chats,
        sockets: Arc<Sockets>,
        authenticator: Arc<dyn Authenticator>,
        logins: Option<Arc<Logins>>,
        forwarding: Option<Arc<Forwarding>>,
    ) -> Self {
        let (users, metrics) = (chats.shared().users.clone(), chats.shared().metrics.clone());
        let access = Access::new(&config, authenticator, users);
        let access = Arc::new(access.with_logins(logins.clone()).counted_by(metrics));
        let intake = Intake::new(&config);
        let upgrades = Upgrades::new(&config, access.clone(), sockets.clone(), intake.clone());
        let passing = forwarding.clone().map(|it| (it, chats.clone()));
        Self(Arc::new(Parts {
            upgrades: upgrades.passing(passing),
            forwarding,
            unread: chats.shared().capacity.unread.clone(),
            config: ArcSwap::new(config),
            chats,
            sockets,
            access,
            logins,
            intake,
        }))
    }

    pub fn config(&self) -> Arc<Config> {
        self.0.config.load_full()
    }

    pub(crate) fn set_config(&self, config: Config) {
        self.0.config.store(Arc::new(config));
    }

    pub fn chats(&self) -> &Chats {
        &self.0.chats
    }

    pub fn sockets(&self) -> &Arc<Sockets> {
        &self.0.sockets
    }

    pub fn access(&self) -> &Arc<Access> {
        &self.0.access
    }

    pub fn forwarding(&self) -> Option<&Arc<Forwarding>> {
        self.0.forwarding.as_ref()
    }

    pub(crate) fn intake(&self) -> &Intake {
        &self.0.intake
    }

    pub(crate) fn unread(&self) -> &Arc<Budget> {
        &self.0.unread
    }
}

/// Lets handlers take a part as `State`.
macro_rules! parts {
    ($($part:ident: $type:ty),* $(,)?) => {
        $(impl FromRef<App> for $type {
            fn from_ref(app: &App) -> Self {
                app.0.$part.clone()
            }
        })*
    };
}

impl FromRef<App> for Arc<Config> {
    fn from_ref(app: &App) -> Self {
        app.config()
    }
}

parts! {
    chats: Chats,
    sockets: Arc<Sockets>,
    access: Arc<Access>,
    logins: Option<Arc<Logins>>,
    intake: Intake,
    upgrades: Upgrades,
    forwarding: Option<Arc<Forwarding>>,
    unread: Arc<Budget>,
}
