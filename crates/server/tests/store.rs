//! The store in SQLite: the suite of all stores, and what only a file on disk can show.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

#[macro_use]
mod store_suite;

use std::path::Path;
use std::sync::Arc;

use adk_bridge::store::sqlite::{DATABASE, SqliteStore};
use adk_bridge::store::{AuditPage, Cut, DataDir, Pending, Store, StoreError};
use adk_bridge_protocol::outbox::AuditKind;
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};
use store_suite::{CHAT, Home, at, audit, open_reply, reply, shown, user, with_chat};
use tempfile::TempDir;

store_suite!(Temporary::new());

struct Temporary(TempDir);

impl Temporary {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn database(&self) -> std::path::PathBuf {
        self.0.path().join(DATABASE)
    }

    /// Runs SQL behind the store's back.
    async fn sql(&self, sql: &str) -> Result<(), sqlx::Error> {
        let url = format!("sqlite://{}", self.database().display());
        let mut connection = SqliteConnection::connect(&url).await?;
        let done = sqlx::raw_sql(AssertSqlSafe(sql.to_owned()))
            .execute(&mut connection)
            .await;
        connection.close().await?;
        done.map(|_| ())
    }
}

impl Home for Temporary {
    fn open(&self) -> Pending<'_, Arc<dyn Store>> {
        Box::pin(async { open(self.0.path()).await })
    }
}

async fn open(dir: &Path) -> Result<Arc<dyn Store>, StoreError> {
    let data_dir = Arc::new(DataDir::open(dir)?);
    Ok(Arc::new(SqliteStore::open(data_dir, None).await?))
}

async fn refused(dir: &Path) -> StoreError {
    match open(dir).await {
        Ok(_) => panic!("opened"),
        Err(error) => error,
    }
}

#[tokio::test]
async fn the_audit_cannot_be_rewritten() {
    let home = Temporary::new();
    let store = with_chat(&home).await;
    store
        .append_audit(CHAT, &[audit(AuditKind::ApprovalDenied, "no")])
        .await
        .unwrap();
    let before = store.audit(CHAT, AuditPage::default()).await.unwrap();
    for sql in [
        "UPDATE audit SET kind = 'approval.approved'",
        "DELETE FROM audit",
        "REPLACE INTO audit (id, at, user, chat_id, kind) SELECT id, at, user, chat_id, 'x' FROM audit",
    ] {
        let error = home.sql(sql).await.unwrap_err().to_string();
        assert!(error.contains("the audit is append-only"), "{sql}: {error}");
    }
    assert_eq!(
        store.audit(CHAT, AuditPage::default()).await.unwrap(),
        before
    );
}

#[tokio::test]
async fn a_failure_leaves_nothing_and_the_next_commit_works() {
    let home = Temporary::new();
    let store = with_chat(&home).await;
    store
        .commit(CHAT, &reply("m1", "before"), &[], at(1))
        .await
        .unwrap();
    // Ends the transaction under the store's feet, as a full disk does.
    home.sql(
        "CREATE TRIGGER fails BEFORE INSERT ON audit BEGIN SELECT RAISE(ROLLBACK, 'disk'); END",
    )
    .await
    .unwrap();
    let entry = [audit(AuditKind::ToolStarted, "")];
    let failed = store
        .commit(CHAT, &reply("m1", "after"), &entry, at(2))
        .await;
    assert!(matches!(failed, Err(StoreError::Io { .. })), "{failed:?}");
    assert_eq!(open_reply(&*store).await, Some(reply("m1", "before")));
    home.sql("DROP TRIGGER fails").await.unwrap();
    store
        .commit(CHAT, &reply("m1", "after"), &entry, at(3))
        .await
        .unwrap();
    assert_eq!(
        store.audit(CHAT, AuditPage::default()).await.unwrap().len(),
        1
    );
}

#[tokio::test]
async fn a_second_process_is_refused() {
    let home = Temporary::new();
    let store = with_chat(&home).await;
    let error = refused(home.0.path()).await.to_string();
    let me = format!("is in use by process {}; stop it", std::process::id());
    assert!(error.contains(&me), "{error}");
    drop(store);
    open(home.0.path()).await.unwrap();
}

#[tokio::test]
async fn what_is_no_database_of_ours_is_left_alone() {
    let garbage = Temporary::new();
    let bytes = b"these are my notes, please do not touch ".repeat(100);
    std::fs::write(garbage.database(), &bytes).unwrap();
    let error = refused(garbage.0.path()).await;
    assert!(
        matches!(&error, StoreError::Corrupt { what } if what.ends_with(DATABASE)),
        "{error:?}"
    );
    assert_eq!(std::fs::read(garbage.database()).unwrap(), bytes);

    let foreign = Temporary::new();
    std::fs::write(foreign.database(), b"").unwrap();
    foreign.sql("CREATE TABLE songs (name TEXT)").await.unwrap();
    let error = refused(foreign.0.path()).await.to_string();
    assert!(error.contains("is not a database of adk-bridge"), "{error}");
}

#[tokio::test]
async fn broken_rows_are_named() {
    let home = Temporary::new();
    let store = with_chat(&home).await;
    store
        .append(CHAT, &[user("m1", "hi")], Cut::Nothing, at(1))
        .await
        .unwrap();
    store
        .commit(CHAT, &reply("m2", ""), &[], at(2))
        .await
        .unwrap();
    home.sql("UPDATE messages SET reply = '{' WHERE id = 'm2'")
        .await
        .unwrap();
    let error = store.open_replies_of(CHAT).await.unwrap_err().to_string();
    assert!(error.starts_with("the record of a reply (EOF"), "{error}");
    assert_eq!(shown(&*store).await, ["m1", "m2"]);
    home.sql("UPDATE messages SET body = '[]' WHERE id = 'm1'")
        .await
        .unwrap();
    let error = store.messages(CHAT).await.unwrap_err().to_string();
    assert!(error.starts_with("a stored message ("), "{error}");
}

#[tokio::test]
async fn an_existing_database_is_migrated_once_and_a_newer_one_refused() {
    let home = Temporary::new();
    // An empty file is a fresh database.
    std::fs::write(home.database(), b"").unwrap();
    for _ in 0..3 {
        let store = with_chat(&home).await;
        assert_eq!(store.chat(CHAT).await.unwrap().unwrap().created, at(1_000));
        store.close().await.unwrap();
    }
    home.sql(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
         VALUES (999, 'later', 1, x'00', 0)",
    )
    .await
    .unwrap();
    let error = refused(home.0.path()).await.to_string();
    assert!(error.contains("newer version (schema 999)"), "{error}");
    home.sql("UPDATE _sqlx_migrations SET checksum = x'00'; DELETE FROM _sqlx_migrations WHERE version = 999")
        .await
        .unwrap();
    let error = refused(home.0.path()).await.to_string();
    assert!(error.starts_with("schema 1 of "), "{error}");
}

/// Conversations are read by their owner only, whatever the umask.
#[cfg(unix)]
#[test]
fn a_new_data_directory_is_private() {
    use std::os::unix::fs::PermissionsExt as _;

    let home = Temporary::new();
    let dir = home.0.path().join("a/b");
    let held = DataDir::open(&dir).unwrap();
    let mode = std::fs::metadata(held.path()).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}
