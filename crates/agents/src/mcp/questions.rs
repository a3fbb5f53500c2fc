//! What a server asks the user and tells about its calls while they run, and whose call it is about.
//!
//! Over HTTP a server asks on the stream of the call. Over standard input and output nothing says which call a question
//! belongs to: if calls of several chats run at once, nobody is asked, since it might be somebody else.

use std::sync::{Arc, Mutex, PoisonError};

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::reply::{ToolAnswer, ToolProgress};
use futures_util::future::join_all;
use rmcp::model::{
    ElicitRequestParams, ElicitResult, ElicitationAction, InputRequest, InputRequests,
    InputResponses, NumberOrString, ProgressNotificationParam, RequestId,
};
use rmcp::service::{InboundStreamOrigin, RequestHandle, RoleClient};
use tokio::sync::watch;

use crate::error::shortened;
use crate::tool::{ToolCall, UserLink, UserQuestion};

/// The largest question, with the schema of its answer: a long form.
pub(super) const MAX_QUESTION_BYTES: usize = 64 * 1024;

/// The calls that a server works on.
#[derive(Default)]
pub(super) struct RunningCalls {
    calls: Mutex<Vec<RunningCall>>,
    /// Changes with the calls.
    changed: watch::Sender<u64>,
}

#[derive(Clone)]
struct RunningCall {
    key: u64,
    /// Under which ids the server knows it, once it has been sent.
    sent: Option<(RequestId, NumberOrString)>,
    /// What was reported before.
    early: Option<ProgressNotificationParam>,
    chat: (UserId, ChatId),
    link: Arc<dyn UserLink>,
}

/// A call that is running until this is dropped.
pub(super) struct Running {
    calls: Arc<RunningCalls>,
    key: u64,
}

impl RunningCalls {
    /// Adds a call that is about to be sent.
    pub(super) fn add(self: &Arc<Self>, call: &ToolCall) -> Running {
        let key = self.change(|calls, key| {
            calls.push(RunningCall {
                key,
                sent: None,
                early: None,
                chat: (call.user.clone(), call.chat_id.clone()),
                link: call.user_link.clone(),
            });
        });
        Running {
            calls: self.clone(),
            key,
        }
    }

    /// Asks the user whose call it is about, if that is clear.
    pub(super) async fn ask(
        &self,
        server: &str,
        request: ElicitRequestParams,
        origin: Option<&InboundStreamOrigin>,
    ) -> ToolAnswer {
        let Some(question) = question_of(server, request) else {
            return ToolAnswer::Cancelled;
        };
        let about = match origin {
            Some(InboundStreamOrigin::OutboundRequest(id)) => {
                let of_call = |call: &RunningCall| call.is_sent_as(id);
                self.find(of_call).await.into_iter().collect()
            }
            _ => self.all(),
        };
        let Some(first) = about.first() else {
            return ToolAnswer::Cancelled;
        };
        if about.iter().any(|call| call.chat != first.chat) {
            tracing::warn!(
                server,
                "the MCP server {server} asked a user something while it worked for several chats, and it is unknown which \
                 of them it meant; nobody was asked (a server that is reached by url says it)"
            );
            return ToolAnswer::Cancelled;
        }
        let _paused: Vec<Box<dyn Send>> = about.iter().map(|call| call.link.pause()).collect();
        tokio::select! {
            answer = first.link.ask(question) => answer,
            () = self.until_over(&about) => ToolAnswer::Cancelled,
        }
    }

    /// Tells the user how far a call is. Transports call it, so that a server that tells it without end occupies nobody.
    pub(super) fn report(&self, said: &ProgressNotificationParam) {
        if !said.progress.is_finite() || said.total.is_some_and(|total| !total.is_finite()) {
            return;
        }
        let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        match calls.iter().find(|call| call.is_reported_as(said)) {
            Some(call) => call.report(said),
            // It may be about a call whose ids are about to be known.
            None => {
                for call in calls.iter_mut().filter(|call| call.sent.is_none()) {
                    call.early = Some(said.clone());
                }
            }
        }
    }

    /// The call that this is true of. Waits for calls whose ids are about to be known.
    async fn find(&self, wanted: impl Fn(&RunningCall) -> bool) -> Option<RunningCall> {
        let mut changed = self.changed.subscribe();
        loop {
            let calls = self.all();
            if let Some(found) = calls.iter().find(|call| wanted(call)) {
                return Some(found.clone());
            }
            if calls.iter().all(|call| call.sent.is_some()) || changed.changed().await.is_err() {
                return None;
            }
        }
    }

