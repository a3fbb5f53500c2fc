//! The machine with its connection: what is sent to the live agent, and what it sends.

use std::future::pending;

use adk_bridge_agents::agent::MemoryModel;
use adk_bridge_agents::error::AgentError;
use adk_bridge_agents::live::{
    ConnectError, Connecting, Incoming, IncomingSink, LiveAgent, LiveConnection, LiveInput,
    LiveRequest, LiveSetup, Read,
};
use adk_bridge_agents::tool::ToolSpec;
use adk_bridge_agents::trace_context::TraceContext;
use adk_bridge_protocol::calls::Call;
use adk_bridge_protocol::event::Content;
use adk_bridge_protocol::history;
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::{Ask, Response};
use adk_bridge_protocol::reply::Reply;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::machine::{Effects, Notice, Setup, UserInput, VoiceInput, VoiceMachine};
use super::recording::ModelAudio;
use super::utterance::Utterance;
use crate::chat::engine::{EventSource, ReplyEngine};
use crate::chat::loaded::FileRoom;
use crate::chat::trace::RunSpan;
use crate::store::FileRow;

pub(in crate::chat) struct VoiceSession {
    machine: VoiceMachine,
    line: Line,
    /// The previous connection while it closes: the agent's session is free only after that.
    closing: Option<JoinHandle<()>>,
    /// What the user says in the current turn.
    utterance: Option<Utterance>,
    model_audio: ModelAudio,
    /// That of the agent's answer, if spans are recorded.
    span: Option<RunSpan>,
}

/// The connection to the agent.
enum Line {
    Closed,
    Opening(Connecting),
    Open(Box<dyn LiveConnection>),
}

/// An event of the connection, or a deadline.
pub(in crate::chat) enum VoiceEvent {
    Opened(Box<dyn LiveConnection>),
    Refused(ConnectError),
    Read(Read),
    Due,
}

/// What a message of the agent contained in addition to the events that the reply was fed.
pub(in crate::chat) struct MessageSummary {
    /// Whether the agent has said something.
    pub(in crate::chat) spoke: bool,
    pub(in crate::chat) progressed: bool,
    /// Transcriptions of the user outside of any run: a piece, or the whole.
    pub(in crate::chat) late_words: Vec<(String, bool)>,
    pub(in crate::chat) notices: Vec<Notice>,
    /// The raw events of an agent with a session.
    pub(in crate::chat) said: Vec<String>,
    pub(in crate::chat) result: Result<(), AgentError>,
}

/// The result of sending: the input for the machine, or the error. `None` without a connection.
pub(in crate::chat) type Sent = Option<Result<VoiceInput, AgentError>>;

/// The next event that no command brings; never, without a voice session. Cancel-safe.
pub(in crate::chat) async fn next_event(voice: &mut Option<Box<VoiceSession>>) -> VoiceEvent {
    match voice {
        Some(voice) => voice.next_event().await,
        None => pending().await,
    }
}

impl VoiceSession {
    /// `run`: whether a run of the chat is under way.
    pub(in crate::chat) fn new(memory: MemoryModel, run: bool) -> Self {
        Self {
            machine: VoiceMachine::new(memory, run),
            line: Line::Closed,
            closing: None,
            utterance: None,
            model_audio: ModelAudio::default(),
            span: None,
        }
    }

    // The span of an answer.

    /// Begins it if the agent answers, and ends it if it does not any more.
    pub(in crate::chat) fn follow_run(&mut self, begin: impl FnOnce() -> Option<RunSpan>) {
        match self.machine.has_run() {
            true if self.span.is_none() => self.span = begin(),
            true => {}
            false => self.span = None,
        }
    }

    /// Ends it in its own way.
    pub(in crate::chat) fn take_span(&mut self) -> Option<RunSpan> {
        self.span.take()
    }

    // The machine.

