//! An ADK server that is spoken with: it remembers, so it is told only what is new, and its session has one writer.
//!
//! A run and a live connection are never there at once: whoever comes second waits until the first is gone. Decisions,
//! and results of calls that the connection does not know, go by a run.

use adk_bridge_agents::adk_server::AdkServer;
use adk_bridge_agents::agent::{Agent, AgentError, News};
use adk_bridge_agents::live::{ConnectError, LiveConnection, LiveInput as Sent, NO_CODE};
use adk_bridge_protocol::event::Content;
use adk_bridge_protocol::history;
use adk_bridge_protocol::outbox::Ask;
use serde_json::Value;

use super::{Line, Turn, Upstream};
use crate::chat::perform::on_its_own;
use crate::chat::run::Run;
use crate::chat::task::Task;

/// What the reply has asked and nothing has been said about.
pub(super) struct Asked {
    ask: Ask,
    /// Whether the server has been told.
    told: bool,
}

impl Upstream {
    /// Lets somebody else use the session.
    pub(in crate::chat) fn make_way(&mut self) {
        self.turn = Turn::Rest;
        self.asked = None;
        self.hang_up();
    }

    /// What is still being closed: the session is free only after it.
    pub(in crate::chat) fn take_closing(&mut self) -> Option<tokio::task::JoinHandle<()>> {
        self.closing.take()
    }

    /// Whether this can be said by the connection at all.
    pub(super) fn can_tell(&self, ask: &Ask) -> bool {
        match (ask, &self.line) {
            (Ask::History, _) => true,
            (Ask::Responses(responses), Line::Open(connection)) => connection.knows_all(responses),
            (Ask::Responses(_), _) => false,
        }
    }
}

impl Task {
    /// Opens a connection in the session of the chat, as soon as no run is under way there.
    pub(super) async fn open_remote(&mut self, server: &AdkServer) {
        if self.run.is_active() {
            self.upstream.line = Line::Queued;
            return;
        }
        let untold = self.upstream.asked.as_ref().is_some_and(|it| !it.told);
        let before = self.history.last().filter(|_| untold);
        let before = before.map(|last| last.id.clone());
        let request = self
            .session_request(News::Message(Value::Null), before)
            .await;
        let (server, modality) = (server.clone(), self.upstream.modality);
        let closing = self.upstream.take_closing();
        let opening = Box::pin(on_its_own(async move {
            if let Some(closing) = closing {
                let _ = closing.await;
            }
            let request = request.map_err(|error| ConnectError { error, code: None })?;
            let connection = server.live(request, modality).await?;
            Ok(LiveConnection::Adk(connection))
        }));
        let told = self.upstream.told;
        self.upstream.line = Line::Opening {
            opening,
            sure: told,
            told,
            asks: untold,
        };
    }

    /// Opens a connection that had to wait for a run.
    pub(in crate::chat) async fn take_turn_with_runs(&mut self) {
        if matches!(self.upstream.line, Line::Queued) && !self.run.is_active() {
            self.upstream.line = Line::Closed;
            self.open_upstream(None).await;
        }
    }

    /// Asks the server that listens.
    pub(super) async fn ask_remote(&mut self, ask: &Ask, by_ear: bool) {
        self.upstream.asked = Some(Asked {
            ask: ask.clone(),
            told: by_ear,
        });
        if by_ear {
            // The session was opened before there was a chat to keep it in.
            return self.keep_session().await;
        }
        if matches!(self.upstream.line, Line::Open(_)) {
            self.tell_remote().await;
        }
    }

    /// A connection stands: what was asked before is asked again, unless the server answers it by itself.
    pub(super) async fn remote_opened(&mut self) {
        let Line::Open(connection) = &mut self.upstream.line else {
            return;
        };
        let LiveConnection::Adk(connection) = &mut **connection else {
            return;
        };
        self.upstream.replays = connection.answers_history();
        if !self.upstream.turn.is_unanswered() {
            return;
        }
        let told = self.upstream.asked.as_ref().is_some_and(|it| it.told);
        if told && connection.answers_history() {
            return connection.expect_answer();
        }
        self.tell_remote().await;
    }

    /// The connection is lost. Says whether its turn goes on with the next one.
    pub(super) async fn remote_lost(&mut self, server: &AdkServer) -> bool {
        match self.upstream.asked.take() {
            // The next connection would not know the calls; a run does.
            Some(Asked {
                ask: ask @ Ask::Responses(_),
                ..
            }) => {
                self.upstream.make_way();
                self.run = Run::Starting(self.ask_server(server, &ask).await);
                false
            }
            asked => {
                self.upstream.asked = asked;
                true
            }
        }
    }

    async fn tell_remote(&mut self) {
        let Some(asked) = &mut self.upstream.asked else {
            return;
        };
        asked.told = true;
        let ask = asked.ask.clone();
        let last = self.last_message().await;
        let Line::Open(connection) = &mut self.upstream.line else {
            return;
        };
        let sent = match &ask {
            Ask::Responses(responses) => connection.send(Sent::Responses(responses)).await,
            Ask::History => {
                let parts = last.iter().flat_map(history::user_parts);
                let parts: Vec<_> = parts.collect();
                if parts.is_empty() {
                    self.upstream.make_way();
                    return self.run_failed(unheard_of()).await;
                }
                let turns = [Content::new("user", parts)];
                let input = Sent::Contents {
                    turns: &turns,
                    answer: true,
                };
                connection.send(input).await
            }
        };
        if let Err(error) = sent {
            if let Some(asked) = &mut self.upstream.asked {
                asked.told = false;
            }
            self.upstream_lost(NO_CODE, &error.detail).await;
        }
    }

    /// The ADK server, if one is spoken with.
    pub(super) fn spoken_server(&self) -> Option<AdkServer> {
        match (&self.shared.agent, &self.shared.voice) {
            (Agent::Adk(server), Some(_)) => Some(server.clone()),
            _ => None,
        }
    }
}

fn unheard_of() -> AgentError {
    AgentError {
        message: "the connection to the agent was lost before it understood; say it again".into(),
        detail: "nothing was transcribed before the live connection was lost".into(),
    }
}
