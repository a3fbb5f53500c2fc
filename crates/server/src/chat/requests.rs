//! What requests do to a chat: they answer, submit, resume, or bring the output of a tool.

use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::dialect::Reader;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::Commit;
use adk_bridge_protocol::reply::{
    Answer as ClientAnswer, Given, Input, Mode, Reply, Why, answers_of,
};
use axum::http::StatusCode;
use tokio::time::Instant;

use super::kept;
use super::live::{AnswerTo, Via};
use super::plan::{CutAt, Plan, plan};
use super::readers::{Answer, Readers};
use super::request::ChatRequest;
use super::task::{Command, Task, ended, new_id};
use super::{late, now};
use crate::error::AppError;
use crate::store::{ChatRef, StoreError};

/// How many messages may wait until a started tool has ended; nobody who reads the answers writes so many.
const MAX_QUEUED: usize = 32;

impl Task {
    /// The running message, or one that was running when the page was given the others: it may have ended since.
    pub(super) fn resume(&mut self, reader: Reader) -> Option<Answer> {
        let reply = self.reply.as_ref()?;
        let now = Instant::now();
        self.left_out
            .retain(|(id, until)| *until > now && *id == reply.message().id);
        let left_out = self.left_out.pop_back().is_some();
        if reply.turn().is_some() {
            return Some(self.readers.attach(reader, reply, None));
        }
        left_out.then(|| self.once(reader, reply, None))
    }

    pub(super) async fn post(&mut self, mut request: Box<ChatRequest>, via: Via, answer: AnswerTo) {
        self.arrived = Some(Instant::now());
        if let Some(theirs) = request.messages.last_mut()
            && let Some(ours) = self.history.iter().find(|ours| ours.id == theirs.id)
        {
            kept::recognise(&self.shared.files, self.chat(), theirs, ours).await;
        }
        let current = self.reply.as_ref().map(Reply::message);
        let mut plan = plan(&request, &self.history, current, self.known);
        // What is refused must be so before anything gives way to it.
        if let Plan::Submit { messages, .. } = &plan
            && let Some(last) = messages.last()
            && let Err(error) = kept::check_files(&self.shared.files, self.chat(), last).await
        {
            plan = Plan::Refuse(error);
        }
        match plan {
            Plan::Answer(message) => {
                self.begin_turn(via, request.dialect);
                let reader = self
                    .reader(request.dialect, request.sdk, message.as_ref())
                    .await;
                let reply = match (&mut self.reply, message) {
                    (Some(reply), _) if reply.message().id == request.last().id => reply,
                    (_, Some(older)) => {
                        // It has ended, and the client learns how.
                        let refused = late::refusals(request.last(), &older, request.dialect);
                        let stream = match self.append_audit(&refused).await {
                            Ok(()) => Ok(self.once(reader, &ended(older), Some(request.last()))),
                            Err(error) => Err(error.into()),
                        };
                        return self.deliver(answer, stream, false);
                    }
                    _ => return,
                };
                let theirs = request.last();
                if !self.live.reads(&answer) {
                    let stream = self.readers.attach(reader, reply, Some(theirs));
                    self.deliver(answer, Ok(stream), true);
                }
                let answers = answers_of(theirs);
                self.feed(Input::Answers(&answers, Some(via.mode))).await;
            }
            Plan::Submit { .. } if self.is_unfinished() && self.queue.len() >= MAX_QUEUED => {
                let refusal = AppError::new(
                    StatusCode::TOO_MANY_REQUESTS,
                    "too_many",
                    format!(
                        "{MAX_QUEUED} messages wait for a tool of this chat to end; send this one later"
                    ),
                );
                self.deliver(answer, Err(refusal), false);
            }
            Plan::Submit { .. } if self.is_unfinished() => {
                self.feed(Input::Close(Why::Superseded)).await;
                self.queue.push_back(Command::Post {
                    request,
                    via,
                    answer,
                });
            }
            Plan::Submit { .. } if self.close_parked(Why::Superseded).await => {
                self.queue.push_back(Command::Post {
                    request,
                    via,
                    answer,
                });
            }
            Plan::Submit { messages, cut } => {
                self.note_written();
                if cut.is_some() {
                    self.upstream.forget();
                }
                self.begin_turn(via, request.dialect);
                let opened = match self.refuse_riding(&request).await {
                    Ok(()) => self.open(via.mode, messages, cut.as_ref()).await,
                    Err(error) => Err(error.into()),
                };
                match opened {
                    Ok(unanswered) => {
                        let reader = self.reader(request.dialect, request.sdk, None).await;
                        let stream = self.readers.attach(reader, &unanswered, None);
                        self.deliver(answer, Ok(stream), true);
                        self.perform().await;
                    }
                    Err(error) => self.not_begun(answer, error),
                }
            }
            Plan::Refuse(error) => self.deliver(answer, Err(error), false),
        }
    }

