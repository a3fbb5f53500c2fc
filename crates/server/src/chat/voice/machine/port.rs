//! The inputs and effects of the machine.

use std::time::Duration;

use adk_bridge_agents::error::AgentError;
use adk_bridge_agents::live::renewal::Resumption;
use adk_bridge_agents::live::{Activity, ConnectError, Modality};
use adk_bridge_protocol::outbox::Ask;
use adk_bridge_protocol::reply::RunEnd;
use bytes::Bytes;

use super::super::recording::UserAudio;

/// Something that happened.
#[derive(Debug)]
pub(crate) enum VoiceInput {
    // From the live client.
    /// 16-bit PCM, 16 kHz, mono.
    Audio(Bytes),
    Picture {
        data: Bytes,
        media_type: String,
    },
    KeyDown,
    KeyUp,
    Modality(Modality),
    /// Whether a live client is attached.
    Listener(bool),

    // From the chat.
    /// The reply asks this agent, as [`super::VoiceMachine::answers`] decided.
    Asked(Ask),
    /// The reply's run is cancelled, whether it was this agent's or not.
    RunCancelled,
    /// Another run of the chat begins.
    OtherRunBegan,
    /// The other run has ended.
    OtherRunEnded,
    /// The user has written: earlier speech belongs to no turn.
    Written,
    /// The conversation was cut: start again.
    HistoryCut,
    /// A reply was resumed, which removes `removed` contents after the first `unchanged` from the conversation: its
    /// results are new.
    TakenUp {
        unchanged: usize,
        removed: usize,
    },
    /// The chat is free: the waiting turn may be opened.
    TurnGranted,
    /// That turn is open, and what the reply asks at its beginning has been asked.
    TurnBegun,
    /// That turn could not be opened.
    TurnRefused,
    /// An event says that the agent's run is over.
    ModelDone(RunEnd),
    /// The reply has taken the end of the run; the conversation has this many contents.
    RunTaken {
        contents: usize,
    },

    // From the connection.
    /// The connection of [`super::VoiceMachine::setup`] is being opened: it begins with `contents` contents, of which
    /// `confirmed` come from an earlier session.
    Dialled {
        contents: usize,
        confirmed: usize,
    },
    /// It is open. `answers_history`: whether the agent automatically answers the user's last message in its session.
    Opened {
        answers_history: bool,
    },
    Refused {
        code: Option<u16>,
        error: AgentError,
    },
    /// `error`: the reason, if the other side gives one; with a code if another try would fail in the same way.
    Lost {
        code: u16,
        error: Option<ConnectError>,
    },
    /// A message has come. `begins_turn`: whether it contains speech that begins a turn.
    Message {
        message: Bytes,
        begins_turn: bool,
    },
    /// The agent says something in the message that is being read.
    Spoke,
    /// The message has been read, and its effects performed. `called`: whether calls of the agent wait to be settled.
    MessageTaken {
        progressed: bool,
        called: bool,
    },
    /// What the message said about the connection itself, and whether the agent waits for results of calls.
    Noticed {
        notices: Vec<Notice>,
        calls_open: bool,
    },
    /// The connection was sent the conversation up to here, with the question if there is one.
    Sent {
        contents: usize,
    },
    /// The connection was sent only the results that it waits for; with them the conversation has this many contents.
    ResultsSent {
        contents: usize,
    },
    /// The question has no text: the speech had not been understood when the connection was lost.
    NothingToAsk,

    /// Time has passed.
    Tick,
}

/// What a message says about the connection itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Notice {
    /// The connection is closed in this time.
    GoAway(Duration),
    /// The newest handle of the session.
    Resumable(String),
}