    /// Until none of these calls runs.
    async fn until_over(&self, about: &[RunningCall]) {
        let mut changed = self.changed.subscribe();
        let runs = |call: &RunningCall| about.iter().any(|it| it.key == call.key);
        while self.all().iter().any(runs) {
            if changed.changed().await.is_err() {
                return;
            }
        }
    }

    fn all(&self) -> Vec<RunningCall> {
        let calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
        calls.clone()
    }

    /// Changes the calls. Returns a number that no other change has.
    fn change(&self, change: impl FnOnce(&mut Vec<RunningCall>, u64)) -> u64 {
        let mut key = 0;
        self.changed.send_modify(|count| {
            *count += 1;
            key = *count;
            let mut calls = self.calls.lock().unwrap_or_else(PoisonError::into_inner);
            change(&mut calls, key);
        });
        key
    }
}

impl Running {
    /// Notes under which ids the server knows the call.
    pub(super) fn sent(&self, handle: &RequestHandle<RoleClient>) {
        let ids = (handle.id.clone(), handle.progress_token.0.clone());
        self.calls.change(|calls, _| {
            if let Some(call) = calls.iter_mut().find(|call| call.key == self.key) {
                call.sent = Some(ids);
                if let Some(said) = call.early.take().filter(|said| call.is_reported_as(said)) {
                    call.report(&said);
                }
            }
        });
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.calls
            .change(|calls, _| calls.retain(|call| call.key != self.key));
    }
}

impl RunningCall {
    fn is_sent_as(&self, request: &RequestId) -> bool {
        self.sent.as_ref().is_some_and(|(id, _)| id == request)
    }

    fn is_reported_as(&self, said: &ProgressNotificationParam) -> bool {
        let token = self.sent.as_ref().map(|(_, token)| token);
        token == Some(&said.progress_token.0)
    }

    fn report(&self, said: &ProgressNotificationParam) {
        self.link.report(ToolProgress {
            progress: said.progress,
            total: said.total,
            message: said.message.as_deref().map(shortened),
        });
    }
}

/// The answers to the questions with which a server has ended a call, all asked at once.
pub(super) async fn answers(
    server: &str,
    call: &ToolCall,
    questions: Option<InputRequests>,
) -> Result<InputResponses, String> {
    let mut asked = Vec::new();
    for (key, request) in questions.unwrap_or_default() {
        let InputRequest::Elicitation(request) = request else {
            return Err(format!(
                "the MCP server {server:?} wants something that it was not offered"
            ));
        };
        let question = question_of(server, request.params);
        let link = &call.user_link;
        asked.push(async move {
            let answer = match question {
                Some(question) => link.ask(question).await,
                None => ToolAnswer::Cancelled,
            };
            (key, answer)
        });
    }
    let mut answers = InputResponses::new();
    for (key, answer) in join_all(asked).await {
        let answer = serde_json::to_value(result_of(answer)).unwrap_or_default();
        answers.insert(key, answer);
    }
    Ok(answers)
}

/// An answer in the form of the protocol.
pub(super) fn result_of(answer: ToolAnswer) -> ElicitResult {
    match answer {
        ToolAnswer::Accepted(content) => {
            ElicitResult::new(ElicitationAction::Accept).with_content(content.to_value())
        }
        ToolAnswer::Declined => ElicitResult::new(ElicitationAction::Decline),
        ToolAnswer::Cancelled => ElicitResult::new(ElicitationAction::Cancel),
    }
}

/// What the user is asked; nothing if it cannot be shown.
pub(super) fn question_of(server: &str, request: ElicitRequestParams) -> Option<UserQuestion> {
    let ElicitRequestParams::FormElicitationParams {
        message,
        requested_schema,
        ..
    } = request
    else {
        return None;
    };
    let schema = serde_json::to_value(requested_schema).ok()?;
    let bytes = message.len() + schema.to_string().len();
    if bytes > MAX_QUESTION_BYTES {
        tracing::warn!(
            server,
            bytes,
            "a question of the MCP server {server} is too long to be shown"
        );
        return None;
    }
    Some(UserQuestion {
        server: server.to_owned(),
        message,
        schema: schema.into(),
    })
}