    /// Answers a request that concerns a reply which has ended.
    pub(super) fn once(&self, reader: Reader, reply: &Reply, theirs: Option<&Message>) -> Answer {
        let mut readers = Readers::new(self.shared.metrics.clone());
        let stream = readers.attach(reader, reply, theirs);
        readers.finish_with(reply);
        stream
    }

    /// Shows the audit what a new message brings along of answers to older ones that are not ours.
    async fn refuse_riding(&mut self, request: &ChatRequest) -> Result<(), StoreError> {
        if !self.known {
            return Ok(());
        }
        let current = self.reply.as_ref().map(Reply::message);
        let stored = |id: &str| {
            self.history
                .iter()
                .chain(current)
                .find(|ours| ours.id == id)
        };
        let (_, older) = request
            .messages
            .split_last()
            .unwrap_or((request.last(), &[]));
        let mut refused = late::riding_along(older, stored, request.dialect);
        if !refused.is_empty() {
            let rows = self.shared.store.audit(self.chat()).await?;
            refused.retain(|audit| !late::is_recorded(audit, &rows));
        }
        self.append_audit(&refused).await
    }

    /// Takes new messages into the history and begins a reply to them. The first commit of the reply stores both: a crash
    /// leaves no question that nobody answers. Gives the reply as it was before: its reader has to see everything that
    /// the beginning brings, which is still to be performed.
    pub(super) async fn open(
        &mut self,
        mode: Mode,
        mut messages: Vec<Message>,
        cut: Option<&CutAt>,
    ) -> Result<Reply, AppError> {
        let store = self.shared.store.clone();
        let chat = ChatRef {
            user: &self.user,
            id: &self.chat_id,
        };
        if !self.known && messages.iter().any(kept::has_files) {
            // Files need a chat that they belong to; one that has nothing else begins with its first message.
            store.create_chat(chat, now()).await?;
        }
        kept::keep_messages(&self.shared.files, chat, &mut messages).await?;
        let mut reply = Reply::new(&new_id("msg"));
        self.outbox.clear();
        let unanswered = Reply::new(&reply.message().id);
        {
            let mut given = Given {
                now: now(),
                ids: &mut self.ids,
                rules: &*self.shared.tools,
            };
            reply.handle(Input::Begin(mode), &mut given, &mut self.outbox);
        }
        let commit = self.outbox.take_commit().unwrap_or_else(|| Commit {
            record: reply.record(),
            audit: Vec::new(),
        });
        self.commit_opening(&commit, &messages, cut).await?;
        if let Some(reply) = self.reply.take() {
            self.history.push(reply.into_message());
        }
        if let Some(cut) = cut {
            cut.apply(&mut self.history);
        }
        self.history.extend(messages);
        self.known = true;
        self.pictures.clear();
        self.reply = Some(reply);
        Ok(unanswered)
    }

    pub(super) async fn tool_output(
        &mut self,
        call_id: &str,
        outcome: Outcome,
    ) -> Result<(), AppError> {
        let Some(reply) = &self.reply else {
            return Err(AppError::not_found("call"));
        };
        if reply.calls().by_id(call_id).is_none() {
            return Err(AppError::not_found("call"));
        }
        let refused = self.refused;
        let answer = match &outcome {
            Outcome::Output { value, .. } => ClientAnswer::Output {
                call_id,
                output: value,
            },
            Outcome::Error { text } => ClientAnswer::Failure {
                call_id,
                error: text,
            },
        };
        self.feed(Input::Answers(&[answer], None)).await;
        if self.refused > refused {
            return Err(AppError::conflict(
                "this output is not taken: the call runs on the server, or has an outcome already",
            ));
        }
        Ok(())
    }
}
