//! Inspects a database before anything of it is changed, and checks that it and its log belong together.

use std::io;
use std::path::{Path, PathBuf};

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{Connection as _, SqliteConnection};

use super::connection::{APPLICATION_ID, BUSY_TIMEOUT, explain};
use super::with_suffix;
use crate::store::{Identity, PriorContents, StoreError};

/// How many symbolic links a path may have, as in Linux: more are a loop.
const MAX_LINKS: usize = 40;

/// One name for the database, whichever path led to it: its log and its lock are next to the file, not next to a link
/// to it.
pub(super) fn real(path: &Path) -> PathBuf {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Ok(target) = std::fs::read_link(&path) else {
            break;
        };
        path = directory_of(&path).join(target);
    }
    match (directory_of(&path).canonicalize(), path.file_name()) {
        (Ok(directory), Some(name)) => directory.join(name),
        // A file that does not exist keeps its name, for the error or for creating it.
        _ => path,
    }
}

/// The directory of a file.
pub(super) fn directory_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
}

/// Reads the contents of a database of any version, or nothing if there is none yet. Writes nothing, and leaves its log
/// as it is.
pub(super) async fn look(path: &Path) -> Result<Option<PriorContents>, StoreError> {
    let log = with_suffix(path, "-wal");
    let has_log = length(&log)? > 0;
    if length(path)? == 0 {
        // SQLite deletes the log of an empty database.
        return match has_log {
            true => Err(StoreError::LogAlone {
                database: path.to_owned(),
                log,
            }),
            false => Ok(None),
        };
    }
    let others = has_log || with_suffix(path, "-journal").exists();
    let options = SqliteConnectOptions::new()
        .filename(path)
        .read_only(true)
        // Without a log SQLite creates no file next to it either: we have locked the directory, so no other process
        // writes.
        .immutable(!others)
        .busy_timeout(BUSY_TIMEOUT);
    let found = async {
        let mut connection = SqliteConnection::connect_with(&options).await?;
        let found = read(&mut connection, path, has_log).await;
        connection.close().await?;
        found
    };
    match found.await {
        Err(ReadError::Store(error)) => Err(error),
        Err(ReadError::Sql(error)) => match explain(error, path) {
            StoreError::Corrupt { .. } if has_log => Err(other_log(path)),
            other => Err(other),
        },
        Ok(found) => Ok(Some(found)),
    }
}

enum ReadError {
    Sql(sqlx::Error),
    Store(StoreError),
}

impl From<sqlx::Error> for ReadError {
    fn from(error: sqlx::Error) -> Self {
        Self::Sql(error)
    }
}

async fn read(
    connection: &mut SqliteConnection,
    path: &Path,
    has_log: bool,
) -> Result<PriorContents, ReadError> {
    let application: i64 = sqlx::query_scalar("PRAGMA application_id")
        .fetch_one(&mut *connection)
        .await?;
    let tables: Vec<String> = sqlx::query_scalar("SELECT name FROM sqlite_schema")
        .fetch_all(&mut *connection)
        .await?;
    if !tables.is_empty() && application != APPLICATION_ID {
        return Err(ReadError::Store(StoreError::NotOurs {
            database: path.to_owned(),
        }));
    }
    if has_log {
        // SQLite applies a log to whichever database is next to it, and the result of a wrong one looks intact until
        // all of it is read. There is a log only after a crash.
        let state: String = sqlx::query_scalar("PRAGMA quick_check(1)")
            .fetch_one(&mut *connection)
            .await?;
        if state != "ok" {
            return Err(ReadError::Store(other_log(path)));
        }
    }
    let has = |table: &str| tables.iter().any(|name| name == table);
    let mut id = None;
    // Older ones have none.
    if has("store") {
        id = sqlx::query_scalar("SELECT id FROM store")
            .fetch_optional(&mut *connection)
            .await?;
    }
    let (mut is_empty, mut files) = (true, Vec::new());
    if has("chats") && has("files") {
        is_empty = sqlx::query_scalar("SELECT NOT EXISTS (SELECT 1 FROM chats)")
            .fetch_one(&mut *connection)
            .await?;
        files = sqlx::query_scalar("SELECT id FROM files")
            .fetch_all(&mut *connection)
            .await?;
    }
    Ok(PriorContents {
        store: Identity {
            id: id.unwrap_or_default(),
            place: path.to_owned(),
            is_empty,
        },
        files: files.into_iter().collect(),
    })
}

fn other_log(database: &Path) -> StoreError {
    StoreError::OtherLog {
        database: database.to_owned(),
        log: with_suffix(database, "-wal"),
    }
}

/// The length of a file; 0 if it does not exist.
fn length(path: &Path) -> Result<u64, StoreError> {
    match std::fs::metadata(path) {
        Ok(found) => Ok(found.len()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
        Err(error) => Err(StoreError::io("looking at the database")(error)),
    }
}
