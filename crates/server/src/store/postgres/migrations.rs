//! Brings the schema up to date, by whichever of several replicas comes first.

use sha2::{Digest as _, Sha256};
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, Connection as _, Executor as _, PgConnection, Row as _};
use tokio::time::timeout;

use super::error::{self, Failure};
use crate::failpoint::failpoint;
use crate::store::StoreError;
use crate::store::patience::PATIENCE;

/// In order. One that was released is never changed.
const MIGRATIONS: [&str; 8] = [
    include_str!("../../../migrations/postgres/0001_store.sql"),
    include_str!("../../../migrations/postgres/0002_functions.sql"),
    include_str!("../../../migrations/postgres/0003_grown_texts.sql"),
    include_str!("../../../migrations/postgres/0004_audit_chain.sql"),
    include_str!("../../../migrations/postgres/0005_retention.sql"),
    include_str!("../../../migrations/postgres/0006_logins.sql"),
    include_str!("../../../migrations/postgres/0007_usage.sql"),
    include_str!("../../../migrations/postgres/0008_left_out_growth.sql"),
];

/// The number of the lock: "ADKB".
const LOCK: i64 = 1_094_994_754;

/// Applies the migrations that a database lacks; `place` is the name that errors give it.
pub(super) async fn apply(options: &PgConnectOptions, place: &str) -> Result<(), StoreError> {
    let applied = timeout(PATIENCE, try_apply(options, place)).await;
    applied.unwrap_or(Err(StoreError::Busy))
}

async fn try_apply(options: &PgConnectOptions, place: &str) -> Result<(), StoreError> {
    let connecting = PgConnection::connect_with(options).await;
    let mut connection = connecting.map_err(|error| error::unconnected(error).into_error())?;
    let done = async {
        let mut transaction = connection.begin().await.map_err(failed)?;
        // Of the transaction, so that it holds through a pooler: others wait here, and then find everything done.
        let lock = format!("SELECT pg_advisory_xact_lock({LOCK})");
        run(&mut transaction, lock).await?;
        prepare(&mut transaction, place).await?;
        let versions = versions(&mut transaction).await?;
        check(&versions, place)?;
        for (version, sql) in (1i64..).zip(MIGRATIONS).skip(versions.len()) {
            failpoint("before", "migration");
            run(&mut transaction, sql.to_owned()).await?;
            let checksum = checksum(sql);
            let note = format!(
                "INSERT INTO adk_bridge.migrations (version, checksum) VALUES ({version}, '{checksum}')"
            );
            run(&mut transaction, note).await?;
            failpoint("after", "migration");
        }
        transaction.commit().await.map_err(failed)
    };
    let done = done.await;
    let _ = connection.close().await;
    done
}

/// What a look at a database has shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Looked {
    /// The database without its password.
    pub place: String,
    /// How many migrations it lacks.
    pub pending: usize,
    /// Whether there are no tables yet.
    pub is_new: bool,
    /// Its clock, in milliseconds since 1970.
    pub clock: u64,
}

/// Looks at a database and changes nothing.
pub(super) async fn look(options: &PgConnectOptions, place: &str) -> Result<Looked, StoreError> {
    let looked = timeout(PATIENCE, async {
        let connecting = PgConnection::connect_with(options).await;
        let mut connection = connecting.map_err(|error| error::unconnected(error).into_error())?;
        let looked = async {
            let is_new = !is_there(&mut connection, place).await?;
            let versions = match is_new {
                true => Vec::new(),
                false => versions(&mut connection).await?,
            };
            check(&versions, place)?;
            let clock = "SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint";
            let row = connection.fetch_one(sqlx::raw_sql(clock)).await;
            let clock: i64 = row.and_then(|row| row.try_get(0)).map_err(failed)?;
            Ok(Looked {
                place: place.to_owned(),
                pending: MIGRATIONS.len().saturating_sub(versions.len()),
                is_new,
                clock: u64::try_from(clock).unwrap_or_default(),
            })
        };
        let looked = looked.await;
        let _ = connection.close().await;
        looked
    });
    looked.await.unwrap_or(Err(StoreError::Busy))
}

