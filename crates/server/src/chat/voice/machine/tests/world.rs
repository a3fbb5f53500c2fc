//! A small chat around the machine: a conversation, a reply, an agent at the far end, and what has to hold between them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use adk_bridge_agents::error::AgentError;
use adk_bridge_agents::live::{Activity, Modality};
use adk_bridge_protocol::outbox::{Ask, Response};
use adk_bridge_protocol::reply::RunEnd;
use serde_json::Value;

use super::super::input_queue::{MAX_AUDIO_BYTES, MAX_ITEMS};
use super::super::user::HANDS_FREE_BYTES;
use super::super::{
    Failure, KEPT, MemoryModel, Notice, UserInput, VoiceEffect, VoiceInput, VoiceMachine,
};

/// Something that happens in this world. What makes no sense at the moment does not happen.
#[derive(Debug, Clone)]
pub(super) enum Act {
    // The user.
    Audio {
        bytes: usize,
        loud: bool,
    },
    Picture,
    KeyDown,
    KeyUp,
    Modality(Modality),
    Attach,
    Detach,
    /// Over the live connection, and over HTTP.
    Write,
    WriteOverHttp,
    Stop,
    /// Edits an earlier message, which cuts the conversation there.
    Edit,
    /// Answers a question, or a tool comes to its end.
    Answer,
    // Somebody else's run.
    OtherEnds,
    // The agent at the far end.
    Open {
        answers_history: bool,
    },
    Refuse(Option<u16>),
    Lose(u16),
    /// From here on nothing that is sent arrives.
    Break,
    Say(Said),
    // Time.
    Wait(Duration),
    /// The next turn cannot be opened, or the reply asks nothing in it.
    RefuseTurn,
    AskNothing,
}

/// What a message of the far end says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Said {
    Heard,
    Spoke,
    Completed,
    SpokeAndCompleted,
    Interrupted,
    /// A call that waits for a human, one of a tool that runs, and one that is settled at once.
    CalledHuman,
    CalledTool,
    CalledUnknown,
    /// So much that the reply is closed.
    TooMuch,
    GoesAway(u8),
    Handle,
    Unreadable,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runner {
    Nobody,
    Voice,
    Other,
}

/// What the reply waits for between two runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Waits {
    Nothing,
    Human,
    Tool,
}

/// The far end of a connection.
#[derive(Debug, Clone, Default)]
struct Far {
    open: bool,
    broken: bool,
    /// Contents that it was sent or has said itself, and those of them that it has surely read.
    known: BTreeSet<u32>,
    read: BTreeSet<u32>,
    /// How much of each piece of speech has come, in the order in which it came.
    audio: Vec<(u16, usize)>,
    explicit: bool,
    active: bool,
    /// The steps whose results it waits for.
    calls: BTreeSet<u32>,
}

pub(super) struct World {
    pub(super) machine: VoiceMachine,
    pub(super) now: Instant,
    /// The effects that were performed, by name.
    pub(super) performed: Vec<String>,
    memory: MemoryModel,
    conversation: Vec<u32>,
    next_content: u32,
    handles: BTreeMap<String, BTreeSet<u32>>,
    far: Option<Far>,
    messages: Vec<Said>,
    runner: Runner,
    waits: Waits,
    /// What has been said in this run, and the step whose calls are open.
    said: Option<u32>,
    step: u32,
    /// Whether its calls are settled as soon as the run is over.
    settles: bool,
    /// The step whose results the reply asks with.
    results_of: Option<u32>,
    has_words: bool,
    /// The steps of replies that were set aside, each with what stands for its results. The model need not know them:
    /// they are sent when they are settled.
    waiting_replies: Vec<[u32; 2]>,
    listener: bool,
    refuse_turn: bool,
    ask_nothing: bool,
    microphone: Mirror,
    next_speech: u16,
    /// Speech that no run has answered.
    unanswered: BTreeMap<u16, usize>,
}

/// The microphone, as the user sees it.
#[derive(Debug, Default)]
enum Mirror {
    #[default]
    HandsFree,
    Pressed,
    /// With what has come since.
    Released {
        withheld: BTreeMap<u16, usize>,
        bytes: usize,
    },
}

impl Mirror {
    fn released() -> Self {
        Self::Released {
            withheld: BTreeMap::new(),
            bytes: 0,
        }
    }
}