    /// Handles an input; the caller performs the effects.
    pub(in crate::chat) fn handle(&mut self, input: VoiceInput) -> Effects {
        self.machine.handle(input, Instant::now().into_std())
    }

    /// Handles an input that has no effects.
    pub(in crate::chat) fn note(&mut self, input: VoiceInput) {
        let left = self.handle(input).into_iter().count();
        debug_assert_eq!(left, 0, "an input that is only noted has no effects");
    }

    /// Notes whether a live client is attached.
    pub(in crate::chat) fn listened_to(&mut self, anybody: bool) {
        self.note(VoiceInput::Listener(anybody));
    }

    /// Notes that the user has written: that turn has no speech.
    pub(in crate::chat) fn note_written(&mut self) {
        self.utterance = None;
        self.note(VoiceInput::Written);
    }

    /// Whether there is no connection, and none is being opened.
    pub(in crate::chat) fn is_closed(&self) -> bool {
        self.machine.is_closed()
    }

    /// Whether this agent runs the reply.
    pub(in crate::chat) fn has_run(&self) -> bool {
        self.machine.has_run()
    }

    /// Whether the user speaks, or may have said something that is not noticed yet.
    pub(in crate::chat) fn is_spoken_to(&self) -> bool {
        self.machine.is_spoken_to(Instant::now().into_std())
    }

    /// When the agent has noticed what it was sent, if it was speech.
    pub(in crate::chat) fn noticed_by(&self) -> Option<Instant> {
        self.machine.noticed_by().map(Instant::from_std)
    }

    /// Whether a turn waits until the chat is free.
    pub(in crate::chat) fn is_deferred(&self) -> bool {
        self.machine.is_deferred()
    }

    /// Whether another run of the chat is under way, as far as the machine knows.
    pub(in crate::chat) fn knows_of_other_run(&self) -> bool {
        self.machine.knows_of_other_run()
    }

    /// Whether something that waits for the chat may continue. `run`: whether a run of the chat is under way.
    pub(in crate::chat) fn may_go_on(&self, run: bool) -> bool {
        self.machine.is_deferred() || self.machine.knows_of_other_run() && !run
    }

    /// Whether this agent answers a question of the reply.
    pub(in crate::chat) fn answers(&self, question: &Ask) -> bool {
        let knows_calls = match (question, &self.line) {
            (Ask::Responses(responses), Line::Open(connection)) => connection.knows_all(responses),
            _ => false,
        };
        self.machine.answers(question, knows_calls)
    }

    // The connection.

    /// The connection to open, if one is still wanted.
    pub(in crate::chat) fn setup(&self) -> Option<Setup> {
        self.machine.setup()
    }

    /// Opens a connection that begins with the conversation, or with the part of it that an earlier session does not
    /// know.
    pub(in crate::chat) fn dial_with_history(
        &mut self,
        agent: &dyn LiveAgent,
        user: &UserId,
        setup: &Setup,
        messages: &[Message],
        tools: &[ToolSpec],
        (room, trace): (Option<FileRoom>, TraceContext),
    ) {
        let contents = history::contents(messages);
        let all = contents.len();
        let from = setup.from.as_ref();
        let confirmed = from.map_or(0, |from| from.mark.min(all));
        let opening = agent.connect(LiveRequest::Conversation(LiveSetup {
            user: user.clone(),
            contents: contents.get(confirmed..).unwrap_or_default().to_vec(),
            answer: setup.asks,
            modality: setup.modality,
            activity: setup.activity,
            tools,
            handle: from.map(|from| from.handle.as_str()),
            trace,
        }));
        let opening = Box::pin(async move {
            let opened = opening.await;
            // The history has been sent.
            drop(room);
            opened
        });
        self.dialled(opening, all, confirmed);
    }

    /// Notes that a connection with this many contents is being opened, some of them from an earlier session.
    pub(in crate::chat) fn dialled(
        &mut self,
        opening: Connecting,
        contents: usize,
        confirmed: usize,
    ) {
        self.line = Line::Opening(opening);
        self.note(VoiceInput::Dialled {
            contents,
            confirmed,
        });
    }

