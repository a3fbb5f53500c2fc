//! The runs of a chat's agent: each is started, emits events, and ends or is cancelled.
//!
//! An agent without memory gets the whole conversation. An agent with a session gets only what is new; its events are
//! stored as they came, in case it loses the session.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::agent::{
    AgentRequest, AgentRun, ChatKey, ConversationRequest, EventSink, MemoryModel, NewInput,
    SessionRequest, Starting,
};
use adk_bridge_agents::error::{AgentError, shortened};
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_protocol::credentials::line_without_credentials;
use adk_bridge_protocol::event::{Content, Event};
use adk_bridge_protocol::history;
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::Ask;
use bytes::Bytes;
use serde_json::Value;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use super::attachments;
use super::context::ChatContext;
use super::engine::{EventSource, ReplyEngine};
use super::error::ChatError;
use super::loaded::{FilePurpose, FileRoom};
use super::session_state::{NewState, SessionState};
use super::session_store::{ChatSessionStore, RememberedSession};
use crate::store::StoreError;

/// If pieces come faster than this, more of them are probably ready. Looking for more would be wasted on a model that
/// writes at its own pace.
const HURRY: Duration = Duration::from_millis(1);

/// Shown for a failure in an unknown form, whose text may contain the whole request.
const NO_WORDS: &str = "the agent failed, and did not say why";

/// How often the files of a request are in memory until the agent answers it: the body, in case it has to be sent again.
const SENT_COPIES: usize = 1;
/// The same for an agent with a session: the message, in case the session is lost, and the body.
const SENT_IN_SESSION_COPIES: usize = 2;

/// At most one run at a time.
pub(super) struct AgentRuns {
    context: ChatContext,
    state: State,
    /// When the last piece came.
    read_at: Option<Instant>,
    /// The events of an agent with a session that have been fed, and are to be stored.
    said: Vec<String>,
    /// How often the history had been cut when the agent was last asked in its session.
    generation: u64,
    /// The agent's session, if it has one.
    session: RememberedSession,
    /// What was handed in to that session, once it has been read.
    handed_in: Option<SessionState>,
    /// The part of it that is on its way with the run that is being started.
    sent_delta: BTreeMap<String, Json>,
}

#[derive(Default)]
enum State {
    #[default]
    Idle,
    Starting(Starting),
    Reading(Box<dyn AgentRun>),
}

/// The next thing that happened to a run.
pub(super) enum Progress {
    Started(Box<dyn AgentRun>),
    Piece(Bytes),
    Over,
    Failed(AgentError),
}

/// The messages of a chat, and the message of the current reply.
#[derive(Clone, Copy)]
pub(super) struct Transcript<'m> {
    pub(super) messages: &'m [Message],
    pub(super) reply: Option<&'m Message>,
}

impl AgentRuns {
    pub(super) fn new(context: ChatContext) -> Self {
        Self {
            context,
            state: State::Idle,
            read_at: None,
            said: Vec::new(),
            generation: 0,
            session: RememberedSession::default(),
            handed_in: None,
            sent_delta: BTreeMap::new(),
        }
    }

    /// Notes that nothing was handed in to the session of a new chat yet.
    pub(super) fn hand_in_first(&mut self) {
        self.handed_in.get_or_insert_default();
    }

    /// Forgets what only concerned the runs of the last request.
    pub(super) fn forget_marks(&mut self) {
        if let Some(handed_in) = &mut self.handed_in {
            handed_in.forget_marks();
        }
    }

    /// Takes what a request hands in to the agent's session. It is stored before the agent is asked.
    pub(super) async fn hand_in(&mut self, new: NewState) -> Result<(), ChatError> {
        let (store, chat) = (self.context.store.clone(), self.context.chat());
        let mut handed_in = match self.handed_in.take() {
            Some(handed_in) => handed_in,
            None => SessionState::load(&*store, chat).await?,
        };
        if handed_in.add(new)? {
            handed_in.store(&*store, chat).await?;
        }
        self.handed_in = Some(handed_in);
        Ok(())
    }

    pub(super) fn is_active(&self) -> bool {
        !matches!(self.state, State::Idle)
    }

