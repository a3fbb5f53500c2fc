//! `search_database` and `update_database`: a real SQLite table of sample users, with separate rows for every chat.
//!
//! A model's text never becomes SQL: it is a text to search for or `column = value`, and both are bound.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use adk_bridge_agents::tool::{ServerTool, ToolCall, ToolSpec};
use adk_bridge_protocol::calls::Outcome;
use adk_bridge_protocol::id::{ChatId, UserId};
use serde_json::{Map, Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Row, SqlitePool};
use tokio::sync::OnceCell;

use super::{arguments, object, outcome, required_text};

/// A longer value is not a name, address or city.
const MAX_VALUE_CHARS: usize = 200;

/// Why the sample users cannot be read.
#[derive(Debug, thiserror::Error)]
#[error("the sample database failed: {0}")]
pub struct DatabaseError(#[from] sqlx::Error);

/// The sample users. The database is opened at its first use.
pub struct SampleDatabase {
    file: Option<PathBuf>,
    pool: OnceCell<SqlitePool>,
}

/// The chat that asks, and its owner.
#[derive(Clone, Copy)]
struct Owned<'c> {
    owner: &'c UserId,
    id: &'c ChatId,
}

impl<'c> Owned<'c> {
    fn by(call: &'c ToolCall) -> Self {
        Self {
            owner: &call.user,
            id: &call.chat_id,
        }
    }
}

/// One sample user.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
struct User {
    id: i64,
    name: String,
    email: String,
    city: String,
    status: String,
}

/// The users that are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Filter {
    All,
    Column(&'static str, String),
    Text(String),
}

/// The new values of users; `None` leaves a column as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Change {
    name: Option<String>,
    email: Option<String>,
    city: Option<String>,
    status: Option<String>,
}

const COLUMNS: [&str; 5] = ["id", "name", "email", "city", "status"];

/// Ten users: the scenarios and the pages show "Found 10 users".
const SAMPLES: [(&str, &str, &str); 10] = [
    ("Hanako Sato", "hanako@example.com", "Tokyo"),
    ("Bob Miller", "bob@example.com", "London"),
    ("Alice Martin", "alice@example.com", "Paris"),
    ("Kenji Tanaka", "kenji@example.com", "Osaka"),
    ("Maria Garcia", "maria@example.com", "Madrid"),
    ("Lukas Weber", "lukas@example.com", "Berlin"),
    ("Aisha Khan", "aisha@example.com", "Mumbai"),
    ("Emma Johnson", "emma@example.com", "New York"),
    ("Yuki Mori", "yuki@example.com", "Tokyo"),
    ("Olu Adeyemi", "olu@example.com", "Nairobi"),
];

/// `owner` is the user of the bridge. A table without this column, made by an earlier version, is left alone.
const CREATE: &str = "CREATE TABLE IF NOT EXISTS sample_users (
    owner TEXT NOT NULL, chat TEXT NOT NULL, id INTEGER NOT NULL, name TEXT NOT NULL, email TEXT NOT NULL,
    city TEXT NOT NULL, status TEXT NOT NULL, PRIMARY KEY (owner, chat, id)) STRICT";
const FILL: &str = "INSERT OR IGNORE INTO sample_users (owner, chat, id, name, email, city, status)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, 'active')";
const SEARCH: &str = "SELECT id, name, email, city, status FROM sample_users
    WHERE owner = ?4 AND chat = ?1 AND CASE ?2
    WHEN 'all' THEN 1
    WHEN 'id' THEN CAST(id AS TEXT) = ?3
    WHEN 'name' THEN name = ?3 COLLATE NOCASE
    WHEN 'email' THEN email = ?3 COLLATE NOCASE
    WHEN 'city' THEN city = ?3 COLLATE NOCASE
    WHEN 'status' THEN status = ?3 COLLATE NOCASE
    ELSE name LIKE ?3 ESCAPE '\\' OR email LIKE ?3 ESCAPE '\\' OR city LIKE ?3 ESCAPE '\\'
        OR status LIKE ?3 ESCAPE '\\' END
    ORDER BY id";
const UPDATE: &str =
    "UPDATE sample_users SET name = COALESCE(?4, name), email = COALESCE(?5, email),
    city = COALESCE(?6, city), status = COALESCE(?7, status)
    WHERE owner = ?8 AND chat = ?1 AND CASE ?2
    WHEN 'all' THEN 1
    WHEN 'id' THEN CAST(id AS TEXT) = ?3
    WHEN 'name' THEN name = ?3 COLLATE NOCASE
    WHEN 'email' THEN email = ?3 COLLATE NOCASE
    WHEN 'city' THEN city = ?3 COLLATE NOCASE
    WHEN 'status' THEN status = ?3 COLLATE NOCASE
    ELSE name LIKE ?3 ESCAPE '\\' OR email LIKE ?3 ESCAPE '\\' OR city LIKE ?3 ESCAPE '\\'
        OR status LIKE ?3 ESCAPE '\\' END";

