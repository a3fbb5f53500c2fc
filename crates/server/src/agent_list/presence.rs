//! Whether the app of an agent is there: the ADK server of one app that the configuration names is looked at while the bridge
//! runs, so that health checks need not wait for it.

use std::sync::PoisonError;
use std::time::Duration;

use adk_bridge_agents::error::{AgentError, AgentErrorKind, shortened};
use tokio::time::{sleep, timeout};

use super::ServedAgent;
use super::apps::{LOOK_TIME, MAX_NAMED, REFRESH, RETRY};

/// What the last look at the server of an app has shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Presence {
    /// The app is listed, or the server does not say which apps it has.
    #[default]
    There,
    /// The server cannot be reached.
    Away,
    /// The server lists other apps.
    Missing,
}

impl ServedAgent {
    /// Whether its server can be looked at: the bridge has no token of its own where users bring theirs.
    pub(super) fn is_watched(&self) -> bool {
        self.agent.adk_server().is_some() && self.agent.user_tokens().is_none()
    }

    /// Looks at its server again and again. Never ends.
    pub(crate) async fn watch(&self) {
        loop {
            sleep(self.next_look()).await;
            self.look().await;
        }
    }

    pub(super) fn presence(&self) -> Presence {
        *self.lock_presence()
    }

    /// Looks at its server once.
    pub(super) async fn look(&self) {
        let Some(server) = self.agent.adk_server() else {
            return;
        };
        let listed = timeout(LOOK_TIME, server.list_apps()).await;
        let before = self.presence();
        let now = match &listed {
            Ok(Ok(apps)) if apps.iter().any(|app| app == server.app()) => Presence::There,
            Ok(Ok(_)) => Presence::Missing,
            Ok(Err(error)) if error.kind() == AgentErrorKind::Unreachable => Presence::Away,
            Err(_) => Presence::Away,
            // Some servers do not list their apps. One that did says nothing new.
            Ok(Err(_)) if before == Presence::Missing => Presence::Missing,
            Ok(Err(_)) => Presence::There,
        };
        if std::mem::replace(&mut *self.lock_presence(), now) == now {
            return;
        }
        let (id, app, url) = (self.id(), server.app(), server.url());
        match now {
            Presence::There => {
                tracing::info!(agent = id, "the ADK server of the agent {id} is there");
            }
            Presence::Away => {
                let error = listed.ok().and_then(Result::err);
                let detail = error
                    .as_ref()
                    .map_or("no answer in time", AgentError::detail);
                tracing::warn!(
                    agent = id,
                    detail,
                    "the ADK server of the agent {id} at {url} cannot be reached; it is asked again"
                );
            }
            Presence::Missing => {
                let apps = named(listed.ok().and_then(Result::ok).unwrap_or_default());
                tracing::warn!(
                    agent = id,
                    "the agent {id} cannot answer: the ADK server at {url} has no app {app:?}, {apps}; it is asked again"
                );
            }
        }
    }

    /// One that cannot answer is looked at more often, since its server may be starting.
    fn next_look(&self) -> Duration {
        match self.presence() {
            Presence::There => REFRESH,
            Presence::Away | Presence::Missing => RETRY,
        }
    }

    /// Poisoning is ignored: the value is only replaced.
    fn lock_presence(&self) -> std::sync::MutexGuard<'_, Presence> {
        self.presence.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The apps of a list, as people read them.
fn named(apps: Vec<String>) -> String {
    let more = apps.len().saturating_sub(MAX_NAMED);
    let apps = apps.iter().take(MAX_NAMED);
    let mut names: Vec<String> = apps.map(|app| format!("{:?}", shortened(app))).collect();
    if more > 0 {
        names.push(format!("{more} more"));
    }
    match names.is_empty() {
        true => "nor any other".to_owned(),
        false => format!("only {}", names.join(", ")),
    }
}