/// An effect of the machine.
#[derive(Debug)]
pub(crate) enum VoiceEffect {
    /// Open the connection that [`super::VoiceMachine::setup`] describes, if it still describes one.
    Connect,
    /// Close the connection, or give up opening it. `renewed`: another one replaces it, as planned.
    Close {
        renewed: bool,
    },
    /// Send what [`super::VoiceMachine::next_input`] gives, until it gives nothing.
    SendInput,
    /// Send what has been added to the conversation; it needs no answer.
    SendNews,
    SendQuestion(Ask),
    /// The agent answers automatically: make sure that a missing answer is noticed.
    ExpectAnswer,
    /// Store the agent's session, which was opened before there was a chat to keep it in.
    KeepSession,
    /// Open a turn as soon as the chat is free.
    BeginTurn,
    /// Read this message into the reply.
    Feed(Bytes),
    /// Keep what was recorded, and tell the reply that its run is over.
    EndRun {
        how: RunEnd,
        user_audio: UserAudio,
    },
    FailRun(Failure),
    /// Ask the agent by an ordinary run.
    AskByRun(Ask),
    /// The run continues: store a checkpoint, if one is due.
    Checkpoint,
    /// Drop the recording.
    DropRecording,
    /// Notify the live client that its playback is to be discarded.
    Interrupted,
    /// Notify the live client how the agent answers from here on.
    ModalityChanged(Modality),
    /// Notify the live client that the connection failed, outside of any turn.
    Refuse(Failure),
    /// The input is not legal in this state: the driver has lost track.
    Ignored {
        input: &'static str,
        state: &'static str,
    },
}

/// Why the voice gives up.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Connections ended too often; with the error of the other side, if there is one.
    Connection(Option<AgentError>),
    /// The question was lost with its connection before anything of it was understood.
    NotUnderstood,
}

/// The connection to open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Setup {
    /// The session to resume, and how many contents it knows.
    pub(crate) from: Option<Resumption<usize>>,
    /// Whether the agent has been asked and has to answer.
    pub(crate) asks: bool,
    /// Whether the question has yet to be sent.
    pub(crate) has_question: bool,
    pub(crate) modality: Modality,
    pub(crate) activity: Activity,
}

/// The effects of an input, in order.
#[derive(Debug, Default)]
#[must_use = "effects are to be performed, in order"]
pub(crate) struct Effects(Vec<VoiceEffect>);

impl Effects {
    pub(super) fn push(&mut self, effect: VoiceEffect) {
        self.0.push(effect);
    }
}

impl IntoIterator for Effects {
    type Item = VoiceEffect;
    type IntoIter = std::vec::IntoIter<VoiceEffect>;

    fn into_iter(self) -> Self::IntoIter {
        self.0.into_iter()
    }
}

impl VoiceInput {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Audio(_) => "Audio",
            Self::Picture { .. } => "Picture",
            Self::KeyDown => "KeyDown",
            Self::KeyUp => "KeyUp",
            Self::Modality(_) => "Modality",
            Self::Listener(_) => "Listener",
            Self::Asked(_) => "Asked",
            Self::RunCancelled => "RunCancelled",
            Self::OtherRunBegan => "OtherRunBegan",
            Self::OtherRunEnded => "OtherRunEnded",
            Self::Written => "Written",
            Self::HistoryCut => "HistoryCut",
            Self::TakenUp { .. } => "TakenUp",
            Self::TurnGranted => "TurnGranted",
            Self::TurnBegun => "TurnBegun",
            Self::TurnRefused => "TurnRefused",
            Self::ModelDone(_) => "ModelDone",
            Self::RunTaken { .. } => "RunTaken",
            Self::Dialled { .. } => "Dialled",
            Self::Opened { .. } => "Opened",
            Self::Refused { .. } => "Refused",
            Self::Lost { .. } => "Lost",
            Self::Message { .. } => "Message",
            Self::Spoke => "Spoke",
            Self::MessageTaken { .. } => "MessageTaken",
            Self::Noticed { .. } => "Noticed",
            Self::Sent { .. } => "Sent",
            Self::ResultsSent { .. } => "ResultsSent",
            Self::NothingToAsk => "NothingToAsk",
            Self::Tick => "Tick",
        }
    }
}
