//! The voice conversation of a chat as a state machine without I/O: inputs and times go in, effects come out.
//!
//! ```text
//!                                     refused
//!   Off ─────── input ──────▶ Connecting ─────────▶ Backoff
//!    │                         ▲ ▲ ▲ │ ◀──────────────┘ after a pause
//!    │ input, while a run      │ │ │ │
//!    ▼ has the session         │ │ │ └── opened ─────▶ Listening ── somebody speaks ─▶ Deferred
//!   Queued ─── run ended ──────┘ │ │                   │  ▲  │                           │ the chat is free
//!                                │ └── lost, warned, ──┘  │  │ asked                     ▼
//!   Stopped ── input, question ──┘     another modality   │  └─────────▶ Answering ◀─ Beginning
//!    ▲                                                    │               │ │ │   asked
//!    │                                                    └─ its end, ────┘ │ └─ lost or warned before its first word,
//!    └───────────── the run is cancelled ──────────────────  or a call  ────┘    another modality: Connecting
//! ```
//!
//! Every state can change to Off: no listener for 30 seconds, a cut of the history, too many failed connections. If the
//! agent has a session, another run or a cancelled run leads there too. Beginning returns to Listening if the reply
//! asks nothing. A question that the agent has not begun to answer goes with Queued, Backoff and Connecting to the next
//! connection.
//!
//! **Driving it.** Give an input to [`VoiceMachine::handle`] and perform its effects in order, depth first: inputs that
//! result from one effect are handled, with all of their effects, before the next effect. [`VoiceEffect::Connect`] is
//! the only one that may follow an effect with such inputs, so it looks at the current state.
//! [`VoiceMachine::deadline`] says when the next [`VoiceInput::Tick`] is due.
//!
//! **What the agent remembers** ([`MemoryModel`]) is an argument of the machine. An agent without memory is sent the
//! conversation in every connection, and [`Knowledge`] counts how much of it. An agent with a session is sent only what
//! is new, and its session has one writer: a connection and a run exclude each other.

mod connection;
mod input_queue;
mod knowledge;
mod port;
mod state;
#[cfg(test)]
mod tests;
mod user;

use std::mem::take;
use std::time::{Duration, Instant};

use adk_bridge_agents::agent::MemoryModel;
use adk_bridge_agents::live::Modality;
use adk_bridge_agents::live::renewal::Renewal;
use adk_bridge_protocol::outbox::Ask;
use adk_bridge_protocol::reply::RunEnd;

use super::recording::UserAudio;
use input_queue::InputQueue;
pub(crate) use input_queue::UserInput;
use knowledge::Knowledge;
pub(crate) use port::{Effects, Failure, Notice, Setup, VoiceEffect, VoiceInput};
use state::{Dial, Question, Run, State};
use user::Microphone;

/// How long a connection is kept open for a client that may return.
const KEPT: Duration = Duration::from_secs(30);
/// How long an agent may take to show that it has heard something; a sound that it ignores for longer was no speech.
const NOTICED: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(crate) struct VoiceMachine {
    memory: MemoryModel,
    state: State,
    renewal: Renewal<usize>,
    modality: Modality,
    microphone: Microphone,
    queue: InputQueue,
    /// The user's speech that no run has answered.
    user_audio: UserAudio,
    /// When the agent last got something to hear, or would have if there were a connection.
    heard_at: Option<Instant>,
    /// Until when the connection is kept open without a listener.
    leave_at: Option<Instant>,
    /// Whether another run of the chat is under way.
    other_run: bool,
}

impl VoiceMachine {
    /// `other_run`: whether a run of the chat is under way.
    pub(crate) fn new(memory: MemoryModel, other_run: bool) -> Self {
        Self {
            memory,
            state: State::Off,
            renewal: Renewal::default(),
            modality: Modality::Audio,
            microphone: Microphone::HandsFree,
            queue: InputQueue::default(),
            user_audio: UserAudio::default(),
            heard_at: None,
            leave_at: None,
            other_run,
        }
    }

