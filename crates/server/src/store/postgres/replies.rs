//! Replies: a record with its message, approvals, tool runs and audit, written together or not at all.

use adk_bridge_protocol::approval::Approval;
use adk_bridge_protocol::calls::{CallState, RunsOn};
use adk_bridge_protocol::id::MessageId;
use adk_bridge_protocol::reply::Record;
use adk_bridge_protocol::time::Timestamp;
use sqlx::Row as _;
use sqlx::postgres::PgRow;

use super::connection::Statement;
use super::messages::{EncodedCut, EncodedMessages, texts};
use super::records::AuditColumns;
use super::text::{loaded, stored};
use super::{PostgresStore, chats, grown_texts, write_name};
use crate::store::encoded::{
    EncodedRecord, approval_word, decode_record, encode, is_open, is_plain, outcome_word, state_of,
    to_sql,
};
use crate::store::{
    AuditEntry, Chat, ChatRef, CommittedSize, Entity, OpenReply, Opening, StoreError,
};

/// A reply, ready to be stored.
struct EncodedReply<'r> {
    id: &'r str,
    state: &'static str,
    open: bool,
    owed: Vec<String>,
    record: EncodedRecord,
}

/// What is stored with a reply that asks, runs tools or is audited.
struct Details<'d> {
    approvals: ApprovalColumns,
    runs: RunColumns,
    audit: AuditColumns<'d>,
}

/// Approvals, as columns.
struct ApprovalColumns {
    ids: Vec<String>,
    calls: Vec<String>,
    tools: Vec<String>,
    inputs: Vec<String>,
    input_hashes: Vec<String>,
    asked: Vec<i64>,
    expires: Vec<i64>,
    states: Vec<&'static str>,
    reasons: Vec<Option<String>>,
}

/// Runs of server tools, as columns. Those of a remote agent are its own, and may be run again.
struct RunColumns {
    calls: Vec<String>,
    tools: Vec<String>,
    /// None for one that is running.
    outcomes: Vec<Option<&'static str>>,
}

pub(super) async fn begin(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    opening: Opening<'_>,
    record: &Record,
    audit: &[AuditEntry],
    now: Timestamp,
) -> Result<Chat, StoreError> {
    let messages = EncodedMessages::new(opening.messages)?;
    let reply = EncodedReply::new(record)?;
    let details = Details::of(record, audit)?;
    let (cut, name, number) = (
        EncodedCut::new(opening.cut),
        write_name(),
        store.next_number(),
    );
    let bytes = to_sql((messages.bytes + reply.record.bytes()) as u64);
    let rows = store.write(|| {
        let statement = match &details {
            None => sqlx::query(
                "SELECT id, title, created_at, updated_at, generation, agent FROM adk_bridge.begin_reply(
                     $1, $2, $3, $4::uuid, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                     $20, $21)",
            ),
            Some(_) => sqlx::query(
                "SELECT id, title, created_at, updated_at, generation, agent FROM adk_bridge.begin_reply(
                     $1, $2, $3, $4::uuid, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19,
                     $20, $21,
                     $22, $23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38,
                     $39, $40, $41, $42, $43, $44, $45)",
            ),
        };
        let statement = statement
            .bind(stored(chat.user.as_str()))
            .bind(stored(chat.id.as_str()))
            .bind(store.epoch(chat))
            .bind(&name)
            .bind(number)
            .bind(to_sql(now.as_millis()))
            .bind(&messages.ids)
            .bind(&messages.bodies)
            .bind(opening.heard)
            .bind(messages.title.as_deref().map(stored))
            .bind(opening.agent.map(stored))
            .bind(cut.kind)
            .bind(cut.at.map(stored))
            .bind(&cut.places);
        let statement = reply.bind(statement).bind(bytes);
        match &details {
            None => statement,
            Some(details) => details.bind(statement),
        }
    });
    chats::first(&rows.await?)
}

