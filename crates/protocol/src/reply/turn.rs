//! How a turn of a reply waits, ends and is closed.

use serde_json::json;

use super::settle::{NOT_ANSWERED, RUN_OVER, STOPPED, UNFINISHED};
use super::{Ended, Given, Mode, Reply};
use crate::approval::{Approval, Time};
use crate::calls::{Call, CallState, RunsOn, Settled};
use crate::chunk::{Chunk, FinishReason};
use crate::outbox::{AuditKind, Commit, Effect, Outbox};

/// How long a turn is held the first time for the output of a client tool: the output of a tool that answers at once
/// arrives within it, and a client that has none posts again when the turn ends.
pub const FIRST_HOLD: Time = 250;
/// The longest hold; each repeat doubles it up to here, which bounds the number of requests.
pub const LONGEST_HOLD: Time = 5_000;

impl Reply {
    /// Every open call waits for the client: the turn ends, unless an approved client tool's output is on its way, or the
    /// client has asked without having anything to say and would ask again at once.
    pub(super) fn wait(&mut self, given: &mut Given<'_>, out: &mut Outbox) {
        match self.turn {
            Some(Mode::Http) if self.is_held_for_client() => {
                if self.hold_until.is_none() {
                    let hold = FIRST_HOLD
                        .saturating_mul(1 << self.holds.min(16))
                        .min(LONGEST_HOLD);
                    self.holds += 1;
                    let until = given.now.saturating_add(hold);
                    self.hold_until = Some(until);
                    out.effects.push(Effect::HoldUntil(until));
                }
            }
            Some(Mode::Live) if self.is_half_answered() => {}
            _ => self.end_waiting(out),
        }
    }

    /// Whether a turn over HTTP is not to end yet, because the client would only open the next one.
    pub(super) fn is_held_for_client(&self) -> bool {
        self.is_half_answered() || self.without_news && self.calls.any_open()
    }

    /// Whether a client tool was approved whose output is missing.
    fn is_half_answered(&self) -> bool {
        self.calls.iter().any(Call::is_half_answered)
    }

    /// Ends a turn whose reply goes on when the client has answered.
    pub(super) fn end_waiting(&mut self, out: &mut Outbox) {
        if self.turn.is_some() && self.ended.is_none() {
            self.durably(out, |reply, out| {
                reply.end_turn(&Chunk::finish(FinishReason::ToolCalls), out);
            });
        }
    }

    /// Ends a turn that was opened on a reply which had ended before.
    pub(super) fn end_closed(&mut self, out: &mut Outbox) {
        if !self.is_running_tools() {
            self.seal(out);
        }
        if self.turn.is_some() {
            self.end_turn(&Chunk::finish(FinishReason::Stop), out);
        }
    }

    /// Ends the reply. Started tools run on and their outcome is stored; nothing else happens any more.
    pub(super) fn close(&mut self, how: Ended, failure: Option<String>, out: &mut Outbox) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(how);
        self.hold_until = None;
        self.durably(out, |reply, out| {
            if reply.run.take().is_some() {
                out.effects.push(Effect::CancelRun);
            }
            reply.settle_all(how, out);
            let reason = match how {
                Ended::TooLong => FinishReason::Length,
                _ => reply.translator.finish_reason(),
            };
            if let Some(word) = how.word() {
                reply.translator.metadata.set("ended", json!(word));
            }
            reply.seal(out);
            let terminal = match (how, &failure) {
                (Ended::Failed, failure) => Chunk::error(
                    failure
                        .as_deref()
                        .unwrap_or("the agent failed without saying why"),
                ),
                (Ended::Stopped | Ended::Superseded | Ended::Interrupted, _) => {
                    Chunk::Abort { reason: None }
                }
                (Ended::Finished | Ended::TooLong | Ended::Cut, _) => Chunk::finish(reason),
            };
            reply.end_turn(&terminal, out);
        });
    }

    /// Settles every call that nobody will settle any more, started server tools excepted.
    fn settle_all(&mut self, how: Ended, out: &mut Outbox) {
        for index in 0..self.calls.len() {
            let call = &mut self.calls[index];
            let superseded = call.approval.as_mut().is_some_and(Approval::supersede);
            if superseded {
                out.audit.push(self.audit(
                    AuditKind::ApprovalSuperseded,
                    &self.calls[index],
                    how.word(),
                ));
            }
            let call = &self.calls[index];
            match call.state {
                CallState::Running if call.runs_on == RunsOn::Server => {}
                CallState::Running => {
                    let denied = call.approval.as_ref().and_then(Approval::verdict) == Some(false);
                    if denied {
                        self.deny(index, out);
                    } else {
                        self.settle_failed(index, Settled::Unknown, RUN_OVER, out);
                    }
                }
                CallState::Streaming | CallState::Received => {
                    self.settle_failed(index, Settled::Error, UNFINISHED, out);
                }
                CallState::Asked | CallState::Decided | CallState::AwaitingClient { .. } => {
                    let text = match how {
                        Ended::Stopped => STOPPED,
                        _ => NOT_ANSWERED,
                    };
                    self.settle_failed(index, Settled::Superseded, text, out);
                }
                CallState::Settled { .. } => {}
            }
        }
        self.announce_denials(out);
    }

    /// Draws a line under the calls of a reply that ended without an answer after them: both stock predicates look at
    /// the last step, and would send the message again for its finished calls.
    pub(super) fn seal(&mut self, out: &mut Outbox) {
        self.translator.close(&mut self.draft, out);
        if self.draft.step_has_tools() {
            self.draft.emit(&Chunk::StartStep, out);
            self.draft.emit(&Chunk::FinishStep, out);
        }
    }

    fn end_turn(&mut self, terminal: &Chunk<'_>, out: &mut Outbox) {
        self.translator.close(&mut self.draft, out);
        self.hold_until = None;
        self.without_news = false;
        let metadata = self.translator.metadata.value();
        // Clients show a step without parts only when something else of the message comes.
        let unseen = self.message().ends_with_a_step();
        if unseen || metadata.is_some() && metadata != self.sent_metadata {
            let metadata = metadata.unwrap_or_else(|| json!({}));
            self.draft.emit(&metadata_chunk(&metadata), out);
            self.sent_metadata = Some(metadata);
        }
        if self.turn.take().is_some() {
            self.draft.emit(terminal, out);
            out.effects.push(Effect::End);
        }
    }

    /// Puts a commit of the reply as it is, with the audit rows so far, in front of what is wanted done since `mark`.
    pub(super) fn commit_at(&self, mark: usize, out: &mut Outbox) {
        let commit = Effect::Commit(Box::new(Commit {
            record: self.record(),
            audit: std::mem::take(&mut out.audit),
        }));
        out.effects.insert(mark, commit);
    }
}

impl Ended {
    /// The mark that a message carries whose answer did not come to its end.
    fn word(self) -> Option<&'static str> {
        match self {
            Self::Finished => None,
            Self::Failed => Some("failed"),
            Self::Stopped => Some("stopped"),
            Self::Superseded => Some("superseded"),
            Self::TooLong => Some("too-long"),
            Self::Interrupted | Self::Cut => Some("interrupted"),
        }
    }
}

/// Tells the readers what the message is accompanied by.
pub(crate) fn metadata_chunk(metadata: &serde_json::Value) -> Chunk<'_> {
    Chunk::MessageMetadata {
        message_metadata: std::borrow::Cow::Borrowed(metadata),
    }
}