impl World {
    pub(super) fn new(memory: MemoryModel) -> Self {
        Self {
            machine: VoiceMachine::new(memory, false),
            now: Instant::now(),
            performed: Vec::new(),
            memory,
            conversation: Vec::new(),
            next_content: 0,
            handles: BTreeMap::new(),
            far: None,
            messages: Vec::new(),
            runner: Runner::Nobody,
            waits: Waits::Nothing,
            said: None,
            step: 0,
            settles: false,
            results_of: None,
            has_words: true,
            waiting_replies: Vec::new(),
            listener: true,
            refuse_turn: false,
            ask_nothing: false,
            microphone: Mirror::HandsFree,
            next_speech: 0,
            unanswered: BTreeMap::new(),
        }
    }

    /// Lets something happen, and what follows from it; then everything has to hold.
    pub(super) fn act(&mut self, act: Act) {
        self.happen(act);
        if self.machine.knows_of_other_run() && self.runner != Runner::Other {
            self.give(VoiceInput::OtherRunEnded);
        }
        if self.machine.is_deferred() {
            self.try_begin();
        }
        self.check();
    }

    /// From here on everything goes well: all that was begun comes to its end, and silence to Off.
    pub(super) fn come_to_rest(&mut self) {
        for _ in 0..20 {
            if let Some(far) = &mut self.far {
                far.broken = false;
            }
            match (&self.far, self.runner) {
                (_, Runner::Other) => self.act(Act::OtherEnds),
                (Some(Far { open: false, .. }), _) => self.act(Act::Open {
                    answers_history: false,
                }),
                (Some(_), Runner::Voice) => self.act(Act::Say(Said::SpokeAndCompleted)),
                _ if self.waits != Waits::Nothing => self.act(Act::Answer),
                (None, Runner::Voice) => self.act(Act::Wait(Duration::from_secs(5))),
                _ => break,
            }
        }
        assert_eq!(self.runner, Runner::Nobody, "a run never ends");
        assert!(!self.machine.is_deferred(), "a turn never begins");
        self.act(Act::Detach);
        for _ in 0..20 {
            self.act(Act::Wait(KEPT));
            if let Some(Far { open: false, .. }) = self.far {
                self.act(Act::Open {
                    answers_history: false,
                });
            }
        }
        assert_eq!(self.machine.state_name(), "Off");
        assert_eq!(self.machine.deadline(), None);
        assert!(self.far.is_none());
    }

    fn happen(&mut self, act: Act) {
        match act {
            Act::Audio { .. } | Act::Picture | Act::KeyDown | Act::KeyUp | Act::Modality(_)
                if !self.listener => {}
            Act::Audio { bytes, loud } => self.speak(bytes, loud),
            Act::Picture => self.give(VoiceInput::Picture {
                data: vec![1].into(),
                media_type: "image/png".into(),
            }),
            Act::KeyDown => {
                self.microphone = Mirror::Pressed;
                self.give(VoiceInput::KeyDown);
            }
            Act::KeyUp => {
                if !matches!(self.microphone, Mirror::HandsFree) {
                    self.microphone = Mirror::released();
                }
                self.give(VoiceInput::KeyUp);
            }
            Act::Modality(modality) => self.give(VoiceInput::Modality(modality)),
            Act::Attach => {
                self.listener = true;
                self.give(VoiceInput::Listener(true));
            }
            Act::Detach => {
                self.listener = false;
                if matches!(self.microphone, Mirror::Pressed) {
                    self.microphone = Mirror::released();
                }
                self.give(VoiceInput::Listener(false));
            }
            Act::Write => self.write(true),
            Act::WriteOverHttp => self.write(false),
            Act::Stop => self.cancel(),
            Act::Edit => {
                if self.runner == Runner::Nobody && self.waits == Waits::Nothing {
                    self.supersede();
                    self.conversation.truncate(self.conversation.len() / 2);
                    self.forgotten();
                    self.give(VoiceInput::Written);
                    self.give(VoiceInput::HistoryCut);
                    self.write(false);
                }
            }
            Act::Answer => self.answer(),
            Act::OtherEnds => {
                if self.runner == Runner::Other {
                    self.runner = Runner::Nobody;
                    self.add_content();
                }
            }
            Act::Open { answers_history } => {
                if let Some(far) = self.far.as_mut().filter(|far| !far.open) {
                    far.open = true;
                    self.give(VoiceInput::Opened { answers_history });
                }
            }
            Act::Refuse(code) => {
                if self.far.as_ref().is_some_and(|far| !far.open) {
                    self.far = None;
                    let error = some_error();
                    self.give(VoiceInput::Refused { code, error });
                }
            }
            Act::Lose(code) => {
                if self.is_read() {
                    self.give(VoiceInput::Lost { code, error: None });
                }
            }
            Act::Break => {
                if let Some(far) = self.far.as_mut() {
                    far.broken = true;
                }
            }
            Act::Say(said) => {
                if self.is_read() {
                    let calls_open = self.far.as_ref().is_some_and(|far| !far.calls.is_empty());
                    let speaks = match said {
                        Said::Heard => !calls_open,
                        Said::Spoke
                        | Said::SpokeAndCompleted
                        | Said::CalledHuman
                        | Said::CalledTool
                        | Said::CalledUnknown
                        | Said::TooMuch => true,
                        _ => false,
                    };
                    // Messages are read when the machine says so: one is its place in this list.
                    self.messages.push(said);
                    let place = self.messages.len() - 1;
                    self.give(VoiceInput::Message {
                        message: place.to_le_bytes().to_vec().into(),
                        begins_turn: speaks && self.machine.is_listening(),
                    });
                }
            }
            Act::Wait(time) => {
                let until = self.now + time;
                while let Some(due) = self.machine.deadline().filter(|due| *due <= until) {
                    self.now = self.now.max(due);
                    self.give(VoiceInput::Tick);
                }
                self.now = until;
            }
            Act::RefuseTurn => self.refuse_turn = true,
            Act::AskNothing => self.ask_nothing = true,
        }
    }

