//! The authors of a run: agents that may write at the same time, and what each has streamed of its model call.

use std::borrow::Cow;

use super::planner::Planner;
use super::repeat::Streamed;
use super::signed;
use crate::calls::{Call, Calls, Origin, tasks_of};
use crate::chunk::Chunk;
use crate::event::Event;

/// How many authors are kept apart; a run in which more of them write at the same time would be unreadable anyway.
const MAX_AUTHORS: usize = 64;

/// All agents that have written in a run, and the one whose event is being translated.
#[derive(Debug)]
pub(super) struct Authors {
    all: Vec<Author>,
    at: usize,
}

/// One agent that writes text, known by its name and branch.
#[derive(Debug, Default)]
pub(super) struct Author {
    name: String,
    branch: String,
    pub(super) open: Option<OpenText>,
    pub(super) text: Streamed,
    pub(super) thought: Streamed,
    pub(super) files: usize,
    pub(super) codes: usize,
    pub(super) planner: Planner,
    /// The id of the last event that was translated completely.
    pub(super) last_final: String,
    /// Whether to hide what it writes: it waits for an answer, and does not have it yet.
    pub(super) muted: bool,
    /// Whether it is a workflow that keeps its place, and goes on from there.
    pub(super) resumes: bool,
}

/// A text part that is still growing.
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

impl Default for Authors {
    fn default() -> Self {
        Self {
            all: vec![Author::default()],
            at: 0,
        }
    }
}

impl Authors {
    pub(super) fn current(&mut self) -> &mut Author {
        &mut self.all[self.at]
    }

    /// The author of the event that is being translated, if it has a name.
    pub(super) fn origin(&self) -> Option<Origin> {
        let author = &self.all[self.at];
        let workflow = |other: &Author| {
            other.resumes && other.name != author.name && other.branch == author.branch
        };
        (!author.name.is_empty()).then(|| Origin {
            author: author.name.clone(),
            branch: author.branch.clone(),
            in_workflow: self.all.iter().any(workflow),
        })
    }

    pub(super) fn unmute(&mut self) {
        self.all.iter_mut().for_each(|author| author.muted = false);
    }

    /// Switches to the author of an event. Returns the open text of an author that was dropped to make room.
    pub(super) fn switch_to(&mut self, event: &Event<'_>) -> Option<OpenText> {
        // An event without an author belongs to the one before it.
        let name = event.author.as_deref()?;
        let branch = event.branch.as_deref().unwrap_or_default();
        if self.all[self.at].is(name, branch) {
            return None;
        }
        if let Some(at) = self.all.iter().position(|author| author.is(name, branch)) {
            self.at = at;
            return None;
        }
        if self.all[self.at].name.is_empty() {
            self.all[self.at].name.push_str(name);
            self.all[self.at].branch.push_str(branch);
            return None;
        }
        let dropped = (self.all.len() >= MAX_AUTHORS).then(|| self.all.remove(0));
        self.at = self.all.len();
        self.all.push(Author {
            name: name.to_owned(),
            branch: branch.to_owned(),
            ..Author::default()
        });
        dropped?.open
    }

    /// Whether another author is in the middle of a text.
    pub(super) fn others_have_open_text(&self) -> bool {
        let others = |&(at, _): &(usize, &Author)| at != self.at;
        let mut authors = self.all.iter().enumerate().filter(others);
        authors.any(|(_, author)| author.open.is_some())
    }

    /// Whether any open call is not delegated to the agent that is writing.
    pub(super) fn any_awaited(&self, calls: &Calls) -> bool {
        let author = &self.all[self.at];
        // An agent that was called twice at once may have begun with only one of its tasks.
        let task = |call: &Call| {
            let mut open = calls.open();
            open.any(|other| other.name == call.name && author.works_on(other))
        };
        calls
            .open()
            .any(|call| !(call.is_underway_elsewhere() && task(call)))
    }

    /// Takes all open texts; they do not grow any more.
    pub(super) fn take_open(&mut self) -> impl Iterator<Item = OpenText> {
        self.all.iter_mut().filter_map(|author| author.open.take())
    }

    pub(super) fn forget_streamed(&mut self) {
        self.all.iter_mut().for_each(Author::forget_streamed);
    }
}

impl Author {
    pub(super) fn streamed(&mut self, kind: Kind) -> &mut Streamed {
        match kind {
            Kind::Text => &mut self.text,
            Kind::Thought => &mut self.thought,
        }
    }

    /// Whether it has said anything but thoughts in its model call.
    pub(super) fn has_streamed_text(&self) -> bool {
        self.text != Streamed::default()
    }

    /// Whether it has said or shown anything in its model call.
    pub(super) fn has_streamed(&self) -> bool {
        let texts = self.text != Streamed::default() || self.thought != Streamed::default();
        texts || self.files > 0 || self.codes > 0
    }

    pub(super) fn forget_streamed(&mut self) {
        self.text = Streamed::default();
        self.thought = Streamed::default();
        self.files = 0;
        self.codes = 0;
        self.planner = Planner::default();
    }

    fn works_on(&self, call: &Call) -> bool {
        tasks_of(&self.branch).any(|id| call.model_id.as_deref() == Some(id))
    }

    fn is(&self, name: &str, branch: &str) -> bool {
        self.name == name && self.branch == branch
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
        let provider_metadata = self.signature.as_deref().map(signed);
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
