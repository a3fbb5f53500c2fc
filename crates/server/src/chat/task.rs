//! The task of one chat: it owns the conversation, the reply, the agent's run and the readers.
//!
//! Endpoints only send it commands, so two things never happen to one chat at once. Its loop waits for whatever comes
//! next (a command, a tool, the agent, the live agent, time), turns it into an input of the reply and lets the
//! [`ReplyEngine`] perform its effects.

mod admission;
mod agent;
mod alarm;
mod credentials;
mod declared_tools;
mod ending;
mod later_results;
mod lifetime;
mod live;
mod loading;
mod requests;
mod set_aside;
mod voice;

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use adk_bridge_agents::error::AgentError;
use adk_bridge_protocol::approval::Refusal;
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::Ask;
use adk_bridge_protocol::reply::{Audience, CloseReason, Input, Record, Reply, RunEnd};
use adk_bridge_protocol::wire::live::Close;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use uuid::Uuid;

use super::Shared;
use super::agent_runs::{AgentRuns, Progress, Transcript};
use super::command::{Command, Left, refuse_all};
use super::context::ChatContext;
use super::conversation::Conversation;
use super::engine::{Abandoned, Action, EngineEvent, ReaderOptions, ReplyEngine};
use super::error::ChatError;
use super::holds::Holds;
use super::live::{LiveAsk, LiveClients, LiveCommand};
use super::loaded::Loaded;
use super::tool_runs::{ToolEvent, ToolFinished};
use super::voice::{VoiceInput, VoiceSession, next_event};
use super::waiting::WaitingReplies;
use crate::admission::Permit;
use crate::cluster::Owned;
use crate::failpoint::failpoint;
use crate::secrets;
use lifetime::Lifetime;

/// How often an idle answer is kept alive; proxies commonly close after a minute.
const KEEP_ALIVE: Duration = Duration::from_secs(15);
/// How much of an agent's answer is sent in one write. A write costs as much as all other work on a delta together.
/// Larger ones gain nothing, and would fill the queue of a reader that stops with more bytes.
const MAX_JOINED: usize = 64 * 1024;

pub(super) struct Task {
    context: ChatContext,
    conversation: Conversation,
    engine: ReplyEngine,
    waiting: WaitingReplies,
    runs: AgentRuns,
    live: LiveClients,
    /// The voice conversation, once the user has spoken.
    voice: Option<Box<VoiceSession>>,
    /// Answers that are held because their posts brought nothing new.
    holds: Holds,
    /// Requests that wait until started tools have ended.
    queue: VecDeque<Command>,
    /// The right to have a turn or a voice conversation under way.
    permit: Option<Permit>,
    /// Its memory.
    loaded: Loaded,
    lifetime: Lifetime,
}

/// A piece of the agent's answer that has been fed to the reply, whose effects are still to be performed.
struct FedPiece {
    came: Instant,
    /// Whether more pieces are probably ready.
    hurried: bool,
    bytes: usize,
    result: Result<(), AgentError>,
}

