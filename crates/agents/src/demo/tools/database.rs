//! `search_database` and `update_database`: a real SQLite table of sample users, each chat with rows of its own.
//!
//! What a model writes never becomes SQL: it is a text to look for or `column = value`, and both are bound.

use std::future::Future;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use adk_bridge_protocol::calls::Outcome;
use serde_json::{Map, Value, json};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Row, SqlitePool};
use tokio::sync::OnceCell;

use super::{object, outcome, required_text, server_tool};
use crate::tool::{ServerTool, ToolCall, ToolSpec};

/// A longer value is no name, address or city.
const MAX_VALUE_CHARS: usize = 200;

/// Why the sample users cannot be reached.
#[derive(Debug, thiserror::Error)]
#[error("the sample database failed: {0}")]
pub struct DatabaseError(#[from] sqlx::Error);

/// The sample users. It is opened at its first use.
pub struct SampleDatabase {
    file: Option<PathBuf>,
    pool: OnceCell<SqlitePool>,
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

/// Which users are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Filter {
    All,
    Column(&'static str, String),
    Text(String),
}

/// What users are changed to; `None` leaves a column as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Change {
    name: Option<String>,
    email: Option<String>,
    city: Option<String>,
    status: Option<String>,
}

const COLUMNS: [&str; 5] = ["id", "name", "email", "city", "status"];

/// The number of them is what ADR 0004 tells the user.
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

const CREATE: &str = "CREATE TABLE IF NOT EXISTS users (
    chat TEXT NOT NULL, id INTEGER NOT NULL, name TEXT NOT NULL, email TEXT NOT NULL,
    city TEXT NOT NULL, status TEXT NOT NULL, PRIMARY KEY (chat, id)) STRICT";
const FILL: &str = "INSERT OR IGNORE INTO users (chat, id, name, email, city, status)
    VALUES (?1, ?2, ?3, ?4, ?5, 'active')";
const SEARCH: &str = "SELECT id, name, email, city, status FROM users WHERE chat = ?1 AND CASE ?2
    WHEN 'all' THEN 1
    WHEN 'id' THEN CAST(id AS TEXT) = ?3
    WHEN 'name' THEN name = ?3 COLLATE NOCASE
    WHEN 'email' THEN email = ?3 COLLATE NOCASE
    WHEN 'city' THEN city = ?3 COLLATE NOCASE
    WHEN 'status' THEN status = ?3 COLLATE NOCASE
    ELSE name LIKE ?3 ESCAPE '\\' OR email LIKE ?3 ESCAPE '\\' OR city LIKE ?3 ESCAPE '\\'
        OR status LIKE ?3 ESCAPE '\\' END
    ORDER BY id";
const UPDATE: &str = "UPDATE users SET name = COALESCE(?4, name), email = COALESCE(?5, email),
    city = COALESCE(?6, city), status = COALESCE(?7, status) WHERE chat = ?1 AND CASE ?2
    WHEN 'all' THEN 1
    WHEN 'id' THEN CAST(id AS TEXT) = ?3
    WHEN 'name' THEN name = ?3 COLLATE NOCASE
    WHEN 'email' THEN email = ?3 COLLATE NOCASE
    WHEN 'city' THEN city = ?3 COLLATE NOCASE
    WHEN 'status' THEN status = ?3 COLLATE NOCASE
    ELSE name LIKE ?3 ESCAPE '\\' OR email LIKE ?3 ESCAPE '\\' OR city LIKE ?3 ESCAPE '\\'
        OR status LIKE ?3 ESCAPE '\\' END";

impl SampleDatabase {
    /// Without a file the users live in memory.
    pub fn new(file: Option<PathBuf>) -> Self {
        Self {
            file,
            pool: OnceCell::new(),
        }
    }

