//! How a chat takes what a user grants to its agent, and sends it.

use std::borrow::Cow;

use adk_bridge_protocol::calls::{Call, CallState, Settlement};
use adk_bridge_protocol::event::REQUEST_CREDENTIAL;
use adk_bridge_protocol::id::CallId;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::outbox::{Ask, Response};
use adk_bridge_protocol::reply::{Answer as ClientAnswer, Input, Reply};

use super::Task;
use crate::chat::command::CredentialDecision;
use crate::chat::error::ChatError;
use crate::chat::now;

/// What an agent gets if its credentials were granted and are lost: it asks again.
const LOST: &str = "the credentials were lost";

/// Whether credentials are among the answers for an agent.
pub(super) fn are_in(question: &Ask) -> bool {
    match question {
        Ask::Responses(responses) => responses.iter().any(|it| it.name == REQUEST_CREDENTIAL),
        Ask::History => false,
    }
}

impl Task {
    /// Takes what a user has decided. What was granted is stored before the reply knows of it.
    pub(super) async fn credential(
        &mut self,
        call_id: &CallId,
        decision: CredentialDecision,
    ) -> Result<(), ChatError> {
        let call = self.engine.reply().map(Reply::calls);
        let call = call.and_then(|calls| calls.by_id(call_id));
        let call = call.filter(|call| call.asks_for_credentials());
        check_open(call.ok_or(ChatError::NoSuchCall)?)?;
        let answer = match &decision {
            CredentialDecision::Granted(answer) => {
                let (credentials, chat) = (&self.context.credentials, self.context.chat());
                let known = credentials.answer(chat, call_id, answer.clone()).await;
                let known = known.inspect_err(|error| self.context.note_refused_write(error))?;
                if !known {
                    return Err(ChatError::QuestionLost);
                }
                ClientAnswer::Granted { call_id }
            }
            CredentialDecision::Refused(error) => ClientAnswer::Failure { call_id, error },
        };
        let refusals = self.feed(Input::Answers(&[answer], None)).await;
        self.context.still_owned()?;
        if self.engine.is_abandoned() {
            return Err(ChatError::TaskEnded);
        }
        match refusals.is_empty() {
            true => Ok(()),
            false => Err(ChatError::QuestionAnswered),
        }
    }

    /// What the agent is asked, with the credentials that users have granted.
    pub(super) async fn with_credentials<'q>(&mut self, question: &'q Ask) -> Cow<'q, Ask> {
        let (Ask::Responses(responses), true) = (question, are_in(question)) else {
            return Cow::Borrowed(question);
        };
        let mut filled = Vec::with_capacity(responses.len());
        for response in responses {
            filled.push(match response.name == REQUEST_CREDENTIAL {
                true => Response {
                    response: self.granted(&response.id).await,
                    ..response.clone()
                },
                false => response.clone(),
            });
        }
        Cow::Owned(Ask::Responses(filled))
    }

    /// What was granted under the agent's own id of a question.
    async fn granted(&mut self, model_id: &str) -> Json {
        let calls = self.engine.reply().map(Reply::calls);
        let mut calls = calls.into_iter().flat_map(|calls| calls.iter());
        let call = calls.find(|call| call.model_id.as_deref() == Some(model_id));
        let (credentials, chat) = (&self.context.credentials, self.context.chat());
        let granted = match call {
            Some(call) => credentials.take_answer(chat, &call.id).await,
            None => Ok(None),
        };
        match granted {
            Ok(Some(granted)) => return granted,
            Ok(None) => {
                tracing::warn!(chat = chat.id.as_str(), "{LOST}");
            }
            Err(error) => {
                self.context.note_refused_write(&error);
                tracing::warn!(chat = chat.id.as_str(), %error, "{LOST}");
            }
        }
        Json::object([("error", LOST.into())])
    }

    /// Notes which questions of the loaded replies are open. `interrupted`: the process ended while one of them was being
    /// written, so that the store may keep what belongs to none.
    pub(super) async fn note_open_credentials(&mut self, interrupted: bool) {
        let replies = self.engine.reply().into_iter().chain(self.waiting.iter());
        let unfinished = replies.filter(|reply| reply.ended().is_none());
        let calls = unfinished.flat_map(|reply| reply.calls().iter());
        let is_needed = |call: &&Call| {
            call.asks_for_credentials()
                && (call.is_open() || !call.reported && call.settled() == Some(Settlement::Output))
        };
        let open: Vec<CallId> = calls
            .filter(is_needed)
            .map(|call| call.id.clone())
            .collect();
        if interrupted || !open.is_empty() {
            let (credentials, chat) = (&self.context.credentials, self.context.chat());
            if let Err(error) = credentials.forget_others(chat, &open).await {
                self.context.note_refused_write(&error);
                tracing::warn!(chat = chat.id.as_str(), %error, "old credentials of chat {} cannot be deleted", chat.id);
            }
        }
        self.engine.note_credentials(open);
    }
}

/// Whether a question can still be answered, or why not.
fn check_open(call: &Call) -> Result<(), ChatError> {
    match call.state {
        CallState::AwaitingClient { expires } if expires > now() => Ok(()),
        CallState::AwaitingClient { .. }
        | CallState::Settled {
            how: Settlement::Expired,
        } => Err(ChatError::QuestionExpired),
        CallState::Settled {
            how: Settlement::Superseded,
        } => Err(ChatError::QuestionSuperseded),
        _ => Err(ChatError::QuestionAnswered),
    }
}
