//! How a turn is held and ended, and how a reply is closed.

use std::time::Duration;

use super::settle::{
    NO_OUTPUT_BEFORE, NO_OUTPUT_BEFORE_STOP, NOT_ANSWERED, NOT_REPORTED, RUN_OVER, STOPPED,
    UNFINISHED,
};
use super::{Answer, Audience, Context, EndReason, Phase, Reply};
use crate::approval::Approval;
use crate::calls::{Call, CallState, RunsOn, Settlement};
use crate::chunk::{Chunk, FinishReason};
use crate::json_text::Json;
use crate::outbox::{AuditKind, Effect, Outbox};

/// How long a turn is held the first time for the output of a client tool. The output of a quick tool arrives within
/// it; a client without output posts again when the turn ends. A post that brings nothing new is held for the same
/// time.
pub const FIRST_HOLD: Duration = Duration::from_millis(250);
/// The longest hold; each repeat doubles it up to here, which bounds the number of requests.
pub const LONGEST_HOLD: Duration = Duration::from_secs(5);

/// How long a turn is held after this many holds in a row without anything new.
pub fn hold_after(repeats: u32) -> Duration {
    FIRST_HOLD
        .saturating_mul(1 << repeats.min(16))
        .min(LONGEST_HOLD)
}

impl Reply {
    /// Ends the turn, since every open call waits for the client. Holds it instead if the output of an approved client
    /// tool is on its way, or if the client posted nothing new and would post again at once.
    pub(super) fn hold_or_end_turn(&mut self, context: &mut Context<'_>, out: &mut Outbox) {
        let held = self.is_held_for_client();
        let half_answered = self.is_half_answered();
        match &mut self.turn {
            Some(turn) if held => match turn.hold_until {
                None => {
                    let until = context.now + hold_after(self.holds);
                    self.holds = self.holds.saturating_add(1);
                    turn.hold_until = Some(until);
                }
                Some(until) if until <= context.now => self.end_waiting(out),
                Some(_) => {}
            },
            // The decision came in a separate frame, and so does the output.
            Some(turn)
                if matches!(turn.audience, Audience::Connection | Audience::Frame)
                    && half_answered => {}
            _ => self.end_waiting(out),
        }
    }

    /// Ends the hold, because the client has sent something or the reply goes on: what follows is new to the client.
    pub(super) fn end_holds(&mut self) {
        self.holds = 0;
        if let Some(turn) = &mut self.turn {
            turn.hold_until = None;
            turn.without_news = false;
        }
    }

    /// Whether the end of the turn is delayed because the client would only open the next one.
    fn is_held_for_client(&self) -> bool {
        self.turn.is_some_and(|turn| {
            turn.awaited && self.is_half_answered() || turn.without_news && self.calls.any_open()
        })
    }

    /// Whether the output of an approved client tool is missing.
    fn is_half_answered(&self) -> bool {
        self.calls.iter().any(Call::is_half_answered)
    }

    /// Ends a turn whose reply continues when the client has answered.
    pub(super) fn end_waiting(&mut self, out: &mut Outbox) {
        if self.turn.is_some() && self.ended().is_none() {
            self.durably(out, |reply, out| {
                reply.end_turn(&Chunk::finish(FinishReason::ToolCalls), out);
            });
        }
    }

    /// Ends a turn that was opened on an ended reply.
    pub(super) fn end_turn_after_close(&mut self, out: &mut Outbox) {
        if !self.is_running_tools() {
            self.seal(out);
        }
        if self.turn.is_some() {
            self.end_turn(&Chunk::finish(FinishReason::Stop), out);
        }
    }

    /// Ends the reply. Started tools continue and their outcomes are stored; nothing else happens after this.
    pub(super) fn close(&mut self, how: EndReason, failure: Option<String>, out: &mut Outbox) {
        if self.ended().is_some() {
            return;
        }
        let was_asking = self.run().is_some();
        self.phase = Phase::Ended(how);
        self.take_hold();
        self.durably(out, |reply, out| {
            if was_asking {
                out.want(Effect::CancelRun);
            }
            reply.settle_all(how, out);
            let reason = match how {
                EndReason::TooLong => FinishReason::Length,
                _ => reply.translator.finish_reason(),
            };
            if let Some(word) = how.word() {
                reply.translator.metadata.set("ended", word.into());
            }
            reply.seal(out);
            let terminal = match (how, &failure) {
                (EndReason::Failed, failure) => Chunk::error(
                    failure
                        .as_deref()
                        .unwrap_or("the agent failed without saying why"),
                ),
                (EndReason::Stopped | EndReason::Superseded | EndReason::Interrupted, _) => {
                    Chunk::Abort { reason: None }
                }
                (EndReason::Finished | EndReason::TooLong | EndReason::Cut, _) => {
                    Chunk::finish(reason)
                }
            };
            reply.end_turn(&terminal, out);
        });
    }

