//! What can go wrong in a store, by what the caller should do about it.

use std::error::Error;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum StoreError {
    /// The user has nothing of that id. Whether somebody else has is not told.
    #[error("no such {0}")]
    NotFound(Thing),
    /// Nothing was written: the caller goes on from what is stored.
    #[error("{0}")]
    Conflict(Conflict),
    /// The client is to send less.
    #[error("{bytes} bytes are too many; at most {limit} can be kept")]
    TooLarge { bytes: usize, limit: usize },
    /// The same again, later, may succeed.
    #[error("the store is busy; try again in a moment")]
    Busy,
    /// The operator has started the server twice.
    #[error(
        "the data directory {} is in use by {by}; stop it, or choose another with --data-dir",
        dir.display()
    )]
    InUse { dir: PathBuf, by: String },
    /// The operator has started an older version on newer data.
    #[error(
        "the database {} was written by a newer version (schema {schema}); start that version, or a later one",
        database.display()
    )]
    Newer { database: PathBuf, schema: i64 },
    /// The operator has named a database of another program.
    #[error("{} is not a database of adk-bridge; name another one", database.display())]
    NotOurs { database: PathBuf },
    /// The operator has to restore the data.
    #[error("{what} cannot be read; restore it from a backup, or move it away")]
    Corrupt { what: String },
    /// The operator has named a place that cannot be written to.
    #[error(
        "the data directory {} cannot be used ({why}); make it writable, or choose another with --data-dir",
        dir.display()
    )]
    Unusable { dir: PathBuf, why: std::io::Error },
    /// The disk or the operating system failed.
    #[error("{doing} failed: {why}")]
    Io {
        doing: &'static str,
        why: Box<dyn Error + Send + Sync>,
    },
}

/// What was looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Thing {
    #[error("chat")]
    Chat,
    #[error("message")]
    Message,
    #[error("file")]
    File,
}

/// How a change contradicts what is stored.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum Conflict {
    #[error("approval {id} is {stored} already")]
    Approval { id: String, stored: String },
    #[error("the tool of call {call_id} has run already")]
    ToolRan { call_id: String },
    #[error("another reply of this chat is in the making; close it first")]
    ReplyOpen,
    #[error("reply {id} was cut from the history")]
    ReplyCut { id: String },
    #[error("message {id} is in this chat already; cut it first")]
    MessageExists { id: String },
}

impl From<Conflict> for StoreError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl StoreError {
    /// A failure of the operating system.
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(std::io::Error) -> Self {
        move |error| Self::Io {
            doing,
            why: Box::new(error),
        }
    }
}