/// Makes the schema, unless it is there.
async fn prepare(connection: &mut PgConnection, place: &str) -> Result<(), StoreError> {
    if is_there(connection, place).await? {
        return Ok(());
    }
    run(
        connection,
        "CREATE SCHEMA adk_bridge;
         CREATE TABLE adk_bridge.migrations (
             version    bigint      NOT NULL PRIMARY KEY,
             checksum   text        NOT NULL,
             applied_at timestamptz NOT NULL DEFAULT now()
         )"
        .to_owned(),
    )
    .await
}

/// Whether the schema is there, and ours; refuses a server that cannot be used.
async fn is_there(connection: &mut PgConnection, place: &str) -> Result<bool, StoreError> {
    let row = connection
        .fetch_one(sqlx::raw_sql(
            "SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = 'adk_bridge'),
                    to_regclass('adk_bridge.migrations') IS NOT NULL,
                    current_setting('server_version_num')::integer, current_setting('server_encoding')",
        ))
        .await
        .map_err(failed)?;
    let schema: bool = row.try_get(0).map_err(failed)?;
    let ours: bool = row.try_get(1).map_err(failed)?;
    let version: i32 = row.try_get(2).map_err(failed)?;
    let encoding: String = row.try_get(3).map_err(failed)?;
    if version < OLDEST {
        return Err(unusable(format!(
            "the server at {place} is older than PostgreSQL 13; name a newer one in store.url"
        )));
    }
    if encoding != "UTF8" {
        return Err(unusable(format!(
            "{place} has the encoding {encoding}; create a database with ENCODING 'UTF8'"
        )));
    }
    match (schema, ours) {
        (true, false) => Err(StoreError::NotOurs {
            database: place.into(),
        }),
        (schema, _) => Ok(schema),
    }
}

/// The oldest version that has all that we use, as PostgreSQL counts.
const OLDEST: i32 = 130_000;

async fn versions(connection: &mut PgConnection) -> Result<Vec<(i64, String)>, StoreError> {
    let sql = "SELECT version, checksum FROM adk_bridge.migrations ORDER BY version";
    let rows = connection.fetch_all(sqlx::raw_sql(sql)).await;
    rows.map_err(failed)?
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Result<_, sqlx::Error>>()
        .map_err(failed)
}

/// Refuses a database of a newer version, and one whose migrations were not ours.
fn check(versions: &[(i64, String)], place: &str) -> Result<(), StoreError> {
    for (expected, (version, found)) in (1i64..).zip(versions) {
        let known = usize::try_from(*version).ok();
        let known = known.and_then(|version| MIGRATIONS.get(version.checked_sub(1)?));
        match known {
            None => {
                return Err(StoreError::Newer {
                    database: place.into(),
                    schema: *version,
                });
            }
            Some(sql) if checksum(sql) == *found && expected == *version => {}
            Some(_) => {
                return Err(StoreError::Corrupt {
                    what: format!("schema {version} of {place}"),
                });
            }
        }
    }
    Ok(())
}

fn checksum(sql: &str) -> String {
    use std::fmt::Write as _;

    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(sql.as_bytes()) {
        let _ = write!(hex, "{byte:02x}");
    }
    hex
}

async fn run(connection: &mut PgConnection, sql: String) -> Result<(), StoreError> {
    // Nothing in it comes from outside.
    let done = connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await;
    done.map(|_| ()).map_err(failed)
}

fn unusable(why: String) -> StoreError {
    StoreError::Io {
        doing: "opening the database",
        why: why.into(),
    }
}

fn failed(error: sqlx::Error) -> StoreError {
    match Failure::from(error).into_error() {
        StoreError::Io { why, .. } => StoreError::Io {
            doing: "bringing the database up to date",
            why,
        },
        other => other,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn every_migration_is_run() {
        let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/migrations/postgres");
        let files = std::fs::read_dir(directory).unwrap();
        let mut found: Vec<_> = files.map(|file| file.unwrap().path()).collect();
        found.sort();
        let read = |path| std::fs::read_to_string(path).unwrap();
        let found: Vec<_> = found.into_iter().map(read).collect();
        assert_eq!(found, MIGRATIONS);
    }
}