    /// Takes an open connection. Returns the input for the machine.
    pub(in crate::chat) fn opened(&mut self, connection: Box<dyn LiveConnection>) -> VoiceInput {
        let answers_history = connection.answers_history();
        self.line = Line::Open(connection);
        VoiceInput::Opened { answers_history }
    }

    /// The connection was refused.
    pub(in crate::chat) fn refused(&mut self) {
        self.line = Line::Closed;
    }

    /// What the end of the connection means, if its agent knows.
    pub(in crate::chat) fn explain_close(&self, code: u16, reason: &str) -> Option<ConnectError> {
        match &self.line {
            Line::Open(connection) => connection.explain_close(code, reason),
            Line::Closed | Line::Opening(_) => None,
        }
    }

    /// Closes the connection, or gives up opening it.
    pub(in crate::chat) fn close(&mut self) {
        if let Line::Open(connection) = std::mem::replace(&mut self.line, Line::Closed) {
            self.closing = Some(tokio::spawn(connection.close()));
        }
    }

    /// The connection that is still closing: the agent's session is free only after that.
    pub(in crate::chat) fn take_closing(&mut self) -> Option<JoinHandle<()>> {
        self.closing.take()
    }

    /// Expects an answer although no question was sent.
    pub(in crate::chat) fn expect_answer(&mut self) {
        if let Line::Open(connection) = &mut self.line {
            connection.expect_answer();
        }
    }

    async fn next_event(&mut self) -> VoiceEvent {
        let deadline = self.machine.deadline();
        let due = async {
            match deadline {
                Some(at) => sleep_until(at.into()).await,
                None => pending().await,
            }
        };
        // The agent's messages stay unread until its turn may begin.
        let waits = self.machine.is_deferred();
        let line = async {
            match &mut self.line {
                _ if waits => pending().await,
                Line::Closed => pending().await,
                Line::Opening(opening) => match opening.await {
                    Ok(connection) => VoiceEvent::Opened(connection),
                    Err(error) => VoiceEvent::Refused(error),
                },
                Line::Open(connection) => VoiceEvent::Read(connection.read().await),
            }
        };
        tokio::select! {
            event = line => event,
            () = due => VoiceEvent::Due,
        }
    }

    // What the agent is sent.

    /// Sends what has been added to the conversation outside of this connection.
    pub(in crate::chat) async fn send_news(&mut self, messages: &[Message]) -> Sent {
        let contents = history::contents(messages);
        let (connection, sent) = self.connection()?;
        let turns = contents.get(sent..).unwrap_or_default();
        let answer = false;
        let result = match turns {
            [] => Ok(()),
            turns => connection.send(LiveInput::Contents { turns, answer }).await,
        };
        let contents = contents.len();
        Some(result.map(|()| VoiceInput::Sent { contents }))
    }

    /// Asks an agent without memory. What it does not know yet is sent with the question.
    pub(in crate::chat) async fn send_conversation(
        &mut self,
        messages: &[Message],
        reply: Option<&Reply>,
    ) -> Sent {
        let contents = history::contents(messages);
        let results = self.awaited_results(reply, contents.last());
        let (connection, sent) = self.connection()?;
        let news = contents.get(sent..).unwrap_or_default();
        let input = match (&results, written(news)) {
            (Some(results), _) => LiveInput::Responses(results),
            (None, Some(text)) => LiveInput::Text(text),
            (None, None) => LiveInput::Contents {
                turns: news,
                answer: true,
            },
        };
        let result = connection.send(input).await;
        let contents = contents.len();
        Some(result.map(|()| match results {
            Some(_) => VoiceInput::ResultsSent { contents },
            None => VoiceInput::Sent { contents },
        }))
    }