impl SampleDatabase {
    /// Without a file, the users are kept in memory.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self {
            file,
            pool: OnceCell::new(),
        }
    }

    async fn search(&self, chat: Owned<'_>, filter: &Filter) -> Result<Vec<User>, DatabaseError> {
        let pool = self.filled(chat).await?;
        let (kind, value) = filter.bound();
        let rows = sqlx::query(SEARCH)
            .bind(chat.id.as_str())
            .bind(kind)
            .bind(value)
            .bind(chat.owner.as_str())
            .fetch_all(pool)
            .await?;
        let users = rows.iter().map(|row| {
            Ok(User {
                id: row.try_get("id")?,
                name: row.try_get("name")?,
                email: row.try_get("email")?,
                city: row.try_get("city")?,
                status: row.try_get("status")?,
            })
        });
        Ok(users.collect::<Result<_, sqlx::Error>>()?)
    }

    async fn update(
        &self,
        chat: Owned<'_>,
        filter: &Filter,
        change: &Change,
    ) -> Result<u64, DatabaseError> {
        let pool = self.filled(chat).await?;
        let (kind, value) = filter.bound();
        let done = sqlx::query(UPDATE)
            .bind(chat.id.as_str())
            .bind(kind)
            .bind(value)
            .bind(&change.name)
            .bind(&change.email)
            .bind(&change.city)
            .bind(&change.status)
            .bind(chat.owner.as_str())
            .execute(pool)
            .await?;
        Ok(done.rows_affected())
    }

    /// Deletes the rows of a chat, if there can be any.
    async fn forget(&self, chat: Owned<'_>) -> Result<(), String> {
        if self.pool.get().is_none() && !self.file.as_ref().is_some_and(|file| file.exists()) {
            return Ok(());
        }
        let forget = async {
            let pool = self.pool.get_or_try_init(|| self.open()).await?;
            sqlx::query("DELETE FROM sample_users WHERE owner = ?1 AND chat = ?2")
                .bind(chat.owner.as_str())
                .bind(chat.id.as_str())
                .execute(pool)
                .await
        };
        forget
            .await
            .map(|_| ())
            .map_err(|error| DatabaseError(error).to_string())
    }

    async fn filled(&self, chat: Owned<'_>) -> Result<&SqlitePool, DatabaseError> {
        let pool = self.pool.get_or_try_init(|| self.open()).await?;
        let mut transaction = pool.begin().await?;
        for (id, (name, email, city)) in (1_i64..).zip(SAMPLES) {
            sqlx::query(FILL)
                .bind(chat.owner.as_str())
                .bind(chat.id.as_str())
                .bind(id)
                .bind(name)
                .bind(email)
                .bind(city)
                .execute(&mut *transaction)
                .await?;
        }
        transaction.commit().await?;
        Ok(pool)
    }

    async fn open(&self) -> Result<SqlitePool, sqlx::Error> {
        let options = match &self.file {
            Some(file) => SqliteConnectOptions::new()
                .filename(file)
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal),
            None => SqliteConnectOptions::new().in_memory(true),
        };
        // A single connection that is never closed: a second one to a database in memory would see another database.
        let pool = SqlitePoolOptions::new()
            .max_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .connect_with(options)
            .await?;
        sqlx::query(CREATE).execute(&pool).await?;
        Ok(pool)
    }
}

impl Filter {
    fn read(query: &str) -> Result<Self, String> {
        let query = query.trim();
        if let Some((column, value)) = query.split_once('=') {
            let column = column_named(column.trim())?;
            return Ok(Self::Column(column, value_of(value)?));
        }
        match query.to_lowercase().as_str() {
            "*" | "all" | "users" | "all users" | "everyone" => Ok(Self::All),
            _ => Ok(Self::Text(value_of(query)?)),
        }
    }

    fn bound(&self) -> (&str, String) {
        match self {
            Self::All => ("all", String::new()),
            Self::Column(column, value) => (column, value.clone()),
            Self::Text(text) => {
                let escaped = text
                    .replace('\\', "\\\\")
                    .replace('%', "\\%")
                    .replace('_', "\\_");
                ("text", format!("%{escaped}%"))
            }
        }
    }
}

impl Change {
    /// Reads `{column: value}`, which the schema asks for, and `column = value, …`, which models also write.
    fn read(set: &Value) -> Result<Self, String> {
        let mut pairs = Map::new();
        match set {
            Value::Object(columns) => pairs.clone_from(columns),
            Value::String(text) => {
                for pair in text.split(',') {
                    let (column, value) = pair
                        .split_once('=')
                        .ok_or("`set` must name a column and its value")?;
                    pairs.insert(column.trim().to_owned(), json!(value.trim()));
                }
            }
            _ => return Err("`set` is missing".into()),
        }
        let mut change = Self::default();
        for (column, value) in &pairs {
            let text = value
                .as_str()
                .ok_or_else(|| format!("`set.{column}` must be a string"))?;
            let field = match column_named(column)? {
                "name" => &mut change.name,
                "email" => &mut change.email,
                "city" => &mut change.city,
                "status" => &mut change.status,
                _ => return Err("`id` cannot be changed".into()),
            };
            *field = Some(value_of(text)?);
        }
        if change == Self::default() {
            return Err("`set` must name a column and its value".into());
        }
        Ok(change)
    }
}

