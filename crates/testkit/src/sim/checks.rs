//! The invariants that hold at every moment of a walk.

use adk_bridge_protocol::approval::{Approval, ApprovalState};
use adk_bridge_protocol::calls::{Call, CallState, RunsOn, Settlement};
use adk_bridge_protocol::chunk::Chunk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::CallId;
use adk_bridge_protocol::message::{Message, Part, ToolState};
use adk_bridge_protocol::reply::ToolAnswer;
use serde_json::Value;

use super::{Bridge, Stream, chunks, is_terminal, needs_approval, tool_part};

impl Bridge {
    /// Everything that a frame reports was stored before.
    pub(super) fn check_durable(&self, range: std::ops::Range<usize>) {
        let outbox = self.driver.outbox();
        for frame in outbox.frames(range) {
            let text = std::str::from_utf8(outbox.json(frame)).expect("frames are text");
            let chunk = Chunk::parse(text).expect("frames are chunks");
            let sent = match &chunk {
                Chunk::ToolApprovalRequest { tool_call_id, .. } => (tool_call_id, 3),
                Chunk::ToolOutputAvailable { tool_call_id, .. }
                | Chunk::ToolOutputError { tool_call_id, .. }
                | Chunk::ToolOutputDenied { tool_call_id } => (tool_call_id, 5),
                _ => continue,
            };
            let part = self
                .stored
                .as_ref()
                .and_then(|record| tool_part(&record.message, &sent.0.as_ref().into()))
                .unwrap_or_else(|| panic!("{chunk:?} is sent and not stored"));
            assert!(rank(&part.state) >= sent.1, "{chunk:?} sent before stored");
        }
    }

    pub(super) fn check_consent(&self, id: &CallId) {
        let call = self
            .driver
            .reply()
            .calls()
            .by_id(id)
            .expect("a call that exists");
        if call.name == "idempotent" {
            return;
        }
        assert_eq!(self.runs[id], 1, "{id} runs twice");
        let stored = self.stored.as_ref().expect("a run is journaled");
        let journaled = stored.calls.by_id(id).expect("a run is journaled");
        assert_eq!(journaled.state, CallState::Running);
        if let Some(approval) = &call.approval {
            assert!(
                self.consents.contains(&approval.id),
                "{id} runs without consent"
            );
        } else {
            assert!(!needs_approval(&call.name), "{id} runs unasked");
        }
    }

    /// A tool gets one answer to each question, after it was stored, and a yes only if the user gave it.
    pub(super) fn check_tool_answer(&mut self, question: &CallId, answer: &ToolAnswer) {
        assert!(
            self.questions.remove(question).is_some(),
            "{question} is answered twice, or to nobody"
        );
        let stored = self.stored.as_ref().map(|record| &record.calls);
        let settled = stored.and_then(|calls| calls.by_id(question)?.settled());
        let expected = match answer {
            ToolAnswer::Accepted(given) => {
                let from = Some(question.as_str().into());
                assert_eq!(given.get("from"), from, "nobody gave this answer");
                vec![Some(Settlement::Output)]
            }
            ToolAnswer::Declined => vec![Some(Settlement::Error)],
            // A question that nobody could be asked is not stored.
            ToolAnswer::Cancelled => {
                vec![
                    None,
                    Some(Settlement::Superseded),
                    Some(Settlement::Expired),
                ]
            }
        };
        assert!(expected.contains(&settled), "{answer:?} for {settled:?}");
    }

    pub(super) fn check_stream(&self, stream: &Stream) {
        let text = String::from_utf8_lossy(&stream.sse);
        let chunks: Vec<Chunk<'_>> = chunks(&stream.sse).collect();
        assert!(
            matches!(
                chunks.first(),
                Some(Chunk::Start {
                    message_id: Some(_),
                    ..
                })
            ),
            "{text}"
        );
        let terminals = chunks.iter().filter(|chunk| is_terminal(chunk)).count();
        assert_eq!(terminals, 1, "{text}");
        assert!(chunks.last().is_some_and(is_terminal), "{text}");
        let steps: i32 = chunks
            .iter()
            .map(|chunk| match chunk {
                Chunk::StartStep => 1,
                Chunk::FinishStep => -1,
                _ => 0,
            })
            .sum();
        // A client that was cut off in the middle of a step already has its beginning.
        let begun = stream.prior.is_some() && steps == -1;
        assert!(steps == 0 || begun, "a step is left open\n{text}");
        if self.dialect != Dialect::Native && stream.waiting {
            for chunk in &chunks {
                let early = match chunk {
                    Chunk::TextStart { .. } | Chunk::ReasoningStart { .. } | Chunk::File { .. } => {
                        true
                    }
                    // A question that is over without an answer says so; that does not apply to a call's output.
                    Chunk::ToolOutputAvailable { tool_call_id, .. }
                    | Chunk::ToolOutputDenied { tool_call_id } => self
                        .driver
                        .reply()
                        .calls()
                        .by_id(&tool_call_id.as_ref().into())
                        .is_some_and(|call| {
                            !self.is_left_to_client(call) && !is_over_unanswered(call)
                        }),
                    _ => false,
                };
                assert!(!early, "in an intermediate response: {chunk:?}\n{text}");
            }
        }
        for call in self.driver.reply().calls().iter() {
            assert!(
                call.state != CallState::Decided
                    || stream.waiting && call.runs_on == RunsOn::Remote,
                "an answered call stays open at the end of a turn: {call:?}"
            );
        }
        if self.driver.reply().ended().is_some() {
            for call in self.driver.reply().calls().iter() {
                assert!(
                    !call.is_open() || self.running.contains(&call.id),
                    "open in an ended reply: {call:?}"
                );
            }
        }
    }