pub(super) async fn commit(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    record: &Record,
    audit: &[AuditEntry],
    now: Timestamp,
) -> Result<CommittedSize, StoreError> {
    let reply = EncodedReply::new(record)?;
    let details = Details::of(record, audit)?;
    let (name, number) = (write_name(), store.next_number());
    let rows = store.write(|| {
        let statement = match &details {
            None => sqlx::query(
                "SELECT adk_bridge.commit_reply($1, $2, $3, $4::uuid, $5, $6, $7, $8, $9, $10, $11, $12)",
            ),
            Some(_) => sqlx::query(
                "SELECT adk_bridge.commit_reply(
                     $1, $2, $3, $4::uuid, $5, $6, $7, $8, $9, $10, $11, $12,
                     $13, $14, $15, $16, $17, $18, $19, $20, $21, $22, $23, $24, $25, $26, $27, $28, $29,
                     $30, $31, $32, $33, $34, $35, $36)",
            ),
        };
        let statement = statement
            .bind(stored(chat.user.as_str()))
            .bind(stored(chat.id.as_str()))
            .bind(store.epoch(chat))
            .bind(&name)
            .bind(number)
            .bind(to_sql(now.as_millis()));
        let statement = reply.bind(statement);
        match &details {
            None => statement,
            Some(details) => details.bind(statement),
        }
    });
    let rows = rows.await?;
    let row = rows.first().ok_or(StoreError::NotFound(Entity::Chat))?;
    Ok(reply.record.committed(row.try_get(0)?))
}

pub(super) async fn checkpoint(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    record: &Record,
) -> Result<(), StoreError> {
    let reply = EncodedReply::new(record)?;
    let number = store.next_number();
    let done = store.write(|| {
        let statement = sqlx::query(
            "SELECT adk_bridge.checkpoint_reply($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(store.epoch(chat))
        .bind(number);
        reply.bind(statement)
    });
    done.await.map(|_| ())
}

pub(super) async fn open_all(store: &PostgresStore) -> Result<Vec<OpenReply>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT c.user_id, c.id FROM adk_bridge.messages m JOIN adk_bridge.chats c ON c.key = m.chat
             WHERE m.open ORDER BY m.seq",
        )
    });
    let open = |row: &PgRow| {
        Ok(OpenReply {
            user: loaded(row.try_get(0)?).into(),
            chat_id: loaded(row.try_get(1)?).into(),
        })
    };
    rows.await?.iter().map(open).collect()
}

pub(super) async fn open_in(
    store: &PostgresStore,
    chat: ChatRef<'_>,
) -> Result<Vec<Record>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT m.reply, m.body, m.seq FROM adk_bridge.chats c
             JOIN adk_bridge.messages m ON m.chat = c.key AND m.open
             WHERE c.user_id = $1 AND c.id = $2 ORDER BY m.seq",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
    });
    let mut records = Vec::new();
    for row in rows.await? {
        let mut record = decode_record(row.try_get(0)?, row.try_get(1)?)?;
        let grown = grown_texts::of_message(store, row.try_get(2)?).await?;
        record.grow(&grown);
        records.push(record);
    }
    Ok(records)
}

pub(super) async fn of_message(
    store: &PostgresStore,
    chat: ChatRef<'_>,
    message_id: &MessageId,
) -> Result<Option<Record>, StoreError> {
    let rows = store.read(|| {
        sqlx::query(
            "SELECT m.reply, m.body FROM adk_bridge.chats c
             LEFT JOIN adk_bridge.messages m
                 ON m.chat = c.key AND m.id = $3 AND m.cut_in IS NULL AND m.reply IS NOT NULL
             WHERE c.user_id = $1 AND c.id = $2",
        )
        .bind(stored(chat.user.as_str()))
        .bind(stored(chat.id.as_str()))
        .bind(stored(message_id.as_str()))
    });
    let rows = rows.await?;
    let row = rows.first().ok_or(StoreError::NotFound(Entity::Chat))?;
    match row.try_get(0)? {
        None => Ok(None),
        Some(reply) => decode_record(reply, row.try_get(1)?).map(Some),
    }
}