    /// Ends the reply for a newer message, after its last answers: approved calls run, denials are reported, and only
    /// the remaining calls are superseded.
    pub(super) fn supersede(
        &mut self,
        answers: &[Answer<'_>],
        context: &mut Context<'_>,
        out: &mut Outbox,
    ) {
        self.take_last_answers(answers, context, out);
        self.start_decided(context, out);
        // Answers of earlier requests count too: none of them may have been reported to a remote agent yet.
        if !self.is_remote(context) || self.has_acted_on_answers() {
            return self.close(EndReason::Superseded, None, out);
        }
        self.phase = Phase::Superseding { run: self.run() };
        self.continue_or_close(context, out);
    }

    /// Settles calls that still wait for the client. A remote agent acts on its questions only when all are answered,
    /// so the open ones count as not confirmed.
    pub(super) fn settle_waiting(&mut self, out: &mut Outbox) {
        if !self.calls.iter().any(Call::waits_for_client) {
            return;
        }
        self.durably(out, |reply, out| {
            for index in 0..reply.calls.len() {
                if reply.calls[index].waits_for_client() {
                    reply.settle_open(index, EndReason::Superseded, out);
                }
            }
        });
    }

    /// Settles every open call, except started server tools.
    fn settle_all(&mut self, how: EndReason, out: &mut Outbox) {
        for index in 0..self.calls.len() {
            self.settle_open(index, how, out);
        }
        self.announce_denials(out);
    }

    /// Settles an open call, unless it is a started server tool.
    fn settle_open(&mut self, index: usize, how: EndReason, out: &mut Outbox) {
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
        let verdict = call.approval.as_ref().and_then(Approval::verdict);
        match call.state {
            CallState::Running if call.runs_on == RunsOn::Server => {}
            CallState::Running if verdict == Some(false) => self.settle_denied(index, out),
            CallState::Running => self.settle_failed(index, Settlement::Unknown, RUN_OVER, out),
            CallState::Streaming | CallState::Received => {
                self.settle_failed(index, Settlement::Error, UNFINISHED, out);
            }
            CallState::Decided if verdict == Some(false) => self.settle_denied(index, out),
            CallState::AwaitingClient { .. } if call.is_asked_by_a_tool() => {
                self.cancel_question(index, how, out);
            }
            CallState::Asked | CallState::Decided | CallState::AwaitingClient { .. } => {
                let text = match how {
                    EndReason::Stopped if call.is_half_answered() => NO_OUTPUT_BEFORE_STOP,
                    EndReason::Stopped => STOPPED,
                    _ if call.is_half_answered() => NO_OUTPUT_BEFORE,
                    _ if call.state == CallState::Decided => NOT_REPORTED,
                    _ => NOT_ANSWERED,
                };
                self.settle_failed(index, Settlement::Superseded, text, out);
            }
            CallState::Settled { .. } => {}
        }
    }

    /// Adds an empty step after calls that end a reply: both stock predicates look at the last step, and would send the
    /// message again for its finished calls.
    pub(super) fn seal(&mut self, out: &mut Outbox) {
        self.translator.close(&mut self.draft, out);
        if self.draft.step_has_tools() {
            self.draft.emit(&Chunk::StartStep, out);
            self.draft.emit(&Chunk::FinishStep, out);
        }
    }

    fn end_turn(&mut self, terminal: &Chunk<'_>, out: &mut Outbox) {
        self.translator.close(&mut self.draft, out);
        let metadata = self.translator.metadata.value();
        // Clients show a step without parts only when another chunk of the message follows.
        let unseen = self.message().ends_with_a_step();
        if unseen || metadata.is_some() && metadata != self.sent_metadata {
            let metadata = metadata.unwrap_or_else(Json::empty);
            self.draft.emit(&Chunk::metadata(&metadata), out);
            self.sent_metadata = Some(metadata);
        }
        if self.turn.take().is_some() {
            self.draft.emit(terminal, out);
            out.want(Effect::End);
        }
    }

    /// Puts a commit of the reply, with the audit rows so far, in front of the effects since `mark`.
    pub(super) fn commit_at(&self, mark: usize, out: &mut Outbox) {
        out.commit_at(mark, self.record());
    }
}
