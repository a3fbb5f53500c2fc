//! Voices: the agents that may be speaking at once, and what each has said of its model call so far.

use std::borrow::Cow;

use super::repeat::Streamed;
use super::signed;
use crate::calls::{Call, Calls};
use crate::chunk::Chunk;
use crate::event::Event;

/// How many agents are told apart; a run with more at once is nothing that a person could read.
const MAX_VOICES: usize = 64;

/// Everybody who has spoken in a run; one of them says what is being translated.
#[derive(Debug)]
pub(super) struct Voices {
    all: Vec<Voice>,
    at: usize,
}

/// One agent at work.
#[derive(Debug, Default)]
pub(super) struct Voice {
    author: String,
    branch: String,
    pub(super) open: Option<OpenText>,
    pub(super) text: Streamed,
    pub(super) thought: Streamed,
    pub(super) files: usize,
    pub(super) codes: usize,
    /// The last event that was taken in completely.
    pub(super) last_final: String,
}

/// A text part that grows.
#[derive(Debug)]
pub(super) struct OpenText {
    pub(super) id: String,
    pub(super) kind: Kind,
    pub(super) signature: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Thought,
}

impl Default for Voices {
    fn default() -> Self {
        Self {
            all: vec![Voice::default()],
            at: 0,
        }
    }
}

impl Voices {
    pub(super) fn current(&mut self) -> &mut Voice {
        &mut self.all[self.at]
    }

    /// Listens to the agent that an event is from. Returns a text that nobody will go on with.
    pub(super) fn turn_to(&mut self, event: &Event<'_>) -> Option<OpenText> {
        // An event that does not say whose it is belongs to what came before it.
        let author = event.author.as_deref()?;
        let branch = event.branch.as_deref().unwrap_or_default();
        if self.all[self.at].is(author, branch) {
            return None;
        }
        if let Some(at) = self.all.iter().position(|voice| voice.is(author, branch)) {
            self.at = at;
            return None;
        }
        if self.all[self.at].author.is_empty() {
            self.all[self.at].author.push_str(author);
            self.all[self.at].branch.push_str(branch);
            return None;
        }
        let lost = (self.all.len() >= MAX_VOICES).then(|| self.all.remove(0));
        self.at = self.all.len();
        self.all.push(Voice {
            author: author.to_owned(),
            branch: branch.to_owned(),
            ..Voice::default()
        });
        lost?.open
    }

    /// Whether somebody else is in the middle of a text.
    pub(super) fn others_speak(&self) -> bool {
        let others = |&(at, _): &(usize, &Voice)| at != self.at;
        let mut voices = self.all.iter().enumerate().filter(others);
        voices.any(|(_, voice)| voice.open.is_some())
    }

    /// Whether a call is open for another reason than that the agent speaks which it was given to.
    pub(super) fn any_awaited(&self, calls: &Calls) -> bool {
        let voice = &self.all[self.at];
        // An agent that was called twice at once may have begun with only one of its tasks.
        let task = |call: &Call| {
            let mut open = calls.open();
            open.any(|other| other.name == call.name && voice.works_on(other))
        };
        calls
            .open()
            .any(|call| !(call.is_underway_elsewhere() && task(call)))
    }

    /// The texts that are open; nobody goes on with them.
    pub(super) fn take_open(&mut self) -> impl Iterator<Item = OpenText> {
        self.all.iter_mut().filter_map(|voice| voice.open.take())
    }

    pub(super) fn forget_streamed(&mut self) {
        self.all.iter_mut().for_each(Voice::forget_streamed);
    }
}

impl Voice {
    pub(super) fn streamed(&mut self, kind: Kind) -> &mut Streamed {
        match kind {
            Kind::Text => &mut self.text,
            Kind::Thought => &mut self.thought,
        }
    }

    pub(super) fn forget_streamed(&mut self) {
        self.text = Streamed::default();
        self.thought = Streamed::default();
        self.files = 0;
        self.codes = 0;
    }

    /// ADK names the branch of an agent that was called like a tool after the call: `helper@call-id`.
    fn works_on(&self, call: &Call) -> bool {
        let mut tasks = self
            .branch
            .split('.')
            .filter_map(|step| step.split_once('@'));
        tasks.any(|(_, id)| call.model_id.as_deref() == Some(id))
    }

    fn is(&self, author: &str, branch: &str) -> bool {
        self.author == author && self.branch == branch
    }
}

impl Kind {
    pub(super) fn start(self, id: &str) -> Chunk<'_> {
        let (id, provider_metadata) = (Cow::Borrowed(id), None);
        match self {
            Self::Text => Chunk::TextStart {
                id,
                provider_metadata,
            },
            Self::Thought => Chunk::ReasoningStart {
                id,
                provider_metadata,
            },
        }
    }

    pub(super) fn delta<'a>(self, id: &'a str, delta: &'a str) -> Chunk<'a> {
        match self {
            Self::Text => Chunk::text_delta(id, delta),
            Self::Thought => Chunk::reasoning_delta(id, delta),
        }
    }
}

impl OpenText {
    pub(super) fn end(&self) -> Chunk<'_> {
        let id = Cow::Borrowed(self.id.as_str());
        let provider_metadata = self
            .signature
            .as_deref()
            .map(|text| Cow::Owned(signed(text)));
        match self.kind {
            Kind::Text => Chunk::TextEnd {
                id,
                provider_metadata,
                citations: None,
            },
            Kind::Thought => Chunk::ReasoningEnd {
                id,
                provider_metadata,
            },
        }
    }
}