    async fn search(&self, chat: &str, filter: &Filter) -> Result<Vec<User>, DatabaseError> {
        let pool = self.filled(chat).await?;
        let (kind, value) = filter.bound();
        let rows = sqlx::query(SEARCH)
            .bind(chat)
            .bind(kind)
            .bind(value)
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
        chat: &str,
        filter: &Filter,
        change: &Change,
    ) -> Result<u64, DatabaseError> {
        let pool = self.filled(chat).await?;
        let (kind, value) = filter.bound();
        let done = sqlx::query(UPDATE)
            .bind(chat)
            .bind(kind)
            .bind(value)
            .bind(&change.name)
            .bind(&change.email)
            .bind(&change.city)
            .bind(&change.status)
            .execute(pool)
            .await?;
        Ok(done.rows_affected())
    }

    /// Forgets the rows of a chat, where there can be any.
    async fn forget(&self, chat: &str) -> Result<(), String> {
        if self.pool.get().is_none() && !self.file.as_ref().is_some_and(|file| file.exists()) {
            return Ok(());
        }
        let forget = async {
            let pool = self.pool.get_or_try_init(|| self.open()).await?;
            sqlx::query("DELETE FROM users WHERE chat = ?1")
                .bind(chat)
                .execute(pool)
                .await
        };
        forget
            .await
            .map(|_| ())
            .map_err(|error| DatabaseError(error).to_string())
    }

    async fn filled(&self, chat: &str) -> Result<&SqlitePool, DatabaseError> {
        let pool = self.pool.get_or_try_init(|| self.open()).await?;
        let mut transaction = pool.begin().await?;
        for (id, (name, email, city)) in (1_i64..).zip(SAMPLES) {
            sqlx::query(FILL)
                .bind(chat)
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
        // One connection, kept for ever: a second one to a database in memory would see another database.
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
    /// Takes `{column: value}`, which the schema asks for, and `column = value, …`, which models also write.
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
            ..server_tool("search_database", "Searches the database of users.", schema)
        };
        Self { spec, users }
    }

    async fn search(&self, call: &ToolCall) -> Result<Value, String> {
        let filter = Filter::read(required_text(&call.input, "query")?)?;
        let users = self
            .users
            .search(&call.chat_id, &filter)
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
            ..server_tool("update_database", "Changes users in the database.", schema)
        };
        Self { spec, users }
    }

    async fn update(&self, call: &ToolCall) -> Result<Value, String> {
        let filter = Filter::read(required_text(&call.input, "query")?)?;
        let change = Change::read(call.input.get("set").unwrap_or(&Value::Null))?;
        let changed = self
            .users
            .update(&call.chat_id, &filter, &change)
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
        chat_id: &'t str,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 't>> {
        Box::pin(self.users.forget(chat_id))
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
        chat_id: &'t str,
    ) -> Pin<Box<dyn Future<Output = Result<(), String>> + Send + 't>> {
        Box::pin(self.users.forget(chat_id))
    }
}