impl Task {
    /// Serves the chat until it is no longer needed. The history is loaded when a command needs it. A command that
    /// arrives while the task is leaving stays in `commands`.
    pub(super) async fn serve(
        shared: Arc<Shared>,
        user: &UserId,
        chat_id: &ChatId,
        owned: Option<Owned>,
        commands: &mut mpsc::Receiver<Box<Command>>,
        left: &mut Left,
    ) {
        let mut task = Self::new(ChatContext::new(shared, user, chat_id, owned));
        // One alarm for all deadlines. It may ring too early and is then set again: setting it costs more than reading
        // the clock, and most deadlines move before they are reached.
        let mut alarm = pin!(tokio::time::sleep(KEEP_ALIVE));
        let mut rang = false;
        loop {
            if !task.context.is_held() {
                left.commands = Box::pin(task.let_go()).await;
                return;
            }
            if task.engine.is_abandoned() {
                return Box::pin(task.finish_tools()).await;
            }
            let room = task.engine.readers().have_room();
            let grows = task.loaded.may_grow();
            if !std::mem::take(&mut rang) {
                task.lifetime.active_at = Instant::now();
            }
            let expects_event = task.engine.expects_event();
            if let Some(due) = task.due()
                && due < alarm.deadline()
            {
                alarm.as_mut().reset(due);
            }
            // Boxed, all of them, so that rare branches do not grow the future of an idle task.
            tokio::select! {
                biased;
                command = commands.recv() => match command.map(|command| *command) {
                    Some(Command::Close { answer }) => {
                        Box::pin(task.stop_elsewhere(true)).await;
                        Box::pin(task.stop_everything()).await;
                        Box::pin(task.count()).await;
                        task.live.close(Close::NOT_FOUND);
                        let _ = answer.send(task.context.still_owned());
                        let refusal = || ChatError::NoSuchChat;
                        return Box::pin(refuse_all(task.queue, commands, refusal)).await;
                    }
                    Some(Command::ShutDown { answer }) => {
                        Box::pin(task.shut_down()).await;
                        task.live.close(Close::GOING_AWAY);
                        let _ = answer.send(());
                        return;
                    }
                    Some(Command::HandOver { until, answer }) => {
                        task.lifetime.leave_by(until);
                        left.waiting.push(answer);
                    }
                    Some(command) => Box::pin(task.command(command)).await,
                    None => return,
                },
                event = task.engine.next_event(), if expects_event => match event {
                    EngineEvent::Tool(event) => Box::pin(task.tool_event(event)).await,
                    EngineEvent::ReadersHaveRoom => {}
                },
                progress = task.runs.progress(), if room && grows && task.runs.is_active() => {
                    match progress {
                        Progress::Started(run) => Box::pin(task.runs.started(run)).await,
                        Progress::Piece(piece) => if let Some(fed) = task.piece(&piece) {
                            Box::pin(task.pieces(fed)).await;
                        },
                        Progress::Over => Box::pin(task.run_over()).await,
                        Progress::Failed(error) => Box::pin(task.run_failed(error)).await,
                    }
                }
                event = next_event(&mut task.voice), if room && task.voice.is_some() => {
                    Box::pin(task.voice_event(event)).await;
                }
                () = task.live.wait_until_gone() => {
                    task.live.detach();
                    if let Some(voice) = &mut task.voice {
                        voice.listened_to(false);
                    }
                }
                () = task.loaded.room(), if !grows || task.loaded.is_wanted() => rang = true,
                () = alarm.as_mut() => {
                    if Box::pin(task.ring()).await {
                        Box::pin(task.conversation.store_seen(&task.context)).await;
                        Box::pin(task.count()).await;
                        if commands.is_empty() {
                            return;
                        }
                    }
                    rang = true;
                    alarm.as_mut().reset(Instant::now() + KEEP_ALIVE);
                }
            }
            if !task.queue.is_empty() {
                Box::pin(task.take_queued()).await;
            }
            while !task.is_busy()
                && let Some(command) = task.waiting.next_deferred()
            {
                Box::pin(task.command(command)).await;
            }
            if let Some(voice) = &task.voice
                && voice.may_go_on(task.runs.is_active())
            {
                Box::pin(task.voice_goes_on()).await;
            }
            if !grows {
                task.grow();
            }
            if task.permit.is_some() && (task.is_at_rest() || task.only_asks()) {
                task.permit = None;
                Box::pin(task.count()).await;
            }
            if task.rests_at().is_some_and(|at| at <= Instant::now()) {
                Box::pin(task.rest()).await;
            }
            if task.loaded.is_wanted() {
                Box::pin(task.bring_back_wanted()).await;
            }
            if let Some(until) = task.lifetime.leaving()
                && commands.is_empty()
                && (task.may_leave() || until <= Instant::now())
            {
                left.commands = Box::pin(task.hand_over()).await;
                return;
            }
        }
    }

    fn new(context: ChatContext) -> Self {
        Self {
            engine: ReplyEngine::new(context.clone()),
            loaded: Loaded::new(context.capacity.loaded.clone(), context.user()),
            conversation: Conversation::default(),
            waiting: WaitingReplies::default(),
            runs: AgentRuns::new(context.clone()),
            live: LiveClients::default(),
            voice: None,
            holds: Holds::default(),
            queue: VecDeque::new(),
            permit: None,
            lifetime: Lifetime::new(context.is_shared()),
            context,
        }
    }

