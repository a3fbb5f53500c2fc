//! Dialects: how clients of each dialect see a stored reply.
//!
//! `native` is the stored form itself. Every other dialect is a `View` of it in its own file, and nothing is stored
//! twice. To add one, write its view and name it in [`Dialect`]; no other code asks which dialect a client uses.
//!
//! ```
//! use adk_bridge_protocol::calls::Calls;
//! use adk_bridge_protocol::message::{FilePart, Part};
//! use adk_bridge_protocol::{Dialect, Message};
//!
//! let mut stored = Message::assistant("m1");
//! stored.parts.push(Part::File(FilePart {
//!     media_type: "image/png".into(),
//!     url: "data:image/png;base64,iVBORw0KGgo=".into(),
//!     ..FilePart::default()
//! }));
//! let last = |dialect: Dialect| dialect.show(stored.clone(), &Calls::default(), true).parts.pop();
//! assert!(matches!(last("native".parse()?), Some(Part::File(_))));
//! // As `data-image`, with the image itself.
//! assert!(matches!(last("adk".parse()?), Some(Part::Data(_))));
//! # Ok::<(), adk_bridge_protocol::dialect::UnknownDialect>(())
//! ```

mod adk;
mod held;
mod reader;
mod speech;
mod withheld;

use std::borrow::Cow;
use std::fmt::Debug;
use std::str::FromStr;

use crate::calls::Calls;
use crate::chunk::Chunk;
use crate::message::{FilePart, Message, Part};

pub use reader::Reader;
#[doc(hidden)]
pub use withheld::file_of_image;

/// The wire form that a client asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Dialect {
    /// Only standard parts of the AI SDK.
    #[default]
    Native,
    /// An approval is a separate tool call (docs/adr/0007).
    Adk,
    /// An approval is on its call, and what the agent says waits for the last answer (docs/adr/0019).
    Held,
}

impl Dialect {
    /// All of them, the default first.
    pub const ALL: &[Self] = &[Self::Native, Self::Adk, Self::Held];

    /// The name by which clients ask for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Adk => "adk",
            Self::Held => "held",
        }
    }

    /// How its clients see an agent for which content is withheld, or one that leaves nothing to them.
    fn view(self, withholds: bool) -> &'static dyn View {
        match (self, withholds) {
            (Self::Native, _) => &Native,
            (Self::Adk, true) => &adk::Withholding,
            (Self::Adk, false) => &adk::Streaming,
            (Self::Held, true) => &held::Held { withholds: true },
            (Self::Held, false) => &held::Held { withholds: false },
        }
    }

    /// How its clients see stored messages, whichever agent wrote them.
    fn view_at_rest(self) -> &'static dyn View {
        self.view(true)
    }

    /// A stored message as its clients see it. `calls` are those of its reply, if [they are needed](Self::needs_calls).
    pub fn show(self, stored: Message, calls: &Calls, has_ended: bool) -> Message {
        let state = State {
            calls,
            has_ended,
            asking: None,
            images: None,
        };
        let view = self.view_at_rest();
        let shown = view.message(Cow::Owned(stored), &state);
        view.at_rest(shown.into_owned())
    }

    /// Whether showing the message requires the calls of its reply.
    pub fn needs_calls(self, stored: &Message, has_ended: bool) -> bool {
        self.view_at_rest().needs_calls(stored, has_ended)
    }

    /// Whether messages contain their images, so that the images must be loaded.
    pub fn inlines_images(self) -> bool {
        self.view_at_rest().inlines_images()
    }

    /// Whether the URLs of files must be absolute, since its clients have another origin than the bridge.
    pub fn needs_absolute_urls(self) -> bool {
        self == Self::Held
    }

    /// The decision that its clients see for a question of an ended reply.
    pub fn shown_decision(self, decided: Option<bool>) -> Option<bool> {
        self.view_at_rest().shown_decision(decided)
    }
}

/// The name of a dialect that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown dialect {0:?}; use {choice}", choice = choice())]
pub struct UnknownDialect(String);

fn choice() -> String {
    let quoted = |dialect: &Dialect| format!("{:?}", dialect.as_str());
    let words: Vec<String> = Dialect::ALL.iter().map(quoted).collect();
    words.join(" or ")
}

impl FromStr for Dialect {
    type Err = UnknownDialect;

    fn from_str(word: &str) -> Result<Self, UnknownDialect> {
        let found = Self::ALL.iter().find(|dialect| dialect.as_str() == word);
        found
            .copied()
            .ok_or_else(|| UnknownDialect(word.to_owned()))
    }
}

/// Images that are stored outside of messages; in some dialects, messages contain them.
pub trait Images: Debug + Send + Sync {
    /// The base64 of the image at this URL, if the bridge stores it.
    fn base64(&self, url: &str) -> Option<String>;
}

/// The URLs under which a client finds the files that messages name.
pub trait Addresses: Debug + Send + Sync {
    /// The URL that a client gets instead of this one, if it names a file of the bridge.
    fn client_url(&self, url: &str) -> Option<String>;
}

/// How clients of a dialect see a reply: as it is stored, except where a view overrides it.
trait View: Debug + Sync {
    /// Whether a reader gets frames as they are made. Otherwise it gets the changes of [`View::message`].
    fn streams(&self) -> bool {
        true
    }

    /// The message as a client has it after reading everything so far.
    fn message<'m>(&self, stored: Cow<'m, Message>, _state: &State<'_>) -> Cow<'m, Message> {
        stored
    }

    /// A stored message in the form that clients would have after reading all of its chunks.
    fn at_rest(&self, message: Message) -> Message {
        message
    }

    /// What clients get in place of a chunk.
    fn rewritten<'c>(&self, _chunk: &Chunk<'c>) -> Rewritten<'c> {
        Rewritten::Unchanged
    }

    /// Whether some frames are not passed on as they are.
    fn rewrites(&self) -> bool {
        false
    }

    /// The part that replaces a file.
    fn file(&self, _file: &FilePart, _images: Option<&dyn Images>) -> Option<Part> {
        None
    }

    /// See [`Dialect::needs_calls`].
    fn needs_calls(&self, _stored: &Message, _has_ended: bool) -> bool {
        false
    }

    /// See [`Dialect::inlines_images`].
    fn inlines_images(&self) -> bool {
        false
    }

    /// See [`Dialect::shown_decision`].
    fn shown_decision(&self, decided: Option<bool>) -> Option<bool> {
        decided
    }
}

/// What becomes of a chunk in a view.
enum Rewritten<'c> {
    Unchanged,
    Changed(Chunk<'c>),
    /// Its clients do not get it.
    LeftOut,
}

/// What a view knows about a reply in addition to its message.
struct State<'r> {
    calls: &'r Calls,
    has_ended: bool,
    /// The step that the agent is still writing.
    asking: Option<u32>,
    images: Option<&'r dyn Images>,
}

/// The stored form.
#[derive(Debug)]
struct Native;

impl View for Native {}