    fn is_read(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.open) && !self.machine.is_deferred()
    }

    fn speak(&mut self, bytes: usize, loud: bool) {
        let id = self.next_speech;
        self.next_speech += 1;
        let sample: i16 = if loud { 1_000 + id as i16 } else { 0 };
        let said = BTreeMap::from_iter(loud.then_some((id, bytes)));
        match &mut self.microphone {
            Mirror::HandsFree | Mirror::Pressed => self.unanswered.extend(said),
            Mirror::Released {
                withheld,
                bytes: all,
            } => {
                withheld.extend(said);
                *all += bytes;
                if *all >= HANDS_FREE_BYTES {
                    self.unanswered.append(withheld);
                    self.microphone = Mirror::HandsFree;
                }
            }
        }
        let pcm = sample.to_le_bytes().repeat(bytes / 2);
        self.give(VoiceInput::Audio(pcm.into()));
    }

    fn write(&mut self, live: bool) {
        self.cancel();
        self.supersede();
        self.unanswered.clear();
        self.give(VoiceInput::Written);
        self.add_content();
        self.has_words = true;
        self.results_of = None;
        self.ask(Ask::History, live);
    }

    /// Ends whatever run there is.
    fn cancel(&mut self) {
        match std::mem::replace(&mut self.runner, Runner::Nobody) {
            Runner::Nobody => return,
            Runner::Voice => self.unanswered.clear(),
            Runner::Other => {
                self.add_content();
            }
        }
        self.said = None;
        self.give(VoiceInput::RunCancelled);
    }

    /// A written message takes all questions back, and their calls get an outcome.
    fn supersede(&mut self) {
        loop {
            if self.waits != Waits::Nothing {
                self.waits = Waits::Nothing;
                self.conversation.push(self.step);
                self.add_content();
            }
            if !self.take_up() {
                return;
            }
        }
    }

    /// Goes on with a reply that was set aside.
    fn take_up(&mut self) -> bool {
        let Some([step, placeholder]) = self.waiting_replies.pop() else {
            return false;
        };
        let unchanged = self.conversation.iter().position(|it| *it == step).unwrap();
        self.conversation
            .retain(|it| *it != step && *it != placeholder);
        self.step = step;
        self.waits = Waits::Human;
        self.give(VoiceInput::TakenUp {
            unchanged,
            removed: 2,
        });
        true
    }

    fn answer(&mut self) {
        if self.runner != Runner::Nobody {
            return;
        }
        if self.waits == Waits::Nothing && !self.take_up() {
            return;
        }
        self.waits = Waits::Nothing;
        self.conversation.push(self.step);
        self.add_content();
        self.results_of = Some(self.step);
        self.ask(self.question(), true);
    }

    fn question(&self) -> Ask {
        match self.memory {
            MemoryModel::Stateless => Ask::History,
            MemoryModel::Session => Ask::Responses(vec![Response {
                id: "call".into(),
                name: "tool".into(),
                response: Value::Null.into(),
            }]),
        }
    }

    fn ask(&mut self, question: Ask, live: bool) {
        let knows_calls = self.far.as_ref().is_some_and(|far| {
            let step = self.results_of.as_ref();
            far.open && step.is_some_and(|step| far.calls.contains(step))
        });
        if live && self.machine.answers(&question, knows_calls) {
            self.runner = Runner::Voice;
            self.give(VoiceInput::Asked(question));
        } else {
            self.runner = Runner::Other;
            self.give(VoiceInput::OtherRunBegan);
        }
    }

    fn try_begin(&mut self) {
        if self.runner != Runner::Nobody || self.waits == Waits::Tool {
            return;
        }
        if self.waits == Waits::Human {
            self.waits = Waits::Nothing;
            self.conversation.push(self.step);
            let placeholder = self.add_content();
            self.waiting_replies.push([self.step, placeholder]);
        }
        self.give(VoiceInput::TurnGranted);
        if std::mem::take(&mut self.refuse_turn) {
            self.forgotten();
            return self.give(VoiceInput::TurnRefused);
        }
        if !std::mem::take(&mut self.ask_nothing) {
            self.has_words = false;
            self.results_of = None;
            assert!(self.machine.answers(&Ask::History, false));
            self.runner = Runner::Voice;
            self.give(VoiceInput::Asked(Ask::History));
        }
        self.give(VoiceInput::TurnBegun);
    }

    /// Reads a message of the far end, as the chat does.
    fn read(&mut self, said: Said) {
        let answering = self.runner == Runner::Voice;
        let speaks = !matches!(
            said,
            Said::Heard | Said::Completed | Said::Interrupted | Said::GoesAway(_) | Said::Handle
        );
        if said == Said::Unreadable {
            return self.give(VoiceInput::Lost {
                code: 1007,
                error: None,
            });
        }
        if answering && said == Said::Heard && !self.has_words {
            self.has_words = true;
            self.say_content();
        }
        if speaks {
            if answering && self.said.is_none() {
                self.said = Some(self.say_content());
            }
            self.give(VoiceInput::Spoke);
        }
        match said {
            Said::TooMuch => self.cancel(),
            Said::Completed | Said::SpokeAndCompleted if answering => {
                self.give(VoiceInput::ModelDone(RunEnd::Done));
            }
            Said::Interrupted if answering => self.give(VoiceInput::ModelDone(RunEnd::Cut)),
            _ => {}
        }
        let called = matches!(
            said,
            Said::CalledHuman | Said::CalledTool | Said::CalledUnknown
        );
        if answering && called {
            self.waits = match said {
                Said::CalledHuman => Waits::Human,
                _ => Waits::Tool,
            };
            // A step with open calls cannot be sent.
            let step = self.said.take().unwrap();
            self.conversation.retain(|it| *it != step);
            self.step = step;
            if let Some(far) = &mut self.far {
                far.calls.insert(step);
            }
        }
        self.settles = answering && said == Said::CalledUnknown;
        self.give(VoiceInput::MessageTaken {
            progressed: !matches!(said, Said::GoesAway(_) | Said::Handle),
            called: answering && called,
        });
        let notices = match said {
            Said::GoesAway(seconds) => vec![Notice::GoAway(Duration::from_secs(seconds.into()))],
            Said::Handle => vec![Notice::Resumable(self.handle())],
            _ => Vec::new(),
        };
        let calls_open = self.far.as_ref().is_some_and(|far| !far.calls.is_empty());
        self.give(VoiceInput::Noticed {
            notices,
            calls_open,
        });
    }

    /// A handle holds what the far end has surely read by then, and no more.
    fn handle(&mut self) -> String {
        let name = format!("handle {}", self.handles.len());
        let read = self.far.as_ref().map(|far| far.read.clone());
        self.handles.insert(name.clone(), read.unwrap_or_default());
        name
    }

    fn add_content(&mut self) -> u32 {
        self.next_content += 1;
        self.conversation.push(self.next_content);
        self.next_content
    }

    /// Something that the far end has heard or said itself.
    fn say_content(&mut self) -> u32 {
        let content = self.add_content();
        if let Some(far) = &mut self.far {
            far.known.insert(content);
        }
        content
    }

    fn forgotten(&mut self) {
        self.unanswered.clear();
        self.microphone = Mirror::HandsFree;
    }

    fn give(&mut self, input: VoiceInput) {
        for effect in self.machine.handle(input, self.now) {
            self.performed.push(name_of(&effect));
            self.perform(effect);
        }
    }

    fn perform(&mut self, effect: VoiceEffect) {
        match effect {
            VoiceEffect::Connect => self.connect(),
            VoiceEffect::Close { .. } => {
                // One that refused is gone already.
                self.far = None;
            }
            VoiceEffect::SendInput => {
                while let Some(input) = self.machine.next_input() {
                    if !self.send(|far| far.take(input)) {
                        return;
                    }
                }
            }
            VoiceEffect::SendNews => {
                let news = self.news();
                if self.send(|far| far.known.extend(news)) {
                    self.sent();
                }
            }
            VoiceEffect::SendQuestion(question) => {
                assert_eq!(self.runner, Runner::Voice);
                if self.memory == MemoryModel::Session
                    && question == Ask::History
                    && !self.has_words
                {
                    return self.give(VoiceInput::NothingToAsk);
                }
                let news = self.news();
                let last = self.conversation.last().copied();
                let step = self.results_of.unwrap_or_default();
                let mut alone = false;
                let sent = self.send(|far| {
                    // Nothing but the results that it waits for.
                    alone = far.calls.remove(&step);
                    match alone {
                        true => far.known.extend(last),
                        false => far.known.extend(news),
                    }
                });
                if sent && alone {
                    self.give(VoiceInput::ResultsSent {
                        contents: self.conversation.len(),
                    });
                } else if sent {
                    self.sent();
                }
            }
            VoiceEffect::ExpectAnswer => {
                assert_eq!(self.memory, MemoryModel::Session);
                assert_eq!(self.runner, Runner::Voice);
            }
            VoiceEffect::KeepSession => assert_eq!(self.memory, MemoryModel::Session),
            VoiceEffect::BeginTurn => self.try_begin(),
            VoiceEffect::Feed(message) => {
                let place = usize::from_le_bytes((&message[..]).try_into().unwrap());
                self.read(self.messages[place]);
            }
            VoiceEffect::EndRun { .. } => {
                assert_eq!(self.runner, Runner::Voice);
                self.runner = Runner::Nobody;
                self.said = None;
                self.unanswered.clear();
                if let Some(far) = &mut self.far {
                    far.read = far.known.clone();
                }
                if std::mem::take(&mut self.settles) {
                    self.answer();
                }
                self.give(VoiceInput::RunTaken {
                    contents: self.conversation.len(),
                });
                if !self.listener {
                    self.give(VoiceInput::Listener(false));
                }
            }
            VoiceEffect::FailRun(failure) => {
                assert_eq!(self.runner, Runner::Voice);
                self.runner = Runner::Nobody;
                self.said = None;
                if let Failure::Connection(_) = failure {
                    self.forgotten();
                }
            }
            VoiceEffect::Refuse(_) => self.forgotten(),
            VoiceEffect::AskByRun(question) => {
                assert_eq!(self.memory, MemoryModel::Session);
                assert_ne!(question, Ask::History);
                assert_eq!(self.runner, Runner::Voice);
                self.runner = Runner::Other;
            }
            VoiceEffect::Checkpoint => assert_eq!(self.runner, Runner::Voice),
            VoiceEffect::DropRecording
            | VoiceEffect::Interrupted
            | VoiceEffect::ModalityChanged(_) => {}
            VoiceEffect::Ignored { input, state } => panic!("{input} in {state}"),
        }
    }

    fn connect(&mut self) {
        let Some(setup) = self.machine.setup() else {
            return;
        };
        assert!(self.far.is_none(), "two connections");
        let all = self.conversation.len();
        let (mark, mut known) = match &setup.from {
            None => (0, BTreeSet::new()),
            Some(from) => (from.mark.min(all), self.handles[&from.handle].clone()),
        };
        self.check_known(mark, &known, "a session");
        let read = known.clone();
        known.extend(&self.conversation[mark..]);
        self.far = Some(Far {
            known,
            read,
            explicit: setup.activity == Activity::Explicit,
            ..Far::default()
        });
        self.give(VoiceInput::Dialled {
            contents: all,
            confirmed: mark,
        });
    }

    /// What has yet to be sent to the far end, according to the machine.
    fn news(&self) -> Vec<u32> {
        let sent = self.machine.contents_sent().min(self.conversation.len());
        self.conversation[sent..].to_vec()
    }

    /// Sends something. A connection that takes nothing is lost.
    fn send(&mut self, send: impl FnOnce(&mut Far)) -> bool {
        let far = self.far.as_mut().expect("an open connection");
        assert!(far.open);
        if far.broken {
            self.give(VoiceInput::Lost {
                code: 1006,
                error: None,
            });
            return false;
        }
        send(far);
        true
    }

    fn sent(&mut self) {
        self.give(VoiceInput::Sent {
            contents: self.conversation.len(),
        });
    }

    fn check(&self) {
        let state = self.machine.state_name();
        assert_eq!(
            self.machine.has_run(),
            self.runner == Runner::Voice,
            "{state}: who answers?"
        );
        let (items, audio) = self.machine.queue.size();
        assert!(items <= MAX_ITEMS && audio <= MAX_AUDIO_BYTES);
        if self.memory == MemoryModel::Session {
            assert!(
                self.far.is_none() || self.runner != Runner::Other,
                "{state}: two writers in one session"
            );
        }
        // Whatever waits for a deadline or for a client has a deadline.
        let deadline = self.machine.deadline();
        if matches!(state, "Backoff") || !self.listener && !matches!(state, "Off" | "Deferred") {
            let due = deadline.unwrap_or_else(|| panic!("{state}: nobody looks at the clock"));
            assert!(due <= self.now + KEPT);
        }
        assert_eq!(
            state == "Connecting",
            self.far.as_ref().is_some_and(|far| !far.open)
        );
        let Some(far) = self.far.as_ref().filter(|far| far.open) else {
            return;
        };
        self.check_known(self.machine.contents_sent(), &far.known, "a model");
        assert_eq!(
            items, 0,
            "{state}: something waits although there is a connection"
        );
        let mut heard = BTreeMap::new();
        for (id, bytes) in &far.audio {
            *heard.entry(*id).or_insert(0) += bytes;
        }
        assert!(far.audio.is_sorted_by_key(|(id, _)| *id), "out of order");
        if matches!(state, "Listening" | "Deferred") {
            for (id, bytes) in &self.unanswered {
                assert_eq!(
                    heard.get(id),
                    Some(bytes),
                    "{state}: speech was lost, or said twice"
                );
            }
        }
    }

    fn check_known(&self, claimed: usize, known: &BTreeSet<u32>, who: &str) {
        if self.memory == MemoryModel::Session {
            return;
        }
        for content in self.conversation.iter().take(claimed) {
            assert!(
                known.contains(content)
                    || self
                        .waiting_replies
                        .iter()
                        .flatten()
                        .any(|it| it == content),
                "{who} does not know {content} of {:?}",
                self.conversation
            );
        }
    }
}

