//! The phase of a reply, and the turn in which a piece of it is sent.

use super::{Audience, EndReason, Retries};
use crate::time::Timestamp;

/// The phase of a reply: the states of the diagram in the parent module.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    /// Nothing has been asked yet.
    New,
    /// A run of the agent is under way. `retried`: how often it was asked again after a crash.
    Asking { run: Run, retried: Retries },
    /// Tools of the step are running. `cut`: the agent's last answer was cut short.
    Settling { cut: bool },
    /// Every open call waits for the client, or tools run that wait for answers to their questions.
    Waiting { cut: bool },
    /// A newer message waits until a remote agent has acted on the last answers.
    Superseding { run: Option<Run> },
    /// The model is never asked again; tools that were started may still finish.
    Ended(EndReason),
}

/// What a run of the agent is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Run {
    Answer,
    /// Sends client results to a remote agent, whose confirmations follow in another run.
    Results,
}

/// How an event arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Channel {
    Run,
    /// In a live conversation, in which a remote agent cannot have a human asked.
    Live,
}

/// The envelope around the piece of the reply that is being sent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Turn {
    pub(super) audience: Audience,
    /// Whether a client waits for its end before it sends more, as a chat does after a request.
    pub(super) awaited: bool,
    /// Whether the request that opened it brought nothing new.
    pub(super) without_news: bool,
    /// Until when its end is delayed, so that the client does not post again at once.
    pub(super) hold_until: Option<Timestamp>,
}

impl Turn {
    pub(super) fn new(audience: Audience) -> Self {
        Self {
            audience,
            awaited: audience == Audience::Request,
            without_news: false,
            hold_until: None,
        }
    }
}