    // Inputs of the reply and their effects.

    /// Feeds one input to the reply and performs its effects. Returns the answers that were refused.
    async fn feed(&mut self, input: Input<'_>) -> Vec<Refusal> {
        // An ended reply only refuses.
        if self.engine.is_unfinished() {
            self.loaded.note_change();
        }
        let pre_attached = match self.live.attached() {
            Some(_) => self.pre_attach(&input).await,
            None => None,
        };
        self.engine.feed(input);
        match pre_attached {
            None => self.perform().await,
            Some(answer) => {
                self.deliver_or_drop(answer);
                self.perform().await;
                self.end_chunks_without_turn();
            }
        }
        self.engine.take_refusals()
    }

    /// Performs the effects of an input, in order, and sends the frames to readers.
    async fn perform(&mut self) {
        self.perform_unsent().await;
        self.engine.flush();
    }

    /// Like [`Task::perform`], but does not send yet: more follows that can be sent together.
    async fn perform_unsent(&mut self) {
        if self.engine.begins_turn() {
            self.holds.end_all();
        }
        loop {
            match self.engine.next_action().await {
                Ok(None) => return,
                Ok(Some(action)) => self.act(action).await,
                // The loop lets go of the chat.
                Err(Abandoned::Fenced) => return,
                Err(Abandoned::NotStored(why)) => {
                    self.holds.end_all();
                    self.engine.abandon(why);
                    self.runs.cancel();
                    self.waiting.clear();
                    self.live.turn_ended();
                    return;
                }
            }
        }
    }

    async fn act(&mut self, action: Action) {
        match action {
            Action::Ask(ask) => self.ask(&ask).await,
            Action::CancelRun => {
                self.runs.cancel();
                self.handle_voice_input(VoiceInput::RunCancelled).await;
            }
            Action::Heard { text, finished } => self.add_transcription(&text, finished),
            Action::Interrupted => {
                self.engine.flush();
                self.live.interrupt();
                self.handle_voice_input(VoiceInput::ModelDone(RunEnd::Cut))
                    .await;
            }
            Action::TurnComplete => {
                self.handle_voice_input(VoiceInput::ModelDone(RunEnd::Done))
                    .await
            }
            Action::TurnEnded => self.live.turn_ended(),
        }
    }

    /// Ends a held turn, because something else follows.
    async fn end_hold(&mut self) {
        if self
            .engine
            .reply()
            .is_some_and(|reply| reply.hold_until().is_some())
        {
            self.feed(Input::EndHold).await;
        }
    }

    async fn tool_event(&mut self, event: ToolEvent) {
        match event {
            ToolEvent::Finished(finished) => self.tool_finished(finished).await,
            ToolEvent::Asks { call, question } => {
                let (call, question) = (&call, &question);
                self.feed(Input::ToolAsks { call, question }).await;
            }
            ToolEvent::Withdrew(question) => {
                let question = &question;
                self.feed(Input::QuestionWithdrawn { question }).await;
            }
            ToolEvent::Progress { call, progress } => {
                let (call, progress) = (&call, &progress);
                self.feed(Input::ToolProgress { call, progress }).await;
            }
        }
    }

    async fn tool_finished(&mut self, finished: ToolFinished) {
        if let Some((call, outcome)) = self.engine.tool_outcome(finished).await {
            let call = &call;
            self.feed(Input::ToolFinished { call, outcome }).await;
        }
    }

    // The agent.

    async fn ask(&mut self, question: &Ask) {
        failpoint("before", "model");
        let question = self.with_credentials(question).await;
        if !self.context.is_held() {
            // What was granted is for the next owner to send; the loop lets go of the chat.
            return;
        }
        let question = question.as_ref();
        if let Some(voice) = &self.voice {
            let over_http = self.engine.reply().and_then(Reply::turn) == Some(Audience::Request);
            if !over_http && !credentials::are_in(question) && voice.answers(question) {
                return self
                    .handle_voice_input(VoiceInput::Asked(question.clone()))
                    .await;
            }
            self.handle_voice_input(VoiceInput::OtherRunBegan).await;
        }
        let voice = self.voice.as_mut();
        let closing = voice.and_then(|voice| voice.take_closing());
        self.start_run(question, closing).await;
    }