    /// Whether the step of a call, as the message has it, asks no questions and has a client tool: the client sends only
    /// once it has all of its outputs. What was shown is not taken back if the run of another agent adds a question.
    fn is_left_to_client(&self, call: &Call) -> bool {
        let reply = self.driver.reply();
        let mut steps = reply
            .message()
            .parts
            .split(|part| matches!(part, Part::StepStart));
        let calls = |step: &[Part]| -> Vec<&Call> {
            let tools = step.iter().filter_map(|part| match part {
                Part::Tool(tool) => Some(&tool.call_id),
                _ => None,
            });
            tools.filter_map(|id| reply.calls().by_id(id)).collect()
        };
        let step = steps.find(|step| calls(step).iter().any(|other| other.id == call.id));
        let mut calls = calls(step.unwrap_or_default());
        calls.retain(|other| other.step <= call.step);
        calls.iter().all(|call| call.approval.is_none())
            && calls.iter().any(|call| call.runs_on == RunsOn::Client)
    }

    /// Checks that the stored message and an up-to-date native client agree.
    pub fn check_agreement(&self) {
        if self.dialect == Dialect::Native && !self.client.streaming && !self.client.failed {
            let theirs = without_answers(&self.client.message);
            let ours = without_answers(self.driver.reply().message());
            assert_eq!(theirs, ours);
        }
    }

    /// Checks that every decision counts, unless the reply was stopped: what was approved has run here, and a remote
    /// agent was sent every decision.
    pub fn check_decisions(&self) {
        for call in self.driver.reply().calls().iter() {
            let verdict = call.approval.as_ref().and_then(Approval::verdict);
            let counts = match (call.runs_on, verdict) {
                (_, None) | (RunsOn::Client | RunsOn::Server, Some(false)) => true,
                (RunsOn::Client, Some(true)) => self.is_shown_as_approved(&call.id),
                // A crash may have come between the journal entry and the start.
                (RunsOn::Server, Some(true)) => {
                    self.runs.contains_key(&call.id) || call.settled() == Some(Settlement::Unknown)
                }
                (RunsOn::Remote, Some(_)) => call.reported,
            };
            let may_be_lost = self.stopped && call.runs_on != RunsOn::Client;
            assert!(counts || may_be_lost, "a decision is lost: {call:#?}");
        }
    }

    /// Whether the message does not report the call as not approved or not run.
    fn is_shown_as_approved(&self, call_id: &CallId) -> bool {
        let part = tool_part(self.driver.reply().message(), call_id);
        let shown = part.and_then(|part| part.error_text.as_deref());
        !shown.is_some_and(|shown| shown.contains("not run"))
    }
}

fn rank(state: &ToolState) -> u8 {
    match state {
        ToolState::ApprovalRequested => 3,
        ToolState::ApprovalResponded => 4,
        ToolState::OutputAvailable | ToolState::OutputError | ToolState::OutputDenied => 5,
        _ => 1,
    }
}

/// A message without the client's answers, which only one side can know.
fn without_answers(message: &Message) -> Value {
    let mut message = message.clone();
    for part in &mut message.parts {
        if let Part::Tool(tool) = part {
            if let Some(field) = &mut tool.approval {
                field.approved = None;
                field.reason = None;
            }
            if tool.state == ToolState::ApprovalResponded {
                tool.state = ToolState::ApprovalRequested;
            }
            tool.raw_input = None;
        }
    }
    serde_json::to_value(&message).expect("a message is JSON")
}

/// Whether nobody answered its question in time, or before a newer message whose request a crash cut off.
fn is_over_unanswered(call: &Call) -> bool {
    let state = call.approval.as_ref().map(|approval| &approval.state);
    matches!(
        state,
        Some(ApprovalState::Expired | ApprovalState::Superseded)
    )
}