    /// Handles one input. Perform the effects as the module says.
    pub(crate) fn handle(&mut self, input: VoiceInput, now: Instant) -> Effects {
        let mut out = Effects::default();
        if matches!(input, VoiceInput::Asked(_)) {
            // A reply has one run at a time.
            self.no_other_run();
        }
        match input {
            VoiceInput::Audio(pcm) => self.audio(pcm, now, &mut out),
            VoiceInput::Picture { data, media_type } => {
                self.submit(UserInput::Picture { data, media_type }, now, &mut out);
            }
            VoiceInput::KeyDown => self.key_down(now, &mut out),
            VoiceInput::KeyUp => self.key_up(now, &mut out),
            VoiceInput::Modality(modality) => self.change_modality(modality, now, &mut out),
            VoiceInput::Listener(anybody) => self.listener(anybody, now),
            VoiceInput::RunCancelled => self.run_cancelled(&mut out),
            VoiceInput::OtherRunEnded => self.other_run_ended(&mut out),
            VoiceInput::Written => self.user_audio.clear(),
            VoiceInput::HistoryCut => self.forget(&mut out),
            VoiceInput::TakenUp { unchanged, removed } => {
                if let Some(knows) = self.state.knows_mut() {
                    knows.removed(unchanged, removed);
                }
                self.renewal.forget_handle();
            }
            VoiceInput::Tick => self.tick(now, &mut out),
            input => self.step(input, now, &mut out),
        }
        out
    }

    /// Handles inputs whose meaning depends on the state.
    fn step(&mut self, input: VoiceInput, now: Instant, out: &mut Effects) {
        use VoiceInput as In;
        match (&mut self.state, input) {
            // The chat asks this agent, or another run begins.
            (State::Stopped, In::Asked(ask)) => {
                self.renewal.wanted(now);
                self.reconnect(Some(Question::new(ask)), None, now, out);
            }
            (State::Queued { question: None }, In::Asked(ask)) => {
                self.connect(Some(Question::new(ask)), None, out);
            }
            (
                State::Backoff { question, .. } | State::Connecting { question, .. },
                In::Asked(ask),
            ) if question.is_none() => {
                *question = Some(Question::new(ask));
            }
            (State::Listening(link), In::Asked(ask)) => {
                out.push(VoiceEffect::SendQuestion(ask.clone()));
                let (link, run) = (take(link), Run::Asked(Question::new(ask)));
                self.state = State::Answering { link, run };
            }
            (State::Beginning { question, .. }, In::Asked(ask)) if question.is_none() => {
                *question = Some(ask);
            }
            (state, In::OtherRunBegan) if !state.has_run() => self.other_run_began(out),

            // A turn begins because the user speaks.
            (
                State::Listening(link),
                In::Message {
                    message,
                    begins_turn: true,
                },
            ) => {
                let (link, first) = (take(link), message);
                self.state = State::Deferred { link, first };
                out.push(VoiceEffect::BeginTurn);
            }
            (State::Deferred { link, first }, In::TurnGranted) => {
                let (link, first, question) = (take(link), take(first), None);
                self.state = State::Beginning {
                    link,
                    first,
                    question,
                };
            }
            (
                State::Beginning {
                    link,
                    first,
                    question,
                },
                In::TurnBegun,
            ) => {
                let (link, first) = (take(link), take(first));
                self.state = match question.take().map(Question::known).map(Run::Asked) {
                    Some(run) => State::Answering { link, run },
                    None => State::Listening(link),
                };
                if self.memory == MemoryModel::Session {
                    out.push(VoiceEffect::KeepSession);
                }
                out.push(VoiceEffect::Feed(first));
            }
            (State::Beginning { .. }, In::TurnRefused) => self.forget(out),

            // The agent speaks.
            (State::Listening(_) | State::Answering { .. }, In::Message { message, .. }) => {
                out.push(VoiceEffect::Feed(message));
            }
            (State::Answering { run, .. }, In::Spoke) => {
                if let Run::Asked(_) = run {
                    *run = Run::Speaking;
                }
            }
            (State::Answering { run, .. }, In::ModelDone(how)) => {
                if !matches!(run, Run::Over(_)) {
                    *run = Run::Over(how);
                }
            }
            (State::Answering { link, run }, In::MessageTaken { progressed, called }) => {
                let end = match run {
                    Run::Over(how) => Some(how.clone()),
                    Run::Asked(_) | Run::Speaking => called.then_some(RunEnd::Done),
                };
                link.replays &= !matches!(run, Run::Over(_));
                if progressed && !link.replays {
                    self.renewal.progressed();
                }
                match end {
                    Some(how) => {
                        self.state = State::Listening(take(link));
                        self.end_run(how, out);
                    }
                    None => out.push(VoiceEffect::Checkpoint),
                }
            }
            (State::Listening(link), In::MessageTaken { progressed, .. }) => {
                if progressed && !link.replays {
                    self.renewal.progressed();
                }
            }
            (State::Listening(link), In::RunTaken { contents }) => {
                link.knows.finished_run(contents);
            }
            (
                State::Listening(_) | State::Answering { .. },
                In::Noticed {
                    notices,
                    calls_open,
                },
            ) => self.noticed(notices, calls_open, now, out),

            // The connection.
            (
                State::Connecting { question, dial, .. },
                In::Dialled {
                    contents,
                    confirmed,
                },
            ) if dial.is_none() => {
                *dial = Some(Dial {
                    knows: Knowledge::of_setup(contents, confirmed, self.other_run),
                    asks: question.is_some(),
                });
            }
            (
                State::Connecting {
                    question,
                    dial: Some(dial),
                    ..
                },
                In::Opened { answers_history },
            ) => {
                let (question, dial) = (question.take(), take(dial));
                self.heard_at = self.heard_at.map(|_| now);
                self.opened(question, dial, answers_history, out);
            }
            (
                State::Connecting {
                    question,
                    dial: Some(_),
                    ..
                },
                In::Refused { code, error },
            ) => {
                let question = question.take();
                self.renewal.refused(code, now);
                self.reconnect(question, Some(error), now, out);
            }
            (state, In::Lost { code, error }) if state.link().is_some() => {
                let run = take(state).into_run();
                self.lost(run, code, error, now, out);
            }
            (State::Listening(link), In::Sent { contents }) => {
                link.knows.sent(contents, self.other_run);
            }
            (State::Answering { link, run }, In::Sent { contents }) => {
                link.knows.sent(contents, self.other_run);
                run.note_sent();
            }
            (State::Answering { link, run }, In::ResultsSent { contents }) => {
                link.knows.took_part(contents);
                run.note_sent();
            }
            (State::Answering { .. }, In::NothingToAsk) => {
                self.state = State::Off;
                out.push(VoiceEffect::Close { renewed: false });
                out.push(VoiceEffect::FailRun(Failure::NotUnderstood));
            }

            // Words outside of any run, and the end of another run.
            (State::Listening(_), In::Spoke) | (_, In::ModelDone(_)) => {}
            // The connection was lost, or the run cancelled, while this was performed.
            (state, In::TurnBegun | In::MessageTaken { .. } | In::Noticed { .. })
                if state.link().is_none() => {}
            (_, In::RunTaken { .. }) => {}

            (state, input) => out.push(VoiceEffect::Ignored {
                input: input.name(),
                state: state.name(),
            }),
        }
    }
}

