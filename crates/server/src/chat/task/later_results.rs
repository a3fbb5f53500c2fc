//! How a chat goes on with the result of a long-running tool of an ADK agent that comes after its turn.

use adk_bridge_protocol::approval::{Refusal, input_hash};
use adk_bridge_protocol::calls::{Call, Outcome};
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::id::{CallId, MessageId};
use adk_bridge_protocol::message::{Message, Part};
use adk_bridge_protocol::outbox::{Audit, AuditKind};
use adk_bridge_protocol::reply::{Audience, Input, LaterResult, Reply, later_results};
use tokio::sync::oneshot;

use super::{Task, new_id};
use crate::admission::TurnStart;
use crate::chat::command::Command;
use crate::chat::error::ChatError;
use crate::chat::live::RequestOrigin;
use crate::chat::loaded::json_bytes;
use crate::store::{Cut, Opening};

/// How an answer ends if the agent may not have got the result, which may then be handed in again.
const ENDED_EARLY: [&str; 2] = ["failed", "interrupted"];

impl Task {
    /// Takes the output of a call: of a client tool that waits for it, or of a long-running tool that finishes later.
    pub(super) async fn take_output(
        &mut self,
        call_id: CallId,
        outcome: Box<Outcome>,
        answer: oneshot::Sender<Result<(), ChatError>>,
    ) {
        let call = match self.call_that_finishes_later(&call_id).await {
            Ok(Some(call)) => call,
            Ok(None) => return drop(answer.send(self.tool_output(&call_id, *outcome).await)),
            Err(error) => return drop(answer.send(Err(error))),
        };
        if self.is_busy() {
            // One thing at a time: the agent's session has one run.
            let command = Command::ToolOutput {
                call_id,
                outcome,
                answer,
            };
            if let Some(Command::ToolOutput { answer, .. }) = self.waiting.defer(command) {
                let most = super::requests::MAX_QUEUED;
                let _ = answer.send(Err(ChatError::QueueFull { most }));
            }
            return;
        }
        let _ = answer.send(self.go_on_with(&call, *outcome).await);
    }

    /// The call, if its agent's tool has returned something and may finish later.
    async fn call_that_finishes_later(&mut self, id: &CallId) -> Result<Option<Call>, ChatError> {
        let replies = self.engine.reply().into_iter().chain(self.waiting.iter());
        let mut calls = replies.filter_map(|reply| reply.calls().by_id(id));
        if let Some(call) = calls.next() {
            return Ok(Some(call.clone()).filter(Call::may_finish_later));
        }
        let has = |message: &&Message| {
            let mut tools = message.parts.iter().filter_map(Part::as_tool);
            tools.any(|tool| tool.call_id == *id)
        };
        let Some(message) = self.conversation.messages().iter().rev().find(has) else {
            return Ok(None);
        };
        let (store, chat) = (&self.context.store, self.context.chat());
        let record = store.reply(chat, &message.id).await?;
        let call = record.and_then(|record| record.calls.by_id(id).cloned());
        Ok(call.filter(Call::may_finish_later))
    }

    /// Begins a reply with the result.
    async fn go_on_with(&mut self, call: &Call, outcome: Outcome) -> Result<(), ChatError> {
        let bytes = json_bytes(&call.input)
            + match &outcome {
                Outcome::Output { value, .. } => json_bytes(value),
                Outcome::Error { text } => text.len(),
            };
        let Some(result) = LaterResult::of(call, outcome) else {
            return Err(ChatError::OutputRefused);
        };
        if self.has_result_of(&call.id) {
            let refused = Audit {
                kind: AuditKind::AnswerRefused,
                call_id: Some(call.id.clone()),
                tool: Some(call.name.clone()),
                approval_id: None,
                reason: Some(Refusal::AlreadySettled.to_string()),
                input_hash: Some(input_hash(&call.input)),
            };
            self.engine.append_audit(&[refused]).await?;
            return Err(ChatError::ResultTaken);
        }
        let own = self.context.served().id().to_owned();
        self.choose_agent(Some(&own)).await?;
        self.admit_bytes(bytes)?;
        self.admit(TurnStart::Answer)?;
        // What waits for its user goes on waiting.
        if self.engine.is_unfinished() && !self.set_aside() {
            return Err(ChatError::StillAnswering);
        }
        if let Some(voice) = &mut self.voice {
            voice.note_written();
        }
        self.runs.forget_marks();
        let origin = RequestOrigin {
            mode: Audience::Unattended,
            ..RequestOrigin::HTTP
        };
        self.engine.turn().name(origin, Dialect::Native);
        let message_id = MessageId::from(new_id("msg"));
        let opening = Opening {
            messages: &[],
            cut: Cut::Nothing,
            heard: false,
            agent: Some(&own),
        };
        let input = Input::BeginWithResult(&result, Audience::Unattended);
        let before = self.engine.begin(&message_id, input, opening).await?;
        self.note_begun(bytes, false);
        let before = before.map(Reply::into_message);
        self.conversation
            .begin_reply(&message_id, before, None, Vec::new(), false);
        self.show_live_client().await;
        Ok(())
    }

    /// Whether the result of a call has come before, and its agent could go on with it.
    fn has_result_of(&self, id: &CallId) -> bool {
        let shows = |message: &Message| {
            let ended = message.metadata.as_ref();
            let ended = ended.and_then(|metadata| metadata.get("ended"));
            let ended = ended.as_ref().and_then(|ended| ended.as_str());
            let in_vain = ended.is_some_and(|ended| ENDED_EARLY.contains(&&*ended));
            !in_vain && later_results(message).any(|shown| shown == *id)
        };
        let current = self.engine.message();
        let mut messages = self.conversation.messages().iter().chain(current);
        messages.any(shows)
    }

    /// Makes the live client a reader of the reply that has begun without a request.
    async fn show_live_client(&mut self) {
        let Some(client) = self.live.attached() else {
            return;
        };
        let reader = self.engine.reader(client.options(), None).await;
        if let Some(stream) = self.engine.attach_to_begun(reader) {
            self.live.begin_turn(stream, self.engine.message_id());
        }
    }
}
