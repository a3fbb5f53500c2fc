//! What a failure of PostgreSQL means: for the caller, and for whoever would try again.

use std::io::ErrorKind;

use adk_bridge_protocol::id::{ApprovalId, CallId, MessageId};
use sqlx::postgres::PgDatabaseError;

use super::text;
use crate::store::{Conflict, Entity, StoreError, WriteProblem};

/// Why a statement has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// Another attempt may succeed. The connection is as usable as before.
    Again(StoreError),
    /// The connection is lost or useless. Whether the statement was done is unknown, and it may be repeated: every statement
    /// is written so that doing it twice is doing it once.
    Lost(StoreError),
    /// It would fail again.
    Final(StoreError),
}

impl Failure {
    pub(super) fn into_error(self) -> StoreError {
        match self {
            Self::Again(error) | Self::Lost(error) | Self::Final(error) => error,
        }
    }
}

impl From<sqlx::Error> for Failure {
    fn from(error: sqlx::Error) -> Self {
        let Some(refused) = error
            .as_database_error()
            .and_then(|error| error.try_downcast_ref::<PgDatabaseError>())
        else {
            return match error {
                sqlx::Error::Io(_) | sqlx::Error::Protocol(_) | sqlx::Error::WorkerCrashed => {
                    Self::Lost(unreachable(error))
                }
                sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => {
                    Self::Final(StoreError::Corrupt {
                        what: format!("a row of the database ({error})"),
                    })
                }
                other => Self::Final(failed(other)),
            };
        };
        if let Some(ours) = refusal(refused) {
            return Self::Final(ours);
        }
        match refused.code() {
            // Serialization failure, deadlock: nothing of it was done.
            "40001" | "40P01" => Self::Again(StoreError::Busy),
            // Too many connections, no memory.
            "53300" | "53200" | "53400" => Self::Lost(StoreError::Busy),
            "53100" => Self::Final(StoreError::Unwritable(WriteProblem::Full)),
            // A standby, perhaps of a moment ago: another connection may lead to its successor.
            "25006" => Self::Lost(StoreError::Unwritable(WriteProblem::ReadOnly)),
            // Cancelled, or a lock was not to be had in time.
            "57014" | "55P03" => Self::Again(StoreError::Busy),
            "54000" | "22001" => Self::Final(failed(error)),
            // A pooler gave us the server of somebody else.
            "42P05" | "26000" => Self::Lost(StoreError::Io {
                doing: "using the database (a connection pooler hands a connection to another client between two \
                        statements; set store.prepared_statements = false)",
                why: Box::new(error),
            }),
            // Shutting down, crashed, starting; the connection; waited too long within a transaction.
            code if code.starts_with("57P")
                || code.starts_with("08")
                || code.starts_with("58")
                || code == "25P03"
                || code == "25P02" =>
            {
                Self::Lost(unreachable(error))
            }
            _ => Self::Final(failed(error)),
        }
    }
}

/// Why no connection can be made. What another attempt cannot mend is said at once.
pub(super) fn unconnected(error: sqlx::Error) -> Failure {
    let code = error.as_database_error().and_then(|error| error.code());
    let is_wrong = match &error {
        // No such password, user, database or right; not a server of ours.
        sqlx::Error::Database(_) => code.is_some_and(|code| {
            code.starts_with("28") || code.starts_with("3D") || code.starts_with("42")
        }),
        sqlx::Error::Tls(_) | sqlx::Error::Configuration(_) => true,
        _ => false,
    };
    match is_wrong {
        true => Failure::Final(StoreError::Io {
            doing: "connecting to the database (check store.url)",
            why: Box::new(error),
        }),
        false => Failure::Lost(unreachable(error)),
    }
}

/// An attempt that took too long.
pub(super) fn too_slow() -> Failure {
    Failure::Lost(unreachable(sqlx::Error::Io(ErrorKind::TimedOut.into())))
}

fn unreachable(why: sqlx::Error) -> StoreError {
    StoreError::Unreachable { why: Box::new(why) }
}

fn failed(why: sqlx::Error) -> StoreError {
    StoreError::Io {
        doing: "using the database",
        why: Box::new(why),
    }
}

/// What our functions raise (migrations/postgres/0002_functions.sql), and what our constraints refuse.
fn refusal(refused: &PgDatabaseError) -> Option<StoreError> {
    let named = || text::loaded(refused.message().to_owned());
    Some(match refused.code() {
        "ZB001" => StoreError::Fenced,
        "ZB002" => StoreError::NotFound(Entity::Chat),
        "ZB003" => StoreError::NotFound(Entity::Message),
        "ZB004" => Conflict::ReplyOpen.into(),
        "ZB005" => {
            let id = MessageId::from(named());
            Conflict::ReplyCut { id }.into()
        }
        "ZB006" => {
            let id = MessageId::from(named());
            Conflict::MessageExists { id }.into()
        }
        "ZB007" => Conflict::Approval {
            id: ApprovalId::from(named()),
            stored: refused.detail().unwrap_or_default().to_owned(),
        }
        .into(),
        "ZB008" => {
            let call_id = CallId::from(named());
            Conflict::ToolRan { call_id }.into()
        }
        "23505" if refused.constraint() == Some("replies_open") => Conflict::ReplyOpen.into(),
        _ => return None,
    })
}