    /// Starts a run for the current reply. `closing`: a connection that has to leave the agent's session first.
    pub(super) async fn start(
        &mut self,
        question: &Ask,
        said: Transcript<'_>,
        closing: Option<JoinHandle<()>>,
    ) {
        let starting = match self.context.agent().memory() {
            MemoryModel::Stateless => self.start_with_history(said),
            MemoryModel::Session => self.start_in_session(question, said, closing).await,
        };
        self.state = State::Starting(starting);
        self.read_at = None;
    }

    pub(super) fn cancel(&mut self) {
        self.state = State::Idle;
        self.read_at = None;
    }

    /// Reads this run from here on.
    pub(super) async fn started(&mut self, run: Box<dyn AgentRun>) {
        self.state = State::Reading(run);
        let sent = std::mem::take(&mut self.sent_delta);
        if let Some(handed_in) = &mut self.handed_in
            && handed_in.forget(&sent)
        {
            let (store, chat) = (&self.context.store, self.context.chat());
            if let Err(error) = handed_in.store(&**store, chat).await {
                self.context.note_refused_write(&error);
                // It would be sent once more, with the same values.
                tracing::warn!(chat = chat.id.as_str(), %error, "what was handed in to chat {} cannot be stored", chat.id);
            }
        }
    }

    /// The next progress of the run. Cancel-safe.
    pub(super) async fn progress(&mut self) -> Progress {
        match &mut self.state {
            State::Idle => std::future::pending().await,
            State::Starting(starting) => match starting.await {
                Ok(run) => Progress::Started(run),
                Err(error) => Progress::Failed(error),
            },
            State::Reading(run) => match run.read().await {
                Ok(Some(piece)) => Progress::Piece(piece),
                Ok(None) => Progress::Over,
                Err(error) => Progress::Failed(error),
            },
        }
    }

    /// The next progress of the run that is ready without waiting for the network. Cancel-safe.
    pub(super) async fn at_hand(&mut self) -> Option<Progress> {
        if !matches!(self.state, State::Reading(_)) {
            return None;
        }
        tokio::select! {
            biased;
            progress = self.progress() => Some(progress),
            // The connection is a task of its own: it gets a chance to hand over what it has.
            () = tokio::task::yield_now() => None,
        }
    }

    /// Notes that a piece came. Returns whether pieces come so fast that more are probably ready.
    pub(super) fn is_hurried(&mut self, came: Instant) -> bool {
        let before = self.read_at.replace(came);
        before.is_some_and(|before| came.duration_since(before) < HURRY)
    }

    /// Feeds the events of a piece to the reply, until there are no more or they cannot be read.
    /// [`AgentRuns::store_what_was_said`] has to follow.
    pub(super) fn feed_piece(
        &mut self,
        piece: &[u8],
        engine: &mut ReplyEngine,
    ) -> Result<(), AgentError> {
        self.feed(engine, |run, sink| run.events(piece, sink))
    }

    /// Feeds what an ended run still holds.
    pub(super) async fn feed_rest(&mut self, engine: &mut ReplyEngine) -> Result<(), AgentError> {
        let fed = self.feed(engine, |run, sink| run.finish(sink));
        self.store_what_was_said(engine.message_id()).await;
        self.cancel();
        fed
    }