impl<'r> EncodedReply<'r> {
    fn new(record: &'r Record) -> Result<Self, StoreError> {
        let awaited = |state: &CallState| matches!(state, CallState::AwaitingClient { .. });
        let owed = record.calls.iter().filter(|call| awaited(&call.state));
        Ok(Self {
            id: record.message.id.as_str(),
            state: state_of(record).word(),
            open: is_open(record),
            owed: texts(owed.map(|call| call.name.as_str())),
            record: EncodedRecord::new(record)?,
        })
    }

    fn bind<'s>(&'s self, statement: Statement<'s>) -> Statement<'s> {
        statement
            .bind(stored(self.id))
            .bind(self.state)
            .bind(self.open)
            .bind(&self.owed)
            .bind(&*self.record.reply)
            .bind(&*self.record.body)
    }
}

impl<'d> Details<'d> {
    /// None if only the message and its state have to be stored.
    fn of(record: &Record, audit: &'d [AuditEntry]) -> Result<Option<Self>, StoreError> {
        if is_plain(record, audit) {
            return Ok(None);
        }
        Ok(Some(Self {
            approvals: ApprovalColumns::of(record)?,
            runs: RunColumns::of(record),
            audit: AuditColumns(audit),
        }))
    }

    fn bind<'s>(&'s self, statement: Statement<'s>) -> Statement<'s> {
        let statement = self.approvals.bind(statement);
        self.audit.bind(self.runs.bind(statement))
    }
}

impl ApprovalColumns {
    fn of(record: &Record) -> Result<Self, StoreError> {
        let asked =
            || (record.calls.iter()).filter_map(|call| Some((call, call.approval.as_ref()?)));
        let inputs = asked().map(|(call, _)| encode(&call.input));
        let at = |time: Timestamp| to_sql(time.as_millis());
        let reason = |approval: &Approval| Some(stored(approval.reason()?).into_owned());
        Ok(Self {
            ids: texts(asked().map(|(_, approval)| approval.id.as_str())),
            calls: texts(asked().map(|(call, _)| call.id.as_str())),
            tools: texts(asked().map(|(call, _)| call.name.as_str())),
            inputs: inputs.collect::<Result<_, _>>()?,
            input_hashes: texts(asked().map(|(_, approval)| approval.input_hash.as_str())),
            asked: asked().map(|(_, approval)| at(approval.asked_at)).collect(),
            expires: (asked().map(|(_, approval)| at(approval.expires_at))).collect(),
            states: (asked().map(|(_, approval)| approval_word(&approval.state))).collect(),
            reasons: asked().map(|(_, approval)| reason(approval)).collect(),
        })
    }

    fn bind<'s>(&'s self, statement: Statement<'s>) -> Statement<'s> {
        statement
            .bind(&self.ids)
            .bind(&self.calls)
            .bind(&self.tools)
            .bind(&self.inputs)
            .bind(&self.input_hashes)
            .bind(&self.asked)
            .bind(&self.expires)
            .bind(&self.states)
            .bind(&self.reasons)
    }
}

impl RunColumns {
    fn of(record: &Record) -> Self {
        let runs = || {
            (record.calls.iter()).filter(|call| {
                call.runs_on == RunsOn::Server
                    && (call.state == CallState::Running || call.settled().is_some())
            })
        };
        Self {
            calls: texts(runs().map(|call| call.id.as_str())),
            tools: texts(runs().map(|call| call.name.as_str())),
            outcomes: runs()
                .map(|call| call.settled().map(outcome_word))
                .collect(),
        }
    }

    fn bind<'s>(&'s self, statement: Statement<'s>) -> Statement<'s> {
        statement
            .bind(&self.calls)
            .bind(&self.tools)
            .bind(&self.outcomes)
    }
}
