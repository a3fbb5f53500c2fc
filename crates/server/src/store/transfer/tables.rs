//! The tables of a store as they are in SQLite and as they become in PostgreSQL.

use serde_json::Value;
use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::copy::Line;
use crate::store::StoreError;

/// A table of the source, and where it goes. Chats are numbered by their rows in the source.
pub(super) struct Table {
    /// In PostgreSQL, without the schema.
    pub(super) name: &'static str,
    /// What the source is called, with the condition on its rows.
    pub(super) source: &'static str,
    /// The number of a row, which only grows. Rows that share one are moved together.
    pub(super) row: &'static str,
    /// How long a row is, roughly.
    pub(super) bytes: &'static str,
    pub(super) columns: &'static [Column],
}

/// A column: what it is called in PostgreSQL, what it is in SQLite, and how it is written.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) expression: &'static str,
    kind: Kind,
}

enum Kind {
    Number,
    Flag,
    /// Text of people, which may have a NUL.
    Text,
    /// JSON and words of ours, which have none.
    Plain,
    Bytes,
    /// The tools that the front end owes, from the record of a reply.
    Owed,
}

/// The number of the chat that a row belongs to.
const CHAT: &str = "(SELECT chats.rowid FROM chats WHERE chats.key = chat)";

const fn number(name: &'static str) -> Column {
    column(name, name, Kind::Number)
}

const fn text(name: &'static str) -> Column {
    column(name, name, Kind::Text)
}

const fn plain(name: &'static str) -> Column {
    column(name, name, Kind::Plain)
}

const fn column(name: &'static str, expression: &'static str, kind: Kind) -> Column {
    Column {
        name,
        expression,
        kind,
    }
}

/// In an order in which every row finds the one that it refers to.
pub(super) const TABLES: [Table; 14] = [
    Table {
        name: "chats",
        source: "chats WHERE user <> ''",
        row: "rowid",
        bytes: "200",
        columns: &[
            column("key", "rowid", Kind::Number),
            column("user_id", "user", Kind::Text),
            text("id"),
            text("title"),
            number("created_at"),
            number("updated_at"),
            number("generation"),
            text("agent"),
            number("bytes"),
        ],
    },
    Table {
        name: "messages",
        source: "messages WHERE true",
        row: "seq",
        bytes: "octet_length(body) + coalesce(octet_length(reply), 0)",
        columns: &[
            number("seq"),
            column("chat", CHAT, Kind::Number),
            text("id"),
            number("cut_in"),
            plain("state"),
            column("open", "open", Kind::Flag),
            column(
                "seen",
                "(reply IS NULL AND heard = 0 OR EXISTS (SELECT 1 FROM seen WHERE seen.seq = messages.seq))",
                Kind::Flag,
            ),
            column("owed", "CASE WHEN open = 1 THEN reply END", Kind::Owed),
            plain("reply"),
            plain("body"),
        ],
    },
    Table {
        name: "grown_texts",
        source: "grown_texts WHERE true",
        row: "message",
        bytes: "octet_length(text)",
        columns: &[
            number("message"),
            number("part"),
            number("at"),
            number("checksum"),
            plain("text"),
        ],
    },
    Table {
        name: "counted_usage",
        source: "counted_usage WHERE true",
        row: "message",
        bytes: "50",
        columns: &[
            number("message"),
            number("input"),
            number("cached"),
            number("output"),
        ],
    },
    Table {
        name: "usage",
        source: "usage WHERE true",
        row: "rowid",
        bytes: "100",
        columns: &[
            column("user_id", "user", Kind::Text),
            number("day"),
            text("agent"),
            number("input"),
            number("cached"),
            number("output"),
            number("cost"),
        ],
    },
    Table {
        name: "approvals",
        source: "approvals WHERE true",
        row: "rowid",
        bytes: "octet_length(input)",
        columns: &[
            column("chat", CHAT, Kind::Number),
            text("id"),
            text("message_id"),
            text("call_id"),
            text("tool"),
            plain("input"),
            text("input_hash"),
            number("asked_at"),
            number("expires_at"),
            plain("state"),
            text("reason"),
        ],
    },
    Table {
        name: "tool_runs",
        source: "tool_runs WHERE true",
        row: "rowid",
        bytes: "200",
        columns: &[
            column("chat", CHAT, Kind::Number),
            text("call_id"),
            text("message_id"),
            text("tool"),
            number("started_at"),
            number("finished_at"),
            plain("outcome"),
        ],
    },
    Table {
        name: "chat_state",
        source: "chat_state WHERE true",
        row: "rowid",
        bytes: "octet_length(value)",
        columns: &[
            column("chat", CHAT, Kind::Number),
            text("key"),
            plain("value"),
        ],
    },
    Table {
        name: "events",
        source: "events WHERE true",
        row: "seq",
        bytes: "octet_length(body)",
        columns: &[
            number("seq"),
            column("chat", CHAT, Kind::Number),
            number("generation"),
            text("message_id"),
            text("body"),
        ],
    },
    Table {
        name: "files",
        source: "files WHERE true",
        row: "rowid",
        bytes: "200",
        columns: &[
            text("id"),
            column("chat", CHAT, Kind::Number),
            text("media_type"),
            number("bytes"),
            text("name"),
            number("created_at"),
        ],
    },
    Table {
        name: "deleted_files",
        source: "deleted_files WHERE true",
        row: "rowid",
        bytes: "100",
        columns: &[text("id")],
    },
    Table {
        name: "secrets",
        source: "secrets WHERE true",
        row: "rowid",
        bytes: "200",
        columns: &[text("name"), column("value", "value", Kind::Bytes)],
    },
    Table {
        name: "audit",
        source: "audit WHERE true",
        row: "id",
        bytes: "500",
        columns: &[
            number("id"),
            number("at"),
            column("user_id", "user", Kind::Text),
            text("chat_id"),
            text("turn_id"),
            text("connection_id"),
            plain("kind"),
            text("tool_call_id"),
            text("tool_name"),
            text("approval_id"),
            text("transport"),
            text("dialect"),
            text("reason"),
            text("input_hash"),
            text("replica"),
            number("previous"),
            plain("previous_hash"),
            plain("reason_salt"),
            plain("reason_hash"),
            plain("hash"),
        ],
    },
    Table {
        name: "audit_seals",
        source: "audit_seals WHERE true",
        row: "number",
        bytes: "500 + octet_length(row_ids)",
        columns: &[
            number("number"),
            plain("previous_hash"),
            number("after_row"),
            number("through_row"),
            number("row_count"),
            plain("row_ids"),
            plain("digest"),
            number("removed_row"),
            number("unchained_row"),
            number("at"),
            plain("hash"),
            plain("key_id"),
            plain("signature"),
        ],
    },
];