/// Queries.
impl VoiceMachine {
    /// Whether there is no connection, and none is being opened.
    pub(crate) fn is_closed(&self) -> bool {
        self.state.is_closed()
    }

    /// Whether this agent runs the reply.
    pub(crate) fn has_run(&self) -> bool {
        self.state.has_run()
    }

    /// Whether a turn waits until the chat is free. Do not read the connection until then.
    pub(crate) fn is_deferred(&self) -> bool {
        matches!(self.state, State::Deferred { .. } | State::Beginning { .. })
    }

    /// Whether the user speaks, or has spoken and the agent has not shown yet that it heard it.
    pub(crate) fn is_spoken_to(&self, now: Instant) -> bool {
        let has_spoken = || !self.user_audio.speech().is_empty();
        matches!(self.microphone, Microphone::Pressed)
            || match &self.state {
                State::Off | State::Stopped => false,
                State::Queued { .. } | State::Backoff { .. } | State::Connecting { .. } => {
                    has_spoken()
                }
                State::Deferred { .. } | State::Beginning { .. } => true,
                State::Listening(_) | State::Answering { .. } => {
                    has_spoken() && self.noticed_by().is_some_and(|by| now < by)
                }
            }
    }

    /// When the agent has noticed what it was sent, if it was speech.
    pub(crate) fn noticed_by(&self) -> Option<Instant> {
        self.heard_at.map(|at| at + NOTICED)
    }

