//! The states of the machine, with the data of each.

use std::time::Instant;

use adk_bridge_agents::live::renewal::Resumption;
use adk_bridge_protocol::outbox::Ask;
use adk_bridge_protocol::reply::RunEnd;
use bytes::Bytes;

use super::knowledge::Knowledge;

/// The state of the connection to the live agent; the diagram is in the parent module.
#[derive(Debug, Default)]
pub(super) enum State {
    /// There is no connection, and none is wanted.
    #[default]
    Off,
    /// The connection was closed together with a run that was cancelled. The next input, or the next question, opens
    /// another one.
    Stopped,
    /// A connection is wanted, but a run uses the agent's session.
    Queued { question: Option<Question> },
    /// A connection failed, and is tried again after a pause.
    Backoff {
        until: Instant,
        question: Option<Question>,
    },
    /// A connection is being opened.
    Connecting {
        question: Option<Question>,
        from: Option<Resumption<usize>>,
        /// How it is being opened; `None` until it is.
        dial: Option<Dial>,
    },
    /// The connection is open; the reply's run, if there is one, is not this agent's.
    Listening(Link),
    /// The user speaks, and the turn that begins with this message has to wait until the chat is free. The connection
    /// is not read meanwhile.
    Deferred { link: Link, first: Bytes },
    /// The turn that begins with this message is being opened. `question`: what the reply asks, once it does.
    Beginning {
        link: Link,
        first: Bytes,
        question: Option<Ask>,
    },
    /// This agent runs the reply.
    Answering { link: Link, run: Run },
}

/// What the reply asks. A question that the agent has not begun to answer outlives its connection.
#[derive(Debug)]
pub(super) struct Question {
    pub(super) ask: Ask,
    /// Whether it was sent to the agent, or the agent heard it.
    pub(super) sent: bool,
}

/// The progress of the agent in the reply's run.
#[derive(Debug)]
pub(super) enum Run {
    /// It has said nothing yet.
    Asked(Question),
    Speaking,
    /// It has ended; the rest of the message that says so is still to be read.
    Over(RunEnd),
}

/// How a connection is being opened.
#[derive(Debug, Default)]
pub(super) struct Dial {
    pub(super) knows: Knowledge,
    /// Whether it begins with the question.
    pub(super) asks: bool,
}

/// An open connection.
#[derive(Debug, Default)]
pub(super) struct Link {
    pub(super) knows: Knowledge,
    /// When to check again whether to renew it.
    pub(super) review_at: Option<Instant>,
    /// Whether the agent may be answering what an earlier connection left unanswered: failing in that repeatedly is not
    /// progress.
    pub(super) replays: bool,
}

impl State {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Off => "Off",
            Self::Stopped => "Stopped",
            Self::Queued { .. } => "Queued",
            Self::Backoff { .. } => "Backoff",
            Self::Connecting { .. } => "Connecting",
            Self::Listening(_) => "Listening",
            Self::Deferred { .. } => "Deferred",
            Self::Beginning { .. } => "Beginning",
            Self::Answering { .. } => "Answering",
        }
    }

    /// Whether there is no connection, and none is being opened.
    pub(super) fn is_closed(&self) -> bool {
        matches!(self, Self::Off | Self::Stopped)
    }

    /// Whether there is something to be closed.
    pub(super) fn is_wired(&self) -> bool {
        matches!(self, Self::Connecting { .. }) || self.link().is_some()
    }

    /// Whether the reply waits for this agent.
    pub(super) fn has_run(&self) -> bool {
        match self {
            Self::Off | Self::Stopped | Self::Listening(_) | Self::Deferred { .. } => false,
            Self::Queued { question }
            | Self::Backoff { question, .. }
            | Self::Connecting { question, .. } => question.is_some(),
            Self::Beginning { question, .. } => question.is_some(),
            Self::Answering { .. } => true,
        }
    }

    /// The run that remains when the connection is closed.
    pub(super) fn into_run(self) -> Option<Run> {
        match self {
            Self::Off | Self::Stopped | Self::Listening(_) | Self::Deferred { .. } => None,
            Self::Queued { question }
            | Self::Backoff { question, .. }
            | Self::Connecting { question, .. } => question.map(Run::Asked),
            Self::Beginning { question, .. } => question.map(Question::known).map(Run::Asked),
            Self::Answering { run, .. } => Some(run),
        }
    }

    pub(super) fn link(&self) -> Option<&Link> {
        match self {
            Self::Listening(link)
            | Self::Deferred { link, .. }
            | Self::Beginning { link, .. }
            | Self::Answering { link, .. } => Some(link),
            Self::Off
            | Self::Stopped
            | Self::Queued { .. }
            | Self::Backoff { .. }
            | Self::Connecting { .. } => None,
        }
    }

    /// The knowledge of the current connection, or of the one that is being opened.
    pub(super) fn knows(&self) -> Option<Knowledge> {
        match self {
            Self::Connecting { dial, .. } => dial.as_ref().map(|dial| dial.knows),
            state => state.link().map(|link| link.knows),
        }
    }

    pub(super) fn knows_mut(&mut self) -> Option<&mut Knowledge> {
        match self {
            Self::Connecting { dial, .. } => dial.as_mut().map(|dial| &mut dial.knows),
            Self::Listening(link)
            | Self::Deferred { link, .. }
            | Self::Beginning { link, .. }
            | Self::Answering { link, .. } => Some(&mut link.knows),
            Self::Off | Self::Stopped | Self::Queued { .. } | Self::Backoff { .. } => None,
        }
    }
}

impl Question {
    /// A question that has not been sent to the agent.
    pub(super) fn new(ask: Ask) -> Self {
        Self { ask, sent: false }
    }

    /// A question that was sent to the agent, or that it heard.
    pub(super) fn known(ask: Ask) -> Self {
        Self { ask, sent: true }
    }
}

impl Run {
    pub(super) fn note_sent(&mut self) {
        if let Self::Asked(question) = self {
            question.sent = true;
        }
    }
}
