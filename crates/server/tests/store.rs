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

use adk_bridge::audit::{Sealing, seal_all};
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

/// Nothing in the audit shows it, but the process that made or met the seals.
#[tokio::test]
async fn rows_that_are_taken_back_with_their_seals_are_missed_by_who_has_seen_them() {
    let home = Temporary::new();
    let store = with_chat(&home).await;
    let row = [audit(AuditKind::ApprovalDenied, "no")];
    let (made, met) = (
        Sealing::new(store.clone(), None),
        Sealing::new(store.clone(), None),
    );
    let seal = async |by: &Sealing| {
        store.append_audit(CHAT, &row).await.unwrap();
        seal_all(by, at(1)).await.unwrap();
    };
    let past_triggers = "DROP TRIGGER IF EXISTS audit_is_not_deleted; DROP TRIGGER IF EXISTS seals_are_not_deleted;";
    let take_back = async |what: &str| {
        home.sql(&format!("{past_triggers} {what}")).await.unwrap();
    };
    for _ in 0..3 {
        seal(&made).await;
    }
    seal_all(&met, at(1)).await.unwrap();
    assert!(!made.takes_loss() && !met.takes_loss());
    let newest = "DELETE FROM audit_seals WHERE number > 2; DELETE FROM audit WHERE id > 2";
    take_back(newest).await;
    seal_all(&made, at(2)).await.unwrap();
    assert!(made.takes_loss() && !made.takes_loss());
    // Others have sealed again, so that there are as many seals as before, and more.
    seal(&made).await;
    seal(&made).await;
    seal_all(&met, at(2)).await.unwrap();
    assert!(met.takes_loss() && !made.takes_loss());
    // Old rows go with their seals.
    made.remove_older(at(1_000), 100, at(1_001)).await.unwrap();
    seal_all(&met, at(1_001)).await.unwrap();
    assert!(!met.takes_loss() && !made.takes_loss());
    take_back("DELETE FROM audit_seals").await;
    seal_all(&met, at(3)).await.unwrap();
    assert!(met.takes_loss());
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