/// Tables of the source that are not moved as they are, and why.
#[cfg(test)]
const NOT_MOVED: [(&str, &str); 4] = [
    ("store", "the target takes over the id"),
    ("seen", "a column of the messages"),
    (
        "credentials",
        "rows that are still to be rewritten; there are none in a store that was opened",
    ),
    (
        "logins",
        "users log in again, as they do when the address of the bridge changes",
    ),
];

impl Column {
    /// Writes the value of this column, the one at `index` of a row.
    pub(super) fn write(
        &self,
        row: &SqliteRow,
        index: usize,
        line: &mut Line<'_>,
    ) -> Result<(), StoreError> {
        match self.kind {
            Kind::Number => line.number(row.try_get(index)?),
            Kind::Flag => line.flag(row.try_get(index)?),
            Kind::Text => line.text(row.try_get(index)?),
            Kind::Plain => line.plain(row.try_get(index)?),
            Kind::Bytes => line.bytes(row.try_get(index)?),
            Kind::Owed => {
                let reply: Option<&str> = row.try_get(index)?;
                line.texts(&owed(reply)?);
            }
        }
        Ok(())
    }
}

/// The tools whose outputs the front end owes, from the record of a reply.
fn owed(reply: Option<&str>) -> Result<Vec<String>, StoreError> {
    let Some(reply) = reply else {
        return Ok(Vec::new());
    };
    let record: Value = crate::store::encoded::decode(reply, "the record of a reply")?;
    let calls = record["calls"].as_array().into_iter().flatten();
    let owed = calls.filter(|call| call["state"]["is"] == "awaitingClient");
    Ok(owed
        .filter_map(|call| Some(call["name"].as_str()?.to_owned()))
        .collect())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use sqlx::{Connection as _, SqliteConnection};

    use super::*;
    use crate::store::sqlite::{DATABASE, SqliteStore};
    use crate::store::{DataDir, Store as _};

    #[tokio::test]
    async fn no_table_is_forgotten() {
        let directory = tempfile::tempdir().unwrap();
        let data = Arc::new(DataDir::open(directory.path()).unwrap());
        let store = SqliteStore::open(data, None).await.unwrap();
        store.close().await.unwrap();
        let url = format!("sqlite://{}", directory.path().join(DATABASE).display());
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let mut found: Vec<String> = sqlx::query_scalar(
            "SELECT name FROM sqlite_schema WHERE type = 'table'
             AND name NOT LIKE 'sqlite%' AND name NOT LIKE '_sqlx%'",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap();
        found.push("credentials".to_owned());
        found.sort();
        found.dedup();
        let moved = TABLES.iter().map(|table| table.name);
        let mut known: Vec<&str> = moved.chain(NOT_MOVED.map(|(name, _)| name)).collect();
        known.sort_unstable();
        assert_eq!(known, found);
    }
}