    fn feed(
        &mut self,
        engine: &mut ReplyEngine,
        read: impl FnOnce(&mut dyn AgentRun, EventSink<'_>) -> Result<(), AgentError>,
    ) -> Result<(), AgentError> {
        let State::Reading(run) = &mut self.state else {
            return Ok(());
        };
        let result = engine.feed_events(EventSource::Run, |sink| read(&mut **run, sink));
        self.said.append(&mut run.take_said());
        result
    }

    /// Whether the agent has said something that is to be stored as it came.
    pub(super) fn has_said(&self) -> bool {
        !self.said.is_empty()
    }

    /// Stores what the agent has said in a message, if it has a session.
    pub(super) async fn store_what_was_said(&mut self, message_id: Option<&MessageId>) {
        let said = std::mem::take(&mut self.said);
        self.store_said(message_id, said).await;
    }

    /// Stores what an agent with a session said in a message, without credentials.
    pub(super) async fn store_said(&mut self, message_id: Option<&MessageId>, said: Vec<String>) {
        let Some(message_id) = message_id.filter(|_| !said.is_empty()) else {
            return;
        };
        let said = said.into_iter().map(line_without_credentials).collect();
        let (store, chat) = (&self.context.store, self.context.chat());
        let stored = store
            .append_events(chat, self.generation, message_id, said)
            .await;
        if let Err(error) = stored {
            self.context.note_refused_write(&error);
            tracing::warn!(chat = chat.id.as_str(), %error, "the events of the agent of chat {} cannot be stored", chat.id);
        }
    }

    /// The request for an agent with a session; `before` names the message that is new.
    pub(super) async fn session_request(
        &mut self,
        input: NewInput,
        before: Option<MessageId>,
        said: Transcript<'_>,
    ) -> Result<SessionRequest, AgentError> {
        match self.context.store.chat(self.context.chat()).await {
            Ok(chat) => self.generation = chat.map_or(0, |chat| chat.generation),
            Err(error) => return Err(not_read(&error)),
        }
        let mut handed_in = match self.handed_in.take() {
            Some(handed_in) => handed_in,
            None => {
                let (store, chat) = (&self.context.store, self.context.chat());
                SessionState::load(&**store, chat)
                    .await
                    .map_err(|error| not_read(&error))?
            }
        };
        let served = self.context.served();
        let (configured, user) = (served.session_state(), self.context.user());
        if let Some(claims) = self.context.users.claims(user)
            && handed_in.note_claims(configured, &claims)
        {
            let stored = handed_in.store(&*self.context.store, self.context.chat());
            match stored.await {
                // A spoken conversation may begin before its chat is stored; the next run notes them again.
                Ok(()) | Err(StoreError::NotFound(_)) => {}
                Err(error) => return Err(not_read(&error)),
            }
        }
        let for_run = handed_in.for_run(configured.of(user, handed_in.claims()));
        self.sent_delta.clone_from(&for_run.state_delta);
        self.handed_in = Some(handed_in);
        Ok(SessionRequest {
            chat: self.chat_key(),
            generation: self.generation,
            input,
            handed_in: for_run,
            store: Arc::new(self.session_store(before, said)),
            trace: self.context.trace().current(),
        })
    }

    /// Stores the session that was opened before the chat was stored.
    pub(super) async fn store_session(&mut self, said: Transcript<'_>) {
        if let Err(error) = self.session_store(None, said).store_remembered().await {
            let chat = self.context.chat_id().as_str();
            tracing::warn!(chat, error, "the session of chat {chat} cannot be stored");
        }
    }

    /// Sends the whole conversation.
    fn start_with_history(&self, said: Transcript<'_>) -> Starting {
        let reply = said.reply.filter(|message| !message.parts.is_empty());
        let messages = said.messages.iter().chain(reply);
        let key = self.chat_key();
        if !messages.clone().any(attachments::has_files) {
            return ask_with_history(&self.context, key, messages);
        }
        let messages: Vec<Message> = messages.cloned().collect();
        let context = self.context.clone();
        Box::pin(on_its_own(async move {
            let mut messages: Vec<_> = messages.into_iter().map(Cow::Owned).collect();
            let mut room =
                attachments::inline(&context, &mut messages, FilePurpose::Question).await;
            let starting = ask_with_history(&context, key, messages.iter().map(Cow::as_ref));
            drop(messages);
            room.keep(SENT_COPIES);
            starting.await
        }))
    }

    /// Sends what is new: the agent remembers the rest.
    async fn start_in_session(
        &mut self,
        question: &Ask,
        said: Transcript<'_>,
        closing: Option<JoinHandle<()>>,
    ) -> Starting {
        let (input, last) = match question {
            Ask::Responses(responses) => (NewInput::Responses(responses.clone()), None),
            Ask::History => (
                NewInput::Message(Json::null()),
                Some(said.messages.last().cloned()),
            ),
        };
        let before = last.iter().flatten().map(|last| last.id.clone()).next();
        let request = self.session_request(input, before, said).await;
        let context = self.context.clone();
        Box::pin(on_its_own(async move {
            if let Some(closing) = closing {
                let _ = closing.await;
            }
            let mut request = request?;
            let mut room = None;
            if let Some(last) = last {
                let (content, taken) = new_content(&context, last).await;
                request.input = NewInput::Message(content);
                room = Some(taken);
            }
            let request = AgentRequest::Session(request);
            let run = context.trace().start_run(&context.served(), request).await;
            drop(room);
            run
        }))
    }

    fn chat_key(&self) -> ChatKey {
        ChatKey {
            user: self.context.user().to_owned(),
            id: self.context.chat_id().to_owned(),
        }
    }

    fn session_store(&self, before: Option<MessageId>, said: Transcript<'_>) -> ChatSessionStore {
        let (context, session) = (self.context.clone(), self.session.clone());
        ChatSessionStore::new(context, session, self.generation).with_past(
            before,
            said.messages.len() + usize::from(said.reply.is_some()),
        )
    }
}

fn not_read(error: &StoreError) -> AgentError {
    AgentError::broken(
        "the chat cannot be read from the store; try again",
        error.to_string(),
    )
}

/// Asks an agent without memory.
fn ask_with_history<'m>(
    context: &ChatContext,
    chat: ChatKey,
    messages: impl Iterator<Item = &'m Message>,
) -> Starting {
    let tools = context.tools();
    let request = AgentRequest::Conversation(ConversationRequest {
        chat,
        contents: history::contents(messages),
        tools: &tools.specs(),
        trace: TraceContext::default(),
    });
    context.trace().start_run(&context.served(), request)
}

