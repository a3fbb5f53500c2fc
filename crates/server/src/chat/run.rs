//! The agent's run, and what it brings.

use adk_bridge_agents::agent::{AgentError, AgentRun, Starting};
use adk_bridge_protocol::reply::{Given, Input, RunEnd};
use bytes::Bytes;
use uuid::Uuid;

use super::now;
use super::task::Task;
use crate::failpoint::failpoint;

pub(super) enum Run {
    Idle,
    Starting(Starting),
    Reading(Box<AgentRun>),
}

/// What a run has come to.
pub(super) enum Progress {
    Started(Box<AgentRun>),
    Piece(Bytes),
    Over,
    Failed(AgentError),
}

impl Task {
    pub(super) async fn progress(&mut self, progress: Progress) {
        match progress {
            Progress::Started(run) => self.run = Run::Reading(run),
            Progress::Piece(piece) => self.piece(&piece).await,
            Progress::Over => self.over().await,
            Progress::Failed(error) => self.run_failed(error).await,
        }
    }

    /// Feeds everything that one read brought, then sends it in one write.
    pub(super) async fn piece(&mut self, piece: &[u8]) {
        let (Run::Reading(run), Some(reply)) = (&mut self.run, &mut self.reply) else {
            return;
        };
        self.readers.make_ready(reply);
        self.outbox.clear();
        let (outbox, ids, tools) = (&mut self.outbox, &mut self.ids, &*self.shared.tools);
        let read = run.events(piece, &mut |event| {
            let mut given = Given {
                now: now(),
                ids,
                rules: tools,
            };
            reply.handle(Input::Event(event), &mut given, outbox);
        });
        let said = run.take_said();
        if !said.is_empty() {
            self.remember(said).await;
        }
        self.perform().await;
        self.note_first_chunk();
        failpoint("in", "model");
        match read {
            Ok(()) => self.checkpoint().await,
            Err(error) => self.run_failed(error).await,
        }
    }

    pub(super) async fn over(&mut self) {
        let Run::Reading(mut run) = std::mem::replace(&mut self.run, Run::Idle) else {
            return;
        };
        let Some(reply) = &mut self.reply else {
            return;
        };
        self.readers.make_ready(reply);
        self.outbox.clear();
        let (outbox, ids, tools) = (&mut self.outbox, &mut self.ids, &*self.shared.tools);
        let finished = run.finish(&mut |event| {
            let mut given = Given {
                now: now(),
                ids,
                rules: tools,
            };
            reply.handle(Input::Event(event), &mut given, outbox);
        });
        let said = run.take_said();
        if !said.is_empty() {
            self.remember(said).await;
        }
        self.perform().await;
        match finished {
            Ok(()) => self.feed(Input::RunEnded(RunEnd::Done)).await,
            Err(error) => self.run_failed(error).await,
        }
    }

    pub(super) async fn run_failed(&mut self, error: AgentError) {
        self.run = Run::Idle;
        self.shared.metrics.agent_failed();
        let id = Uuid::new_v4().simple().to_string();
        let id = &id[..8];
        tracing::warn!(chat = %self.chat_id, error = id, detail = %error.detail, "the agent of chat {} failed (error {id})", self.chat_id);
        let message = format!("{} (error {id})", error.message);
        self.feed(Input::RunEnded(RunEnd::Failed(message))).await;
    }
}

impl Run {
    pub(super) fn is_active(&self) -> bool {
        !matches!(self, Self::Idle)
    }

    /// The next thing that a run brings. May be dropped and called again.
    pub(super) async fn progress(&mut self) -> Progress {
        match self {
            Self::Idle => std::future::pending().await,
            Self::Starting(starting) => match starting.await {
                Ok(run) => Progress::Started(Box::new(run)),
                Err(error) => Progress::Failed(error),
            },
            Self::Reading(run) => match run.read().await {
                Ok(Some(piece)) => Progress::Piece(piece),
                Ok(None) => Progress::Over,
                Err(error) => Progress::Failed(error),
            },
        }
    }
}
