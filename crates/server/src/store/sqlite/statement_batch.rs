//! Several statements in one round trip to the thread of a connection, which costs more than most statements do.

use std::borrow::Cow;
use std::sync::Arc;

use futures_util::TryStreamExt as _;
use sqlx::sqlite::SqliteRow;
use sqlx::{
    AssertSqlSafe, Either, Executor as _, Row as _, SqliteConnection, TypeInfo as _, ValueRef as _,
};

/// Statements that run one after the other, up to the first that fails. Their parameters are plain `?`.
#[derive(Default)]
pub(super) struct StatementBatch {
    statements: Vec<Statement>,
}

pub(super) struct Statement {
    pub(super) sql: Cow<'static, str>,
    pub(super) values: Vec<Value>,
}

/// A value of a parameter or of a column.
#[derive(Debug, Clone)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Text(Arc<str>),
}

/// A row that a statement returned.
#[derive(Debug)]
pub(super) struct Row(Vec<Value>);

/// The result of one statement.
#[derive(Default)]
pub(super) struct StatementResult {
    pub(super) rows: Vec<Row>,
    /// Meaningful only if the statement changes rows.
    pub(super) changed: u64,
}

impl StatementBatch {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// A batch whose first statement begins a transaction.
    pub(super) fn begin() -> Self {
        Self::new().then("BEGIN IMMEDIATE")
    }

    /// Adds a statement. Values are always bound, so the text is ours.
    pub(super) fn then(mut self, sql: impl Into<Cow<'static, str>>) -> Self {
        self.statements.push(Statement {
            sql: sql.into(),
            values: Vec::new(),
        });
        self
    }

    /// Gives the next parameter of the last statement its value.
    pub(super) fn bind(mut self, value: impl Into<Value>) -> Self {
        if let Some(statement) = self.statements.last_mut() {
            statement.values.push(value.into());
        }
        self
    }

    pub(super) fn statements(&self) -> &[Statement] {
        &self.statements
    }

    /// Returns the result of each statement, in order.
    pub(super) async fn run(
        &self,
        connection: &mut SqliteConnection,
    ) -> Result<Vec<StatementResult>, sqlx::Error> {
        let mut sql = String::new();
        for statement in &self.statements {
            sql.push_str(&statement.sql);
            sql.push(';');
        }
        let mut query = sqlx::query(AssertSqlSafe(sql));
        for value in self.statements.iter().flat_map(|it| &it.values) {
            query = match value {
                Value::Null => query.bind(None::<i64>),
                Value::Integer(number) => query.bind(*number),
                Value::Text(text) => query.bind(text.clone()),
            };
        }
        let mut results = connection.fetch_many(query);
        let (mut all, mut rows) = (Vec::new(), Vec::new());
        while let Some(result) = results.try_next().await? {
            match result {
                Either::Right(row) => rows.push(Row::read(&row)?),
                Either::Left(done) => all.push(StatementResult {
                    rows: std::mem::take(&mut rows),
                    changed: done.rows_affected(),
                }),
            }
        }
        Ok(all)
    }
}

impl Row {
    pub(super) fn of(values: Vec<Value>) -> Self {
        Self(values)
    }

    pub(super) fn read(row: &SqliteRow) -> Result<Self, sqlx::Error> {
        let value = |column| {
            let raw = row.try_get_raw(column)?;
            Ok(if raw.is_null() {
                Value::Null
            } else if raw.type_info().name() == "INTEGER" {
                Value::Integer(row.try_get(column)?)
            } else {
                Value::Text(row.try_get::<String, _>(column)?.into())
            })
        };
        (0..row.len())
            .map(value)
            .collect::<Result<_, _>>()
            .map(Self)
    }

    /// The text in a column, if there is any.
    pub(super) fn text(&self, column: usize) -> Option<&str> {
        match self.0.get(column) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    /// The number in a column, or 0 if there is none.
    pub(super) fn integer(&self, column: usize) -> i64 {
        match self.0.get(column) {
            Some(Value::Integer(number)) => *number,
            _ => 0,
        }
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl From<bool> for Value {
    fn from(value: bool) -> Self {
        Self::Integer(value.into())
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text.into())
    }
}

impl From<Arc<str>> for Value {
    fn from(text: Arc<str>) -> Self {
        Self::Text(text)
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        text.map_or(Self::Null, Self::from)
    }
}
