//! The voice conversation in a chat's task: drives the machine, performs its effects, and runs the turns that speech
//! begins.

mod recordings;

use std::borrow::Cow;

use adk_bridge_agents::agent::{MemoryModel, NewInput};
use adk_bridge_agents::error::{AgentError, withheld};
use adk_bridge_agents::live::{
    ConnectError, Connecting, IncomingSink, LiveConnection, LiveRequest, Modality, NO_CODE, Read,
};
use adk_bridge_protocol::calls::{Call, CallState, RunsOn};
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::dialect::Dialect;
use adk_bridge_protocol::history;
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::{Message, Part};
use adk_bridge_protocol::outbox::Ask;
use adk_bridge_protocol::reply::{Audience, Input, Reply, RunEnd};
use adk_bridge_protocol::wire::live::Modality as WireModality;

use super::{Task, new_id, transcript};
use crate::chat::agent_runs::on_its_own;
use crate::chat::attachments;
use crate::chat::engine::ReaderOptions;
use crate::chat::error::ChatError;
use crate::chat::live::{LiveClient, Outgoing, RequestOrigin};
use crate::chat::loaded::FileRoom;
use crate::chat::voice::machine::{Failure, Setup, VoiceEffect, VoiceInput};
use crate::chat::voice::recording::UserAudio;
use crate::chat::voice::session::{Sent, VoiceEvent, VoiceSession};
use crate::files::address::Base;
use crate::secrets;

/// The close code for a message that cannot be read.
const INVALID: u16 = 1007;

