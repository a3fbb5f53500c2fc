//! What handlers can ask for: each takes the parts that it needs as `State`.

use std::sync::Arc;

use axum::extract::FromRef;

use super::access::Access;
use super::body::Intake;
use super::handshake::Upgrades;
use crate::auth::Authenticator;
use crate::budget::Budget;
use crate::chat::Chats;
use crate::config::Config;
use crate::sockets::Sockets;

/// The parts of the server.
#[derive(Clone, FromRef)]
pub struct App {
    config: Arc<Config>,
    chats: Chats,
    sockets: Arc<Sockets>,
    access: Access,
    intake: Intake,
    upgrades: Upgrades,
    /// Counts the bytes of unread answers.
    unread: Arc<Budget>,
}

impl App {
    pub fn new(
        config: Arc<Config>,
        chats: Chats,
        sockets: Arc<Sockets>,
        authenticator: Arc<dyn Authenticator>,
    ) -> Self {
        let access = Access::new(&config, authenticator);
        let intake = Intake::new(&config);
        Self {
            upgrades: Upgrades::new(&config, access.clone(), sockets.clone(), intake.clone()),
            unread: chats.shared().unread.clone(),
            config,
            chats,
            sockets,
            access,
            intake,
        }
    }

    pub fn config(&self) -> &Config {
        &self.config
    }

    pub fn chats(&self) -> &Chats {
        &self.chats
    }

    pub fn sockets(&self) -> &Arc<Sockets> {
        &self.sockets
    }

    pub fn allowed_origins(&self) -> &[String] {
        &self.config.server.allowed_origins
    }
}