    /// Whether a message with speech would begin a turn.
    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.state, State::Listening(_))
    }

    /// Whether another run of the chat is under way, as far as the machine knows.
    pub(crate) fn knows_of_other_run(&self) -> bool {
        self.other_run
    }

    /// How much of the conversation the model of the current connection, or of the next one, has been sent.
    pub(crate) fn contents_sent(&self) -> usize {
        let knows = self.state.knows();
        knows.map_or(0, Knowledge::contents_sent)
    }

    /// Whether this agent answers a question of the reply. `knows_calls`: whether the connection waits for the results
    /// in the question.
    pub(crate) fn answers(&self, question: &Ask, knows_calls: bool) -> bool {
        match (&self.state, self.memory) {
            // A deferred agent's next words belong to another turn, which waits for this one.
            (State::Off | State::Deferred { .. }, _) => false,
            (_, MemoryModel::Stateless) => true,
            // Another connection would not know the calls.
            (_, MemoryModel::Session) => *question == Ask::History || knows_calls,
        }
    }

    /// The connection to open, if one is wanted and not being opened yet.
    pub(crate) fn setup(&self) -> Option<Setup> {
        let State::Connecting {
            question,
            from,
            dial: None,
        } = &self.state
        else {
            return None;
        };
        Some(Setup {
            from: from.clone(),
            asks: question.is_some(),
            has_question: question.as_ref().is_some_and(|question| !question.sent),
            modality: self.modality,
            activity: self.microphone.activity(),
        })
    }

    /// The next input of the user to send to the connection.
    pub(crate) fn next_input(&mut self) -> Option<UserInput> {
        self.state.link()?;
        self.queue.pop()
    }

    #[cfg(test)]
    fn state_name(&self) -> &'static str {
        self.state.name()
    }

    /// When a tick is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let own = match &self.state {
            // It waits for the chat, which has deadlines of its own.
            State::Off | State::Deferred { .. } | State::Beginning { .. } => return None,
            State::Stopped | State::Queued { .. } | State::Connecting { .. } => None,
            State::Backoff { until, .. } => Some(*until),
            State::Listening(link) | State::Answering { link, .. } => link.review_at,
        };
        own.into_iter().chain(self.leave_at).min()
    }
}

/// Inputs from the chat.
impl VoiceMachine {
    fn run_cancelled(&mut self, out: &mut Effects) {
        if !self.state.has_run() {
            return;
        }
        // The agent cannot be interrupted, so the connection is closed too. The user's speech counts as answered.
        self.user_audio.clear();
        self.close(false, out);
        out.push(VoiceEffect::DropRecording);
        self.state = match self.memory {
            MemoryModel::Stateless => State::Stopped,
            // In another connection it would first repeat the answer that was stopped; a run does not.
            MemoryModel::Session => State::Off,
        };
    }

    fn other_run_began(&mut self, out: &mut Effects) {
        self.other_run = true;
        match self.memory {
            MemoryModel::Stateless => {
                if let Some(knows) = self.state.knows_mut() {
                    knows.other_run_began();
                }
            }
            MemoryModel::Session => {
                self.close(false, out);
                self.state = State::Off;
            }
        }
    }

    fn no_other_run(&mut self) {
        self.other_run = false;
        if let Some(knows) = self.state.knows_mut() {
            knows.other_run_ended();
        }
    }

    fn other_run_ended(&mut self, out: &mut Effects) {
        self.no_other_run();
        if let State::Queued { question } = &mut self.state {
            let question = question.take();
            self.connect(question, None, out);
        }
    }

    /// Forgets everything; the next input opens a new connection.
    fn forget(&mut self, out: &mut Effects) {
        self.close(false, out);
        out.push(VoiceEffect::DropRecording);
        self.state = State::Off;
        self.renewal = Renewal::default();
        self.microphone = Microphone::HandsFree;
        self.queue = InputQueue::default();
        self.user_audio.clear();
    }

    fn end_run(&mut self, how: RunEnd, out: &mut Effects) {
        let user_audio = std::mem::take(&mut self.user_audio);
        out.push(VoiceEffect::EndRun { how, user_audio });
    }
}