impl Far {
    fn take(&mut self, input: UserInput) {
        match input {
            UserInput::Audio(pcm) => {
                assert!(
                    !self.explicit || self.active,
                    "audio before the key went down"
                );
                for sample in pcm.chunks_exact(2) {
                    let sample = i16::from_le_bytes([sample[0], sample[1]]);
                    let Ok(id @ 0..) = u16::try_from(sample - 1_000) else {
                        continue;
                    };
                    match self.audio.last_mut() {
                        Some((last, bytes)) if *last == id => *bytes += 2,
                        _ => self.audio.push((id, 2)),
                    }
                }
            }
            UserInput::ActivityStart => {
                assert!(self.explicit);
                self.active = true;
            }
            UserInput::ActivityEnd => {
                assert!(self.active, "a key went up that was not down");
                self.active = false;
            }
            UserInput::Picture { .. } | UserInput::AudioStreamEnd => {}
        }
    }
}

pub(super) fn some_error() -> AgentError {
    AgentError::unreachable("no", "")
}

/// The name of an effect, without what is in it.
pub(super) fn name_of(effect: &VoiceEffect) -> String {
    let all = format!("{effect:?}");
    let end = all.find(|char: char| !char.is_alphanumeric());
    all[..end.unwrap_or(all.len())].to_owned()
}
