//! Looks at a database that another process may be using, and copies it, without changing anything in it.

use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _, Row as _, SqliteConnection};

use super::connection::{APPLICATION_ID, BUSY_TIMEOUT, explain, versions};
use super::credentials;
use super::look::{directory_of, real};
use super::with_suffix;
use crate::store::encoded::from_sql;
use crate::store::{DataDir, StoreError, make_private};

/// What a look at a database has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inspected {
    /// How many migrations it lacks.
    pub pending: usize,
    pub bytes: u64,
    /// The bytes of its log, which is brought into it now and then.
    pub log_bytes: u64,
    /// When a chat was changed last, in milliseconds since 1970.
    pub changed_last: Option<u64>,
    /// What SQLite finds wrong with it, if it was asked.
    pub damage: Option<String>,
}

/// A file of a user, as the database knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KnownFile {
    pub id: String,
    pub bytes: u64,
}

/// A database that is only read.
pub struct ReadOnly {
    connection: SqliteConnection,
    path: PathBuf,
    /// Keeps processes from using it.
    lock: Option<DataDir>,
}

/// Looks at a database, if there is one; `thoroughly`: all of it is read.
pub async fn inspect(path: &Path, thoroughly: bool) -> Result<Option<Inspected>, StoreError> {
    let Some(mut database) = ReadOnly::open(path).await? else {
        return Ok(None);
    };
    let looked = database.inspect(thoroughly).await;
    database.close().await;
    looked.map(Some)
}

impl ReadOnly {
    /// Opens a database of this program, if there is one. A process that uses it goes on as before.
    pub async fn open(path: &Path) -> Result<Option<Self>, StoreError> {
        let path = real(path);
        if length(&path) == 0 {
            return Ok(None);
        }
        // Without a log no process uses it; SQLite would make one where it may write.
        let is_used =
            with_suffix(&path, "-wal").exists() || with_suffix(&path, "-journal").exists();
        let database = Self::connect(&path, !is_used).await?;
        Ok(Some(database))
    }

    /// The same for as long as a copy takes. If no process uses the database, none can begin to: then SQLite leaves nothing
    /// next to it, which might belong to another user than the bridge's.
    pub async fn open_to_copy(path: &Path) -> Result<Option<Self>, StoreError> {
        let path = real(path);
        if length(&path) == 0 {
            return Ok(None);
        }
        let lock = DataDir::open(directory_of(&path)).ok();
        let has_log = length(&with_suffix(&path, "-wal")) > 0;
        let mut database = Self::connect(&path, lock.is_some() && !has_log).await?;
        database.lock = lock;
        Ok(Some(database))
    }

    async fn connect(path: &Path, immutable: bool) -> Result<Self, StoreError> {
        let options = SqliteConnectOptions::new()
            .filename(path)
            .disable_statement_logging()
            .read_only(true)
            .immutable(immutable)
            .busy_timeout(BUSY_TIMEOUT);
        let connection = SqliteConnection::connect_with(&options).await;
        let connection = connection.map_err(|error| explain(error, path))?;
        let mut database = Self {
            connection,
            path: path.to_owned(),
            lock: None,
        };
        match database.number("PRAGMA application_id").await? {
            APPLICATION_ID => Ok(database),
            _ => Err(StoreError::NotOurs {
                database: path.to_owned(),
            }),
        }
    }

    /// The id of the store, which its copies have, too.
    pub async fn id(&mut self) -> Result<String, StoreError> {
        let id = sqlx::query_scalar("SELECT id FROM store");
        let id = id.fetch_optional(&mut self.connection).await;
        Ok(id
            .map_err(|error| explain(error, &self.path))?
            .unwrap_or_default())
    }

    /// The files whose ids follow this one, in order, at most `limit` of them.
    pub async fn files_after(
        &mut self,
        id: &str,
        limit: u32,
    ) -> Result<Vec<KnownFile>, StoreError> {
        let rows = sqlx::query("SELECT id, bytes FROM files WHERE id > ?1 ORDER BY id LIMIT ?2")
            .bind(id)
            .bind(limit)
            .fetch_all(&mut self.connection);
        let rows = rows.await.map_err(|error| explain(error, &self.path))?;
        let file = |row: &sqlx::sqlite::SqliteRow| {
            Ok(KnownFile {
                id: row.try_get("id")?,
                bytes: from_sql(row.try_get("bytes")?),
            })
        };
        let files: Result<Vec<_>, sqlx::Error> = rows.iter().map(file).collect();
        files.map_err(|error| explain(error, &self.path))
    }

    pub async fn has_file(&mut self, id: &str) -> Result<bool, StoreError> {
        let found = sqlx::query_scalar("SELECT EXISTS (SELECT 1 FROM files WHERE id = ?1)");
        let found = found.bind(id).fetch_one(&mut self.connection).await;
        found.map_err(|error| explain(error, &self.path))
    }

    /// Copies what the database holds at this moment to a new file, while others write to it.
    pub async fn copy_to(&mut self, target: &Path) -> Result<(), StoreError> {
        let copied = credentials::copy(&mut self.connection, target).await;
        copied.map_err(|error| explain(error, target))?;
        let synced = std::fs::File::open(target).and_then(|copy| copy.sync_all());
        synced.map_err(StoreError::io("making a copy of the database"))?;
        make_private(target);
        Ok(())
    }

    /// What SQLite finds wrong, after reading all of it.
    pub async fn damage(&mut self) -> Result<Option<String>, StoreError> {
        let found: String = sqlx::query_scalar("PRAGMA quick_check(1)")
            .fetch_one(&mut self.connection)
            .await
            .map_err(|error| explain(error, &self.path))?;
        Ok((found != "ok").then_some(found))
    }

    async fn inspect(&mut self, thoroughly: bool) -> Result<Inspected, StoreError> {
        let pending = versions(&mut self.connection, &self.path).await?;
        let changed_last = self.number("SELECT coalesce(max(updated_at), 0) FROM chats");
        let changed_last = changed_last.await.unwrap_or(0);
        let damage = match thoroughly {
            true => self.damage().await?,
            false => None,
        };
        Ok(Inspected {
            pending,
            bytes: length(&self.path),
            log_bytes: length(&with_suffix(&self.path, "-wal")),
            changed_last: u64::try_from(changed_last).ok().filter(|at| *at > 0),
            damage,
        })
    }

    async fn number(&mut self, sql: &'static str) -> Result<i64, StoreError> {
        let number = sqlx::query_scalar(sql).fetch_one(&mut self.connection);
        number.await.map_err(|error| explain(error, &self.path))
    }

    pub async fn close(self) {
        // It has only read.
        let _ = self.connection.close().await;
        drop(self.lock);
    }
}

/// The length of a file; 0 if it does not exist.
fn length(path: &Path) -> u64 {
    std::fs::metadata(path).map_or(0, |found| found.len())
}