    /// Asks an agent with a session; `last` is the user's last message.
    pub(in crate::chat) async fn send_new_input(
        &mut self,
        question: &Ask,
        last: Option<&Message>,
    ) -> Sent {
        let (connection, _) = self.connection()?;
        let result = match question {
            Ask::Responses(results) => connection.send(LiveInput::Responses(results)).await,
            Ask::History => {
                let parts: Vec<_> = last.into_iter().flat_map(history::user_parts).collect();
                if parts.is_empty() {
                    return Some(Ok(VoiceInput::NothingToAsk));
                }
                let turns = [Content::new("user", parts)];
                let input = LiveInput::Contents {
                    turns: &turns,
                    answer: true,
                };
                connection.send(input).await
            }
        };
        Some(result.map(|()| VoiceInput::Sent { contents: 0 }))
    }

    /// Sends the user's input that is waiting.
    pub(in crate::chat) async fn send_user_input(&mut self) -> Result<(), AgentError> {
        while let Some(input) = self.machine.next_input()
            && let Line::Open(connection) = &mut self.line
        {
            let input = match &input {
                UserInput::Audio(pcm) => LiveInput::Audio(pcm),
                UserInput::Picture { data, media_type } => LiveInput::Video { media_type, data },
                UserInput::ActivityStart => LiveInput::ActivityStart,
                UserInput::ActivityEnd => LiveInput::ActivityEnd,
                UserInput::AudioStreamEnd => LiveInput::AudioStreamEnd,
            };
            connection.send(input).await?;
        }
        Ok(())
    }

    /// The connection, and how many contents it has been sent.
    fn connection(&mut self) -> Option<(&mut dyn LiveConnection, usize)> {
        let sent = self.machine.contents_sent();
        match &mut self.line {
            Line::Open(connection) => Some((&mut **connection, sent)),
            Line::Closed | Line::Opening(_) => None,
        }
    }

    /// The results of the last step, under the model's own ids, if the connection waits for all of them.
    fn awaited_results(
        &self,
        reply: Option<&Reply>,
        last: Option<&Content<'_>>,
    ) -> Option<Vec<Response>> {
        let reply = reply?;
        let step = reply.asking_step()?.checked_sub(1)?;
        let calls: Vec<&Call> = reply.calls().iter().filter(|it| it.step == step).collect();
        let Line::Open(connection) = &self.line else {
            return None;
        };
        let is_awaited = |call: &&Call| {
            let id = call.model_id.as_deref();
            id.is_some_and(|id| connection.knows(id))
        };
        if calls.is_empty() || !calls.iter().all(is_awaited) {
            return None;
        }
        let last = last?;
        calls
            .iter()
            .map(|call| {
                let part = last.parts.iter().find_map(|part| {
                    part.function_response
                        .as_deref()
                        .filter(|response| response.id.as_deref() == Some(call.id.as_str()))
                })?;
                Some(Response {
                    id: call.model_id.clone()?,
                    name: call.name.clone(),
                    response: part.response.clone().unwrap_or_default(),
                })
            })
            .collect()
    }

    // What the agent brings.

    /// Whether a message begins a turn.
    pub(in crate::chat) fn begins_turn(&self, message: &[u8]) -> bool {
        let Line::Open(connection) = &self.line else {
            return false;
        };
        self.machine.is_listening() && connection.speaker(message).is_some()
    }

    /// Whether the agent waits for results of calls.
    pub(in crate::chat) fn has_open_calls(&self) -> bool {
        matches!(&self.line, Line::Open(connection) if !connection.open_calls().is_empty())
    }