/// The user's last message as a content, with its files, and the room that they take.
async fn new_content(context: &ChatContext, last: Option<Message>) -> (Json, FileRoom) {
    let mut last: Vec<Cow<'_, Message>> = last.into_iter().map(Cow::Owned).collect();
    let mut room = attachments::inline(context, &mut last, FilePurpose::Question).await;
    let parts = last.iter().flat_map(|last| history::user_parts(last));
    let content = Content::new("user", parts.collect::<Vec<_>>());
    // A content has texts for names, so it can be written.
    let content = Json::of(&content).unwrap_or_default();
    drop(last);
    room.keep(SENT_IN_SESSION_COPIES);
    (content, room)
}

/// Runs something in a task of its own while the chat's task is busy. Opening a session may hold the store's only
/// writer, so the chat's task would wait for itself. Dropping the future stops it.
pub(super) async fn on_its_own<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> T {
    let mut alone = JoinSet::new();
    alone.spawn(future);
    match alone.join_next().await {
        Some(Ok(done)) => done,
        Some(Err(error)) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Only the set can cancel it, and the set is dropped with this future.
        _ => std::future::pending().await,
    }
}

/// An event that says why the agent failed or stopped, shortened and without secrets: it may quote what it was sent.
pub(super) fn without_secrets<'e>(event: &Event<'e>) -> Option<Event<'e>> {
    let said = [
        &event.error_code,
        &event.error_message,
        &event.finish_reason,
    ];
    let mut said = said.into_iter().flatten();
    if event.error.is_none() && said.all(|said| shortened(said) == **said) {
        return None;
    }
    let mut event = event.clone();
    for said in [
        &mut event.error_code,
        &mut event.error_message,
        &mut event.finish_reason,
    ] {
        *said = said.take().map(|said| shortened(&said).into());
    }
    if let Some(error) = &event.error {
        let said = match serde_json::from_str(error.get()) {
            Ok(Value::String(text)) => text,
            Ok(Value::Object(fields)) => match fields.get("message").and_then(Value::as_str) {
                Some(text) => text.to_owned(),
                None => NO_WORDS.to_owned(),
            },
            _ => NO_WORDS.to_owned(),
        };
        event.error = serde_json::value::to_raw_value(&shortened(&said))
            .ok()
            .map(Cow::Owned);
    }
    Some(event)
}