fn column_named(name: &str) -> Result<&'static str, String> {
    COLUMNS
        .into_iter()
        .find(|column| column.eq_ignore_ascii_case(name))
        .ok_or_else(|| format!("there is no column {name:?}; use {}", COLUMNS.join(", ")))
}

fn value_of(text: &str) -> Result<String, String> {
    let text = text.trim();
    let bare = ['"', '\'']
        .into_iter()
        .find_map(|quote| text.strip_prefix(quote)?.strip_suffix(quote))
        .unwrap_or(text);
    match bare.chars().count() {
        0 => Err("a value is empty; name one".into()),
        1..=MAX_VALUE_CHARS => Ok(bare.to_owned()),
        _ => Err(format!(
            "a value is longer than {MAX_VALUE_CHARS} characters; shorten it"
        )),
    }
}

pub(super) struct SearchDatabase {
    spec: ToolSpec,
    users: Arc<SampleDatabase>,
}

pub(super) struct UpdateDatabase {
    spec: ToolSpec,
    users: Arc<SampleDatabase>,
}

const QUERY: &str = "A text to look for in name, email, city and status; or `column = value` with one of \
    id, name, email, city, status; or `users` for all of them.";

impl SearchDatabase {
    pub(super) fn new(users: Arc<SampleDatabase>) -> Self {
        let schema = object(
            json!({"query": {"type": "string", "description": QUERY}}),
            &["query"],
        );
        let spec = ToolSpec {
            needs_approval: true,
            idempotent: true,
            ..ToolSpec::server("search_database", "Searches the database of users.", schema)
        };
        Self { spec, users }
    }

    async fn search(&self, call: &ToolCall) -> Result<Value, String> {
        let input = arguments(&call.input);
        let filter = Filter::read(required_text(&input, "query")?)?;
        let users = self
            .users
            .search(Owned::by(call), &filter)
            .await
            .map_err(|error| error.to_string())?;
        Ok(json!({
            "message": format!("Found {}", counted(users.len())),
            "count": users.len(),
            "users": users,
        }))
    }
}

impl UpdateDatabase {
    pub(super) fn new(users: Arc<SampleDatabase>) -> Self {
        let text = |what: &str| json!({"type": "string", "description": what});
        let schema = object(
            json!({
                "query": {"type": "string", "description": QUERY},
                "set": {
                    "type": "object",
                    "description": "The columns to change and their new values.",
                    "properties": {
                        "name": text("The new name."),
                        "email": text("The new address."),
                        "city": text("The new city."),
                        "status": text("The new status, such as active or reviewed."),
                    },
                    "additionalProperties": false,
                    "minProperties": 1,
                },
            }),
            &["query", "set"],
        );
        let spec = ToolSpec {
            needs_approval: true,
            ..ToolSpec::server("update_database", "Changes users in the database.", schema)
        };
        Self { spec, users }
    }

    async fn update(&self, call: &ToolCall) -> Result<Value, String> {
        let input = arguments(&call.input);
        let filter = Filter::read(required_text(&input, "query")?)?;
        let change = Change::read(&input["set"])?;
        let changed = self
            .users
            .update(Owned::by(call), &filter, &change)
            .await
            .map_err(|error| error.to_string())?;
        let message = match changed {
            0 => "Nothing to update",
            _ => "Database updated",
        };
        Ok(json!({"message": message, "changed": changed}))
    }
}

impl ServerTool for SearchDatabase {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move { outcome(self.search(&call).await) })
    }

    fn forget<'t>(
        &'t self,
        user: &'t UserId,
        chat_id: &'t ChatId,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 't>> {
        Box::pin(self.users.forget(Owned {
            owner: user,
            id: chat_id,
        }))
    }
}

impl ServerTool for UpdateDatabase {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn run(&self, call: ToolCall) -> Pin<Box<dyn Future<Output = Outcome> + Send + '_>> {
        Box::pin(async move { outcome(self.update(&call).await) })
    }

    fn forget<'t>(
        &'t self,
        user: &'t UserId,
        chat_id: &'t ChatId,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 't>> {
        Box::pin(self.users.forget(Owned {
            owner: user,
            id: chat_id,
        }))
    }
}

fn counted(users: usize) -> String {
    match users {
        1 => "1 user".into(),
        _ => format!("{users} users"),
    }
}

#[cfg(test)]
mod tests;