    /// Starts a run of the agent. `closing`: a live connection that is being closed.
    async fn start_run(&mut self, question: &Ask, closing: Option<JoinHandle<()>>) {
        let mut said = transcript(&self.conversation, &self.engine);
        let step = self.engine.reply().and_then(Reply::asking_step);
        if step == Some(1) && matches!(question, Ask::Responses(_)) {
            // The reply has begun with a result, and the agent has said nothing in it.
            said.reply = None;
        }
        self.runs.start(question, said, closing).await;
    }

    /// Feeds a piece and sends its chunks, if they are text that streams: nearly all pieces are, and need no wait. Otherwise
    /// [`Task::pieces`] has to go on with what is returned.
    fn piece(&mut self, piece: &[u8]) -> Option<FedPiece> {
        let came = Instant::now();
        let fed = FedPiece {
            came,
            hurried: self.runs.is_hurried(came),
            bytes: piece.len(),
            result: self.runs.feed_piece(piece, &mut self.engine),
        };
        if fed.hurried
            || fed.result.is_err()
            || self.runs.has_said()
            || self.engine.is_checkpoint_due(came)
            || !self.engine.only_streams()
        {
            return Some(fed);
        }
        failpoint("in", "model");
        self.engine.pass_on();
        self.engine.turn().passed_on(came.elapsed());
        self.grow();
        None
    }

    /// Feeds all pieces that are ready from the agent's socket, and sends their chunks in one write. What follows from
    /// them is done once for all of them, which costs as much as for one.
    async fn pieces(&mut self, first: FedPiece) {
        let FedPiece {
            came,
            hurried,
            bytes: mut joined,
            mut result,
        } = first;
        let mut after = loop {
            let message = self.engine.message_id();
            self.runs.store_what_was_said(message).await;
            failpoint("in", "model");
            if let Err(error) = result {
                break Some(Progress::Failed(error));
            }
            if !hurried || joined >= MAX_JOINED {
                break None;
            }
            match self.runs.at_hand().await {
                Some(Progress::Piece(piece)) => {
                    joined += piece.len();
                    result = self.runs.feed_piece(&piece, &mut self.engine);
                }
                other => break other,
            }
        };
        self.perform().await;
        self.engine.turn().passed_on(came.elapsed());
        if !self.runs.is_active() {
            // The reply has ended before its run, whose end does not matter any more.
            after = None;
        }
        match after {
            None | Some(Progress::Started(_) | Progress::Piece(_)) => self.checkpoint().await,
            Some(Progress::Over) => self.run_over().await,
            Some(Progress::Failed(error)) => self.run_failed(error).await,
        }
        self.grow();
    }

    async fn run_over(&mut self) {
        let fed = self.runs.feed_rest(&mut self.engine).await;
        self.perform_unsent().await;
        match fed {
            Ok(()) => drop(self.feed(Input::RunEnded(RunEnd::Done)).await),
            Err(error) => self.run_failed(error).await,
        }
    }

    async fn run_failed(&mut self, error: AgentError) {
        self.runs.cancel();
        self.context.metrics.agent_failed();
        let id = Uuid::new_v4().simple().to_string();
        let (id, chat) = (&id[..8], self.context.chat_id().as_str());
        tracing::warn!(chat, error = id, kind = %error.kind(), detail = error.detail(), "the agent of chat {chat} failed (error {id})");
        let message = format!("{} (error {id})", secrets::hide_from_users(error.message()));
        self.feed(Input::RunEnded(RunEnd::Failed(message))).await;
    }

    /// Stores the growing message, if a checkpoint is due.
    async fn checkpoint(&mut self) {
        if self.runs.is_active() || self.is_voice_asked() {
            self.engine.checkpoint().await;
        }
    }

    // The voice session, if there is one.

    /// Gives the voice session an input, and performs its effects.
    async fn handle_voice_input(&mut self, input: VoiceInput) {
        if self.voice.is_some() {
            Box::pin(self.drive_voice(input)).await;
        }
    }