    /// Feeds a message of the connection to the reply. `turn`: the number of the turn that the live client reads.
    pub(in crate::chat) fn feed(
        &mut self,
        engine: &mut ReplyEngine,
        turn: u32,
        read: impl FnOnce(&mut dyn LiveConnection, IncomingSink<'_>) -> Result<(), AgentError>,
    ) -> Option<MessageSummary> {
        let user = self.utterance.as_ref().map(Utterance::message);
        engine.set_live_turn(turn, user.map(|message| &message.id));
        let answers = self.machine.has_run();
        let Line::Open(connection) = &mut self.line else {
            return None;
        };
        let (model_audio, span) = (&mut self.model_audio, &mut self.span);
        let (mut spoke, mut progressed) = (false, false);
        let (mut late_words, mut notices) = (Vec::new(), Vec::new());
        let result = engine.feed_events(EventSource::Live, |sink| {
            read(&mut **connection, &mut |incoming| match incoming {
                Incoming::Event(event) => {
                    spoke |= !event.parts().is_empty() || event.output_transcription.is_some();
                    progressed = true;
                    model_audio.take_in(event);
                    if let Some(span) = span.as_mut().filter(|_| answers) {
                        span.event(event);
                    }
                    match &event.input_transcription {
                        _ if answers => sink(event),
                        Some(heard) => {
                            let text = heard.text.as_deref().unwrap_or_default();
                            late_words.push((text.to_owned(), heard.finished == Some(true)));
                        }
                        None => {}
                    }
                }
                Incoming::GoAway(left) => notices.push(Notice::GoAway(left)),
                Incoming::Resumable(Some(handle)) => notices.push(Notice::Resumable(handle)),
                // The last handle stays valid; and an answer to a cancelled call is checked when it comes.
                Incoming::Resumable(None) | Incoming::Cancelled(_) => {}
            })
        });
        let mut said = connection.take_said();
        if !answers {
            said.clear();
        }
        Some(MessageSummary {
            spoke,
            progressed,
            late_words,
            notices,
            said,
            result,
        })
    }

    // What is said in a turn.

    /// Begins the user's utterance of a turn, in a message with this id.
    pub(in crate::chat) fn begin_utterance(&mut self, id: MessageId) -> Message {
        let utterance = self.utterance.insert(Utterance::new(id));
        utterance.message().clone()
    }

    /// Forgets the utterance: the turn could not begin.
    pub(in crate::chat) fn drop_utterance(&mut self) {
        self.utterance = None;
    }

    /// Adds a transcription of the user: a piece, or the whole. Returns the message that contains it.
    pub(in crate::chat) fn add_transcription(
        &mut self,
        text: &str,
        finished: bool,
    ) -> Option<&Message> {
        let utterance = self.utterance.as_mut()?;
        utterance.add_transcription(text, finished);
        Some(utterance.message())
    }

    /// The utterance, if it has to be stored again.
    pub(in crate::chat) fn take_changed_utterance(&mut self) -> Option<Message> {
        self.utterance.as_mut()?.take_changed()
    }

    /// Whether there is a message for a recording of the user. Speech while a tool runs belongs to no turn.
    pub(in crate::chat) fn lacks_recording(&self) -> bool {
        let utterance = self.utterance.as_ref();
        utterance.is_some_and(|utterance| !utterance.has_recording())
    }

    /// Adds a recording of the user to the message with its text.
    pub(in crate::chat) fn add_recording(&mut self, file: FileRow) -> Option<&Message> {
        let utterance = self.utterance.as_mut()?;
        utterance.add_recording(file);
        Some(utterance.message())
    }

    /// Drops the agent's audio of this run.
    pub(in crate::chat) fn drop_model_audio(&mut self) {
        self.model_audio.clear();
    }

    /// The agent's audio of this run.
    pub(in crate::chat) fn take_model_audio(&mut self) -> ModelAudio {
        std::mem::take(&mut self.model_audio)
    }
}

/// The new contents, if they are only text of the user.
fn written<'n>(news: &'n [Content<'_>]) -> Option<&'n str> {
    match news {
        [only] if only.role.as_deref() == Some("user") => match &only.parts[..] {
            [part] => part.text.as_deref(),
            _ => None,
        },
        _ => None,
    }
}