fn counted(users: usize) -> String {
    match users {
        1 => "1 user".into(),
        _ => format!("{users} users"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{call, run};
    use super::*;

    fn tools() -> (SearchDatabase, UpdateDatabase) {
        let users = Arc::new(SampleDatabase::new(None));
        (
            SearchDatabase::new(users.clone()),
            UpdateDatabase::new(users),
        )
    }

    #[tokio::test]
    async fn a_search_is_a_text_or_a_column() {
        let (search, _) = tools();
        let cases = [
            ("users", Ok("Found 10 users")),
            ("*", Ok("Found 10 users")),
            ("tokyo", Ok("Found 2 users")),
            ("city = Tokyo", Ok("Found 2 users")),
            ("CITY='tokyo'", Ok("Found 2 users")),
            ("hanako", Ok("Found 1 user")),
            ("id = 1", Ok("Found 1 user")),
            ("id = 1 OR 1=1", Ok("Found 0 users")),
            (
                "' OR '1'='1",
                Err("there is no column \"' OR '1'\"; use id, name, email, city, status"),
            ),
            ("%", Ok("Found 0 users")),
            ("_", Ok("Found 0 users")),
            ("\\", Ok("Found 0 users")),
            ("SELECT * FROM users", Ok("Found 0 users")),
            (
                "password = x",
                Err("there is no column \"password\"; use id, name, email, city, status"),
            ),
            (
                "chat = x",
                Err("there is no column \"chat\"; use id, name, email, city, status"),
            ),
            ("city =", Err("a value is empty; name one")),
            ("", Err("`query` is missing")),
        ];
        for (query, expected) in cases {
            let result = run(&search, json!({"query": query})).await;
            let message = result.map(|found| found["message"].as_str().unwrap().to_owned());
            assert_eq!(
                message,
                expected.map(str::to_owned).map_err(str::to_owned),
                "{query}"
            );
        }
        let found = run(&search, json!({"query": "id = 1"})).await.unwrap();
        let hanako = json!({
            "id": 1, "name": "Hanako Sato", "email": "hanako@example.com", "city": "Tokyo", "status": "active",
        });
        assert_eq!(found["users"], json!([hanako]));
    }

    #[tokio::test]
    async fn an_update_changes_what_a_search_finds() {
        let (search, update) = tools();
        let count = async |query: &str| {
            run(&search, json!({"query": query})).await.unwrap()["count"]
                .as_u64()
                .unwrap()
        };
        let cases = [
            (
                json!({"query": "users", "set": {"status": "reviewed"}}),
                Ok(10),
                "status = reviewed",
                10,
            ),
            (
                json!({"query": "city = Tokyo", "set": "city = Kyoto, status = moved"}),
                Ok(2),
                "kyoto",
                2,
            ),
            (
                json!({"query": "nobody", "set": {"city": "Rome"}}),
                Ok(0),
                "rome",
                0,
            ),
            (
                json!({"query": "id = 2", "set": {"name": "x'; DROP TABLE users; --"}}),
                Ok(1),
                "drop table",
                1,
            ),
            (
                json!({"query": "users", "set": {"id": "7"}}),
                Err("`id` cannot be changed"),
                "users",
                10,
            ),
            (
                json!({"query": "users", "set": {"age": "7"}}),
                Err("there is no column \"age\"; use id, name, email, city, status"),
                "users",
                10,
            ),
            (
                json!({"query": "users", "set": {"city": 7}}),
                Err("`set.city` must be a string"),
                "users",
                10,
            ),
            (
                json!({"query": "users", "set": {}}),
                Err("`set` must name a column and its value"),
                "users",
                10,
            ),
            (
                json!({"query": "users", "set": "reviewed"}),
                Err("`set` must name a column and its value"),
                "users",
                10,
            ),
            (
                json!({"query": "users"}),
                Err("`set` is missing"),
                "users",
                10,
            ),
        ];
        for (input, expected, query, found) in cases {
            let result = run(&update, input.clone()).await;
            let changed = result.map(|done| done["changed"].as_u64().unwrap());
            assert_eq!(changed, expected.map_err(str::to_owned), "{input}");
            assert_eq!(count(query).await, found, "{input}");
        }
    }

    #[tokio::test]
    async fn chats_do_not_see_each_others_rows() {
        let (search, update) = tools();
        run(&update, json!({"query": "users", "set": {"city": "Rome"}}))
            .await
            .unwrap();
        let elsewhere = ToolCall {
            chat_id: "another chat".into(),
            ..call(json!({"query": "Rome"}), &Arc::default())
        };
        let Outcome::Output { value, .. } = search.run(elsewhere).await else {
            panic!("no output");
        };
        assert_eq!(value["message"], "Found 0 users");
        // A chat that is made again begins anew.
        update
            .forget(&call(json!({}), &Arc::default()).chat_id)
            .await
            .unwrap();
        let again = run(&search, json!({"query": "Rome"})).await.unwrap();
        assert_eq!(again["message"], "Found 0 users");
    }

    #[tokio::test]
    async fn a_file_outlives_its_database() {
        let directory = tempfile::tempdir().unwrap();
        let file = Some(directory.path().join("users.db"));
        let update = UpdateDatabase::new(Arc::new(SampleDatabase::new(file.clone())));
        run(&update, json!({"query": "id = 3", "set": {"city": "Rome"}}))
            .await
            .unwrap();
        drop(update);
        let search = SearchDatabase::new(Arc::new(SampleDatabase::new(file)));
        let found = run(&search, json!({"query": "city = Rome"})).await.unwrap();
        assert_eq!(found["message"], "Found 1 user");
    }
}