impl Task {
    /// Handles an event of the connection, or a deadline.
    pub(super) async fn voice_event(&mut self, event: VoiceEvent) {
        let Some(voice) = &mut self.voice else {
            return;
        };
        let chat = self.context.chat_id().as_str();
        match event {
            VoiceEvent::Opened(connection) => {
                let opened = voice.opened(connection);
                self.handle_voice_input(opened).await;
            }
            VoiceEvent::Refused(refused) => {
                let (code, error) = (refused.code, refused.error);
                tracing::warn!(chat, kind = %error.kind(), detail = error.detail(), "the live model refused a connection of chat {chat}");
                voice.refused();
                self.handle_voice_input(VoiceInput::Refused { code, error })
                    .await;
            }
            VoiceEvent::Read(Read::Message(message)) => {
                let begins_turn = voice.begins_turn(&message);
                self.handle_voice_input(VoiceInput::Message {
                    message,
                    begins_turn,
                })
                .await;
            }
            VoiceEvent::Read(Read::Quiet) => {
                let quiet = |connection: &mut dyn LiveConnection, sink: IncomingSink<'_>| {
                    connection.on_quiet(sink);
                    Ok(())
                };
                self.read_into_reply(quiet).await;
            }
            VoiceEvent::Read(Read::Closed { code, reason }) => self.voice_lost(code, &reason).await,
            VoiceEvent::Due => self.handle_voice_input(VoiceInput::Tick).await,
        }
    }

    /// Continues what waited for the chat: a connection for the end of a run, or a turn for the end of another.
    pub(super) async fn voice_goes_on(&mut self) {
        if !self.runs.is_active() {
            self.handle_voice_input(VoiceInput::OtherRunEnded).await;
        }
        self.begin_spoken_turn().await;
    }

    async fn voice_lost(&mut self, code: u16, reason: &str) {
        let Some(voice) = &self.voice else {
            return;
        };
        let chat = self.context.chat_id().as_str();
        // Without a code the message is the bridge's own.
        let detail = match code {
            NO_CODE => reason.to_owned(),
            _ => withheld(reason),
        };
        tracing::info!(
            chat,
            code,
            detail,
            "the live connection of chat {chat} ended: {code}"
        );
        let error = voice.explain_close(code, reason);
        self.handle_voice_input(VoiceInput::Lost { code, error })
            .await;
    }

    pub(super) async fn drive_voice(&mut self, input: VoiceInput) {
        let Some(voice) = &mut self.voice else {
            return;
        };
        for effect in voice.handle(input) {
            self.perform_voice(effect).await;
        }
        let trace = self.context.trace();
        if let Some(voice) = self.voice.as_mut().filter(|_| trace.is_on()) {
            let (served, chat) = (self.context.served(), self.context.chat_id());
            voice.follow_run(|| trace.begin_live_run(&served, chat));
        }
    }

    async fn perform_voice(&mut self, effect: VoiceEffect) {
        let Some(voice) = &mut self.voice else {
            return;
        };
        let chat = self.context.chat_id().as_str();
        match effect {
            VoiceEffect::Connect => self.connect_voice().await,
            VoiceEffect::Close { renewed } => {
                if renewed {
                    tracing::info!(chat, "the live connection of chat {chat} is renewed");
                }
                voice.close();
            }
            VoiceEffect::SendInput => self.send_user_input().await,
            VoiceEffect::SendNews => self.send_news().await,
            VoiceEffect::SendQuestion(question) => self.send_question(&question).await,
            VoiceEffect::ExpectAnswer => voice.expect_answer(),
            VoiceEffect::KeepSession => {
                let said = transcript(&self.conversation, &self.engine);
                self.runs.store_session(said).await;
            }
            VoiceEffect::BeginTurn => {
                self.end_hold().await;
                self.begin_spoken_turn().await;
            }
            VoiceEffect::Feed(message) => {
                let read = |connection: &mut dyn LiveConnection, sink: IncomingSink<'_>| {
                    connection.events(&message, sink)
                };
                self.read_into_reply(read).await;
            }
            VoiceEffect::EndRun { how, user_audio } => self.end_spoken_run(how, &user_audio).await,
            VoiceEffect::FailRun(failure) => {
                let error = error_of(failure);
                if let Some(mut span) = voice.take_span() {
                    span.failed(&error);
                }
                self.run_failed(error).await;
            }
            VoiceEffect::AskByRun(question) => {
                let closing = voice.take_closing();
                self.start_run(&question, closing).await;
            }
            VoiceEffect::Checkpoint => self.checkpoint().await,
            VoiceEffect::DropRecording => voice.drop_model_audio(),
            VoiceEffect::Interrupted => self.live.interrupt(),
            VoiceEffect::ModalityChanged(modality) => {
                let modality = match modality {
                    Modality::Audio => WireModality::Audio,
                    Modality::Text => WireModality::Text,
                };
                self.live.send(Outgoing::Modality(modality));
            }
            VoiceEffect::Refuse(failure) => {
                let error = error_of(failure);
                let message = secrets::hide_from_users(error.message()).into_owned();
                let error = ChatError::LiveAgentFailed { message };
                self.live.send(Outgoing::Failed(error));
            }
            VoiceEffect::Ignored { input, state } => {
                tracing::warn!(
                    chat,
                    input,
                    state,
                    "the voice of chat {chat} ignored {input} in the state {state}"
                );
            }
        }
    }

    // Turns.

    /// Begins the turn that waits, if there is one and nothing else is under way. A reply with an open question is set
    /// aside.
    async fn begin_spoken_turn(&mut self) {
        let voice = self.voice.as_ref();
        if !voice.is_some_and(|voice| voice.is_deferred())
            || self.engine.is_unfinished() && !self.set_aside()
        {
            return;
        }
        self.handle_voice_input(VoiceInput::TurnGranted).await;
        let client = self.live.attached();
        let origin = RequestOrigin {
            transport: "live",
            mode: Audience::Connection,
            connection: client.map(LiveClient::connection),
        };
        let dialect = client.map_or(Dialect::Native, LiveClient::dialect);
        if let Some(client) = client {
            self.context.trace().request_came(client.trace());
        }
        self.engine.turn().request_arrived();
        self.engine.turn().name(origin, dialect);
        let begin = |voice: &mut Box<VoiceSession>| voice.begin_utterance(new_id("msg").into());
        let messages: Vec<Message> = self.voice.as_mut().map(begin).into_iter().collect();
        let begun = match self.context.check_budget().await {
            Ok(()) => self.begin(Audience::Connection, messages, None, true).await,
            refused => refused,
        };
        if let Err(error) = begun {
            if let Some(voice) = &mut self.voice {
                voice.drop_utterance();
            }
            self.handle_voice_input(VoiceInput::TurnRefused).await;
            let error = match error {
                ChatError::OverBudget(_) => {
                    self.live.note_refused_speech();
                    error
                }
                error => {
                    let chat = self.context.chat_id().as_str();
                    tracing::error!(chat, %error, "a spoken turn of chat {chat} cannot be stored");
                    ChatError::SpokenTurnNotStored(Box::new(error))
                }
            };
            return self.live.send(Outgoing::Failed(error));
        }
        let nobody = ReaderOptions {
            dialect,
            sdk: Sdk::default(),
            base: &Base::default(),
        };
        let options = self.live.attached().map_or(nobody, LiveClient::options);
        let reader = self.engine.reader(options, None).await;
        if let Some(stream) = self.engine.attach_to_begun(reader) {
            self.live.begin_turn(stream, self.engine.message_id());
        }
        self.perform().await;
        self.handle_voice_input(VoiceInput::TurnBegun).await;
    }

    /// Feeds a message of the connection to the reply, and performs its effects.
    async fn read_into_reply(
        &mut self,
        read: impl FnOnce(&mut dyn LiveConnection, IncomingSink<'_>) -> Result<(), AgentError>,
    ) {
        let Some(voice) = &mut self.voice else {
            return;
        };
        let Some(brought) = voice.feed(&mut self.engine, self.live.number(), read) else {
            return;
        };
        let progressed = brought.progressed;
        if brought.spoke {
            self.handle_voice_input(VoiceInput::Spoke).await;
        }
        let id = self.engine.message_id();
        self.runs.store_said(id, brought.said).await;
        self.perform().await;
        for (text, finished) in brought.late_words {
            self.add_transcription(&text, finished);
        }
        self.store_utterance().await;
        if let Err(error) = brought.result {
            return self.voice_lost(INVALID, error.detail()).await;
        }
        let called = self.has_unsettled_calls();
        self.handle_voice_input(VoiceInput::MessageTaken { progressed, called })
            .await;
        let calls_open = self
            .voice
            .as_ref()
            .is_some_and(|voice| voice.has_open_calls());
        self.handle_voice_input(VoiceInput::Noticed {
            notices: brought.notices,
            calls_open,
        })
        .await;
    }

    /// Ends the agent's run: stores its recordings, and informs the reply.
    async fn end_spoken_run(&mut self, how: RunEnd, user_audio: &UserAudio) {
        // Before the turn ends, whose tokens are the sum of its runs'.
        let span = self.voice.as_mut().and_then(|voice| voice.take_span());
        if let Some(mut span) = span {
            span.ended(&how);
        }
        self.keep_recordings(user_audio).await;
        self.feed(Input::RunEnded(how)).await;
        let contents = history::contents(&self.past_messages()).len();
        self.handle_voice_input(VoiceInput::RunTaken { contents })
            .await;
        if let Some(voice) = self
            .voice
            .as_mut()
            .filter(|_| self.live.attached().is_none())
        {
            voice.listened_to(false);
        }
    }

    /// Takes the user's speech as text: pieces first, then the whole.
    pub(super) fn add_transcription(&mut self, text: &str, finished: bool) {
        let heard = self
            .voice
            .as_mut()
            .and_then(|it| it.add_transcription(text, finished));
        if let Some(heard) = heard
            && let Some(message) = self.conversation.find_mut(&heard.id)
        {
            message.parts.clone_from(&heard.parts);
        }
    }

    /// Whether calls are unsettled, including those that run on the agent's own server.
    fn has_unsettled_calls(&self) -> bool {
        let calls = self.engine.reply().map(Reply::calls);
        let calls = || calls.into_iter().flat_map(|calls| calls.iter());
        let runs = |it: &Call| it.state == CallState::Running && it.runs_on == RunsOn::Remote;
        calls().any(|it| it.state == CallState::Received) && !calls().any(runs)
    }

    /// Stores the user's utterance, as soon as there is text.
    async fn store_utterance(&mut self) {
        let voice = self.voice.as_mut();
        let Some(message) = voice.and_then(|voice| voice.take_changed_utterance()) else {
            return;
        };
        let (store, chat) = (&self.context.store, self.context.chat());
        if let Err(error) = store.revise(chat, &message).await {
            self.context.note_refused_write(&error);
            tracing::warn!(chat = chat.id.as_str(), %error, "the transcript in chat {} cannot be stored", chat.id);
        }
    }

    // What goes to the agent.

    /// Opens the connection that the machine wants, if it still wants one.
    async fn connect_voice(&mut self) {
        let Some(setup) = self.voice.as_ref().and_then(|voice| voice.setup()) else {
            return;
        };
        let context = self.context.clone();
        let served = context.agent();
        let Some(agent) = served.live() else {
            return;
        };
        match served.memory() {
            MemoryModel::Stateless => {
                let (messages, room) = self.sendable_messages().await;
                if let Some(voice) = &mut self.voice {
                    let tools = context.tools();
                    voice.dial_with_history(
                        agent,
                        context.user(),
                        &setup,
                        &messages,
                        &tools.specs(),
                        (room, context.trace().current()),
                    );
                }
            }
            MemoryModel::Session => {
                let opening = self.dial_in_session(&setup).await;
                if let Some(voice) = &mut self.voice {
                    voice.dialled(opening, 0, 0);
                }
            }
        }
    }

    /// Connects to the agent's session, which knows the conversation.
    async fn dial_in_session(&mut self, setup: &Setup) -> Connecting {
        let last = self.conversation.messages().last();
        let new = last.filter(|_| setup.has_question);
        let before = new.map(|message| message.id.clone());
        let input = NewInput::Message(Json::null());
        let said = transcript(&self.conversation, &self.engine);
        let request = self.runs.session_request(input, before, said).await;
        let (agent, modality) = (self.context.agent(), setup.modality);
        let closing = self.voice.as_mut().and_then(|voice| voice.take_closing());
        Box::pin(on_its_own(async move {
            if let Some(closing) = closing {
                let _ = closing.await;
            }
            let refused = |error| ConnectError { error, code: None };
            let request = request.map_err(refused)?;
            let live = agent.live().ok_or_else(|| refused(no_speech()))?;
            live.connect(LiveRequest::Session { request, modality })
                .await
        }))
    }

    /// Sends what has been added to the conversation outside of it.
    async fn send_news(&mut self) {
        let (messages, _room) = self.sendable_messages().await;
        if let Some(voice) = &mut self.voice {
            let sent = voice.send_news(&messages).await;
            self.note_sent(sent).await;
        }
    }

    /// Asks the agent. What it does not know yet is part of the request.
    async fn send_question(&mut self, question: &Ask) {
        let sent = match self.context.agent().memory() {
            MemoryModel::Stateless => {
                let (messages, _room) = self.sendable_messages().await;
                let Some(voice) = &mut self.voice else {
                    return;
                };
                voice
                    .send_conversation(&messages, self.engine.reply())
                    .await
            }
            MemoryModel::Session => {
                let last = self.conversation.messages().last();
                let mut last: Vec<_> = last.map(Cow::Borrowed).into_iter().collect();
                let _room = attachments::inline_now(&self.context, &mut last).await;
                let Some(voice) = &mut self.voice else {
                    return;
                };
                let last = last.first().map(Cow::as_ref);
                voice.send_new_input(question, last).await
            }
        };
        self.note_sent(sent).await;
    }

    async fn send_user_input(&mut self) {
        if let Some(voice) = &mut self.voice
            && let Err(error) = voice.send_user_input().await
        {
            self.voice_lost(NO_CODE, error.detail()).await;
        }
    }

    /// Informs the machine that something was sent, or that the connection refused it.
    async fn note_sent(&mut self, sent: Sent) {
        match sent {
            None => {}
            Some(Ok(sent)) => self.handle_voice_input(sent).await,
            Some(Err(error)) => self.voice_lost(NO_CODE, error.detail()).await,
        }
    }

    /// The sendable part of the conversation, with its files inlined, and the room that they take.
    async fn sendable_messages(&mut self) -> (Vec<Message>, Option<FileRoom>) {
        let messages = self.past_messages().into_iter();
        let mut messages: Vec<Cow<'_, Message>> = messages.map(Cow::Owned).collect();
        let room = attachments::inline_now(&self.context, &mut messages).await;
        (messages.into_iter().map(Cow::into_owned).collect(), room)
    }

    /// The sendable part of the conversation: without a step whose calls have no results yet, and without the message
    /// that a run is still writing.
    fn past_messages(&self) -> Vec<Message> {
        let mut messages = self.conversation.messages().to_vec();
        let other_run = self
            .voice
            .as_ref()
            .is_some_and(|voice| voice.knows_of_other_run());
        if let Some(reply) = self.engine.reply().filter(|_| !other_run) {
            let mut message = reply.message().clone();
            if reply.calls().iter().any(Call::is_open) {
                let step = |part: &Part| matches!(part, Part::StepStart);
                let last = message.parts.iter().rposition(step);
                message.parts.truncate(last.unwrap_or_default());
            }
            if !message.parts.is_empty() {
                messages.push(message);
            }
        }
        for message in &mut messages {
            let role = message.role;
            message
                .parts
                .retain(|part| !attachments::is_recording(part, role));
        }
        messages
    }

    /// A waiting reply is about to be resumed: its message moves to the end, and its results are new.
    pub(super) fn voice_takes_up(&mut self, id: &MessageId) {
        let mut messages = self.past_messages();
        let Some(place) = messages.iter().position(|message| message.id == *id) else {
            return;
        };
        let unchanged = history::contents(&messages[..place]).len();
        let before = history::contents(&messages).len();
        messages.remove(place);
        let removed = before.saturating_sub(history::contents(&messages).len());
        if let Some(voice) = &mut self.voice {
            voice.note(VoiceInput::TakenUp { unchanged, removed });
        }
    }
}

fn error_of(failure: Failure) -> AgentError {
    match failure {
        Failure::Connection(Some(error)) => error,
        Failure::Connection(None) => AgentError::unreachable(
            "the connection to the live model was lost; speak or write again",
            "the live connection ended too often",
        ),
        Failure::NotUnderstood => AgentError::unreachable(
            "the connection to the agent was lost before your speech was transcribed; say it again",
            "nothing was transcribed before the live connection was lost",
        ),
    }
}

fn no_speech() -> AgentError {
    AgentError::rejected("this agent does not support speech; send text instead", "")
}
