//! Errors of a store, by what the caller should do about them.

use adk_bridge_protocol::id::{ApprovalId, CallId, MessageId};
use std::error::Error;
use std::io::ErrorKind;
use std::path::PathBuf;

use thiserror::Error;

#[derive(Debug, Error)]
pub enum StoreError {
    /// The user has nothing with this id. The error does not reveal whether another user has.
    #[error("no such {0}")]
    NotFound(Entity),
    /// Nothing was written: the caller continues from what is stored.
    #[error("{0}")]
    Conflict(Conflict),
    /// The client has to send less.
    #[error("{bytes} bytes are too many; at most {limit} can be stored")]
    TooLarge { bytes: usize, limit: usize },
    /// The chat has another owner, or this replica is dead to the others: whoever gets this lets go of the chat.
    #[error(
        "another replica may have this chat now, and nothing was stored; try again in a moment"
    )]
    Fenced,
    /// Trying again later may succeed.
    #[error("the store is busy; try again in a moment")]
    Busy,
    /// Nothing is known about what was asked last; trying again later may succeed.
    #[error("the database cannot be reached ({why}); try again in a moment")]
    Unreachable { why: Box<dyn Error + Send + Sync> },
    /// Nothing can be written until the operator, or another process, acts.
    #[error("{0}")]
    Unwritable(WriteProblem),
    /// The operator has started with a database to which the files do not belong.
    #[error(
        "the files in {} do not belong to the database {}, which knows none of them; restore their database (check \
         store.url and --data-dir), or move that directory away to start without them",
        files.display(), database.display()
    )]
    OtherFiles { files: PathBuf, database: PathBuf },
    /// The operator has moved the database away from its log.
    #[error(
        "{} contains the latest writes to the database {}, which is missing or empty; restore it next to its log, or move \
         the log away to start with a new database",
        log.display(), database.display()
    )]
    LogAlone { database: PathBuf, log: PathBuf },
    /// The operator has put another database next to a log.
    #[error(
        "the database {} and its log {} do not match, and nothing was changed; if the database was restored from a backup, \
         move the log away, because it belongs to the previous database; otherwise restore both from a backup",
        database.display(), log.display()
    )]
    OtherLog { database: PathBuf, log: PathBuf },
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
    /// The operator has named a database of an older version.
    #[error(
        "the audit in {} is not chained yet: start the bridge of this version with it once", database.display()
    )]
    NotChained { database: PathBuf },
    /// The operator has not finished moving a store here.
    #[error(
        "a store is being moved to {} and is not there yet; run adk-bridge migrate-store again until it has finished",
        database.display()
    )]
    Unfinished { database: PathBuf },
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

/// Why nothing can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WriteProblem {
    #[error("the disk is full")]
    Full,
    #[error("the data directory is read-only")]
    ReadOnly,
    #[error("the database is locked by another process")]
    Locked,
}

/// The kind of thing that was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum Entity {
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
    Approval { id: ApprovalId, stored: String },
    #[error("the tool of call {call_id} has run already")]
    ToolRan { call_id: CallId },
    #[error("another reply of this chat is in progress; close it first")]
    ReplyOpen,
    #[error("reply {id} was cut from the history")]
    ReplyCut { id: MessageId },
    #[error("message {id} is in this chat already; cut it first")]
    MessageExists { id: MessageId },
}

impl From<Conflict> for StoreError {
    fn from(conflict: Conflict) -> Self {
        Self::Conflict(conflict)
    }
}

impl StoreError {
    /// A failure of the operating system.
    pub(crate) fn io(doing: &'static str) -> impl Fn(std::io::Error) -> Self {
        move |error| match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Self::Unwritable(WriteProblem::Full)
            }
            ErrorKind::ReadOnlyFilesystem => Self::Unwritable(WriteProblem::ReadOnly),
            _ => Self::Io {
                doing,
                why: Box::new(error),
            },
        }
    }

    /// Why the store cannot be written, if that is the error.
    pub fn trouble(&self) -> Option<WriteProblem> {
        match self {
            Self::Unwritable(trouble) => Some(*trouble),
            _ => None,
        }
    }
}
