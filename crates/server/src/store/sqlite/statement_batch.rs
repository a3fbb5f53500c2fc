//! Several statements in one round trip to the thread of a connection, which costs more than most statements do.

use futures_util::TryStreamExt as _;
use sqlx::error::BoxDynError;
use sqlx::sqlite::{SqliteArguments, SqliteRow};
use sqlx::{
    Arguments as _, AssertSqlSafe, Either, Encode, Executor as _, Sqlite, SqliteConnection, Type,
};

/// Statements that run one after the other, up to the first that fails. Their parameters are plain `?`.
pub(super) struct StatementBatch {
    sql: String,
    arguments: SqliteArguments,
    unusable: Option<BoxDynError>,
}

/// The result of one statement.
#[derive(Default)]
pub(super) struct StatementResult {
    pub(super) rows: Vec<SqliteRow>,
    /// Meaningful only if the statement changes rows.
    pub(super) changed: u64,
}

impl StatementBatch {
    pub(super) fn new() -> Self {
        Self {
            sql: String::new(),
            arguments: SqliteArguments::default(),
            unusable: None,
        }
    }

    /// A batch whose first statement begins a transaction.
    pub(super) fn begin() -> Self {
        Self::new().then("BEGIN IMMEDIATE")
    }

    /// Adds a statement. Values are always bound, so the text is ours.
    pub(super) fn then(mut self, sql: &str) -> Self {
        self.sql.push_str(sql);
        self.sql.push(';');
        self
    }

    /// Gives the next parameter its value.
    pub(super) fn bind<'v>(mut self, value: impl Encode<'v, Sqlite> + Type<Sqlite>) -> Self {
        if let Err(error) = self.arguments.add(value) {
            self.unusable.get_or_insert(error);
        }
        self
    }

    /// Returns the result of each statement, in order.
    pub(super) async fn run(
        self,
        connection: &mut SqliteConnection,
    ) -> Result<Vec<StatementResult>, sqlx::Error> {
        if let Some(error) = self.unusable {
            return Err(sqlx::Error::Encode(error));
        }
        let query = sqlx::query_with(AssertSqlSafe(self.sql), self.arguments);
        let mut results = connection.fetch_many(query);
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        while let Some(result) = results.try_next().await? {
            match result {
                Either::Right(row) => rows.push(row),
                Either::Left(done) => all.push(StatementResult {
                    rows: std::mem::take(&mut rows),
                    changed: done.rows_affected(),
                }),
            }
        }
        Ok(all)
    }
}
