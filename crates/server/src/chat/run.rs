//! The agent's run, and what it brings.

use std::time::Duration;

use adk_bridge_agents::agent::{AgentError, AgentRun, EventSink, Starting};
use adk_bridge_protocol::reply::{Given, Input, RunEnd};
use bytes::Bytes;
use tokio::time::Instant;
use uuid::Uuid;

use super::now;
use super::task::Task;
use crate::failpoint::failpoint;

/// How much of an agent's answer is sent in one write. A write costs as much as the rest of the way of a delta; larger
/// ones gain nothing, and a reader that stops would have more of them in its queue.
const MAX_JOINED: usize = 64 * 1024;
/// An agent whose pieces follow each other faster than this has more of them ready; looking for them when a model speaks
/// at its own pace would be for nothing.
const HURRY: Duration = Duration::from_millis(1);

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
            Progress::Piece(piece) => self.pieces(piece).await,
            Progress::Over => self.over().await,
            Progress::Failed(error) => self.run_failed(error).await,
        }
    }

    /// Feeds what the agent's socket has brought, and sends it in one write.
    async fn pieces(&mut self, first: Bytes) {
        if let Some(reply) = &self.reply {
            self.readers.make_ready(reply);
        }
        let hurried = self.read_at.replace(Instant::now());
        let hurried = hurried.is_some_and(|before| before.elapsed() < HURRY);
        let (mut piece, mut joined) = (first, 0);
        let after = loop {
            let read = self.translate(|run, sink| run.events(&piece, sink)).await;
            self.perform_unsent().await;
            self.note_first_chunk();
            failpoint("in", "model");
            if let Err(error) = read {
                break Some(Progress::Failed(error));
            }
            joined += piece.len();
            if !hurried || joined >= MAX_JOINED {
                break None;
            }
            match self.run.at_hand().await {
                Some(Progress::Piece(next)) => piece = next,
                other => break other,
            }
        };
        self.send();
        match after {
            None | Some(Progress::Started(_) | Progress::Piece(_)) => self.checkpoint().await,
            Some(Progress::Over) => self.over().await,
            Some(Progress::Failed(error)) => self.run_failed(error).await,
        }
    }

    async fn over(&mut self) {
        if let Some(reply) = &self.reply {
            self.readers.make_ready(reply);
        }
        let finished = self.translate(AgentRun::finish).await;
        self.run = Run::Idle;
        self.perform_unsent().await;
        match finished {
            Ok(()) => self.feed(Input::RunEnded(RunEnd::Done)).await,
            Err(error) => self.run_failed(error).await,
        }
    }

    /// Takes events out of the run and feeds them to the reply, until there are no more or they cannot be read.
    async fn translate(
        &mut self,
        read: impl FnOnce(&mut AgentRun, EventSink<'_>) -> Result<(), AgentError>,
    ) -> Result<(), AgentError> {
        self.outbox.clear();
        let (Run::Reading(run), Some(reply)) = (&mut self.run, &mut self.reply) else {
            return Ok(());
        };
        let (outbox, ids, rules) = (&mut self.outbox, &mut self.ids, &*self.shared.tools);
        let now = now();
        let read = read(run, &mut |event| {
            let mut given = Given { now, ids, rules };
            reply.handle(Input::Event(event), &mut given, outbox);
        });
        let said = run.take_said();
        if !said.is_empty() {
            self.remember(said).await;
        }
        read
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
    /// What the run brings without waiting for the network. May be dropped and called again.
    async fn at_hand(&mut self) -> Option<Progress> {
        if !matches!(self, Self::Reading(_)) {
            return None;
        }
        tokio::select! {
            biased;
            progress = self.progress() => Some(progress),
            // The connection is a task of its own: it gets the time to hand over what it has.
            () = tokio::task::yield_now() => None,
        }
    }

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