    /// Whether the voice session runs the reply.
    fn is_voice_asked(&self) -> bool {
        self.voice.as_ref().is_some_and(|voice| voice.has_run())
    }

    /// Whether a voice conversation is under way, or about to be.
    fn is_spoken_with(&self) -> bool {
        self.voice.as_ref().is_some_and(|voice| !voice.is_closed())
    }

    /// Whether the user speaks, or may have said something that is not noticed yet.
    fn is_spoken_to(&self) -> bool {
        self.voice
            .as_ref()
            .is_some_and(|voice| voice.is_spoken_to())
    }

    // Commands.

    /// Handles a command. Handlers of requests only feed the reply; the effects are performed here.
    async fn command(&mut self, command: Command) {
        let Some(command) = self.loaded_for(command).await else {
            return;
        };
        // A post may bring nothing new, and two such clients would keep ending each other's holds.
        let brings = !matches!(
            command,
            Command::Post { .. }
                | Command::Live(LiveCommand::Ask {
                    ask: LiveAsk::Message(_),
                    ..
                })
        );
        let waiting = self.waiting.named_by(&command, self.engine.reply());
        if brings && waiting.is_some() {
            self.end_hold().await;
        }
        let command = match waiting.filter(|id| !self.take_up(id)) {
            None => command,
            Some(_) => match self.waiting.defer(command) {
                Some(command) => command,
                None => return,
            },
        };
        match command {
            Command::Post {
                request,
                origin,
                answer,
            } => self.post(request, origin, answer).await,
            Command::Resume {
                dialect,
                sdk,
                base,
                answer,
            } => {
                let base = &base;
                let options = ReaderOptions { dialect, sdk, base };
                let reader = self.engine.reader(options, None).await;
                let stream = self.resume(reader);
                let _ = answer.send(Ok(stream));
                self.engine.flush();
            }
            Command::Listed { last, news, answer } => {
                let current = self.engine.message_id();
                if current.is_some() && current == last.as_ref() {
                    // Whoever loads the chat again has all of it.
                    self.lifetime.readers_are_back();
                }
                self.conversation.note_listed(last.as_ref(), &news, current);
                let _ = answer.send(());
            }
            Command::Stop { answer } => {
                self.feed(Input::Close(CloseReason::Stopped)).await;
                let _ = answer.send(self.context.still_owned());
            }
            Command::ToolOutput {
                call_id,
                outcome,
                answer,
            } => self.take_output(call_id, outcome, answer).await,
            Command::Credential {
                call_id,
                decision,
                answer,
            } => {
                let _ = answer.send(Box::pin(self.credential(&call_id, *decision)).await);
            }
            Command::Live(command) => Box::pin(self.live_command(command)).await,
            Command::Boot
            | Command::LetGo
            | Command::HandOver { .. }
            | Command::Close { .. }
            | Command::ShutDown { .. } => {}
        }
        self.perform().await;
    }

    /// Goes on with requests that waited for started tools.
    async fn take_queued(&mut self) {
        while !self.engine.is_unfinished() {
            let Some(command) = self.queue.pop_front() else {
                return;
            };
            self.command(command).await;
        }
    }

    /// Whether a turn is open, the agent is asked, or tools run.
    fn is_busy(&self) -> bool {
        let reply = self.engine.reply();
        reply.is_some_and(|reply| reply.turn().is_some() || !reply.is_at_rest())
    }
}

/// What was said in the chat so far.
fn transcript<'t>(conversation: &'t Conversation, engine: &'t ReplyEngine) -> Transcript<'t> {
    Transcript {
        messages: conversation.messages(),
        reply: engine.message(),
    }
}

pub fn new_id(kind: &str) -> String {
    format!("{kind}_{}", Uuid::new_v4().simple())
}

/// A reply of which only the message is left.
fn finished_reply(message: Message) -> Reply {
    Reply::restore(Record {
        message: message.into(),
        calls: adk_bridge_protocol::calls::Calls::default(),
        asking: false,
        steps: 0,
        retried: adk_bridge_protocol::reply::Retries::default(),
        ended: Some(adk_bridge_protocol::reply::EndReason::Finished),
    })
}
