//! What is stored of a user, as JSON lines for that user: chats with their messages, files, logins, usage of agents, the audit.

use std::collections::VecDeque;

use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::time::Timestamp;
use serde_json::{Value, json};

use super::Chats;
use super::listing::PAGE_BYTES;
use crate::auth::exported_login;
use crate::files::address::Base;
use crate::spending::{UsageState, date_of};
use crate::store::{
    Chat, ChatCursor, ChatRef, MAX_AUDIT_ROWS, MAX_LISTED, MessagePage, MessageState, StoreError,
    UsageRow,
};

/// The form of the lines.
const VERSION: u32 = 1;
/// How many files are listed at once.
const FILES: u32 = 1_000;
/// How many rows of usage are listed at once.
const USAGE_ROWS: u32 = 1_000;

/// What is stored of a user, a few lines at a time. A chat that goes on meanwhile is written as it is found.
pub struct UserData {
    chats: Chats,
    user: UserId,
    /// What the addresses of files begin with.
    base: Base,
    at: Timestamp,
    stage: Stage,
    count: Count,
}

#[derive(Default)]
struct Count {
    chats: u64,
    messages: u64,
    files: u64,
    logins: u64,
    usage_rows: u64,
    audit_rows: u64,
}

enum Stage {
    Begin,
    Chats {
        listed: VecDeque<Chat>,
        /// The last chat of the page.
        last: Option<(Timestamp, ChatId)>,
    },
    /// The messages of a chat after a place; then the other chats.
    Messages {
        chat: ChatId,
        after: u64,
        listed: VecDeque<Chat>,
        last: Option<(Timestamp, ChatId)>,
    },
    Files {
        after: String,
    },
    Logins,
    Usage {
        after: Option<(u64, String)>,
    },
    Audit {
        after: Option<(ChatId, u64)>,
    },
    Done,
}

impl UserData {
    pub fn new(chats: &Chats, user: UserId, base: Base, at: Timestamp) -> Self {
        Self {
            chats: chats.clone(),
            user,
            base,
            at,
            stage: Stage::Begin,
            count: Count::default(),
        }
    }

    /// The next lines; none at the end.
    pub async fn next_text(&mut self) -> Result<Vec<u8>, StoreError> {
        let mut text = Vec::new();
        // A step may have no line, as a chat without messages.
        while text.is_empty() && !matches!(self.stage, Stage::Done) {
            for line in self.step().await? {
                text.extend(line.to_string().into_bytes());
                text.push(b'\n');
            }
        }
        Ok(text)
    }

    async fn step(&mut self) -> Result<Vec<Value>, StoreError> {
        let store = self.chats.shared().store.clone();
        let user = &self.user;
        match std::mem::replace(&mut self.stage, Stage::Done) {
            Stage::Begin => {
                self.stage = Stage::Chats {
                    listed: VecDeque::new(),
                    last: None,
                };
                Ok(vec![json!({
                    "type": "export", "version": VERSION, "user": user, "at": self.at,
                })])
            }
            Stage::Chats { mut listed, last } => match listed.pop_front() {
                Some(chat) => {
                    self.count.chats += 1;
                    let line = json!({
                        "type": "chat", "id": chat.id, "title": chat.title, "createdAt": chat.created,
                        "updatedAt": chat.updated, "agent": self.chats.agent_shown(&chat),
                    });
                    self.stage = Stage::Messages {
                        chat: chat.id,
                        after: 0,
                        listed,
                        last,
                    };
                    Ok(vec![line])
                }
                None => {
                    let before = last.as_ref();
                    let before = before.map(|(updated, id)| ChatCursor {
                        updated: *updated,
                        id,
                    });
                    let page = store.list_chats(user, MAX_LISTED, before).await?;
                    self.stage = match page.last() {
                        None => Stage::Files {
                            after: String::new(),
                        },
                        Some(end) => Stage::Chats {
                            last: Some((end.chat.updated, end.chat.id.clone())),
                            listed: page.into_iter().map(|listed| listed.chat).collect(),
                        },
                    };
                    Ok(Vec::new())
                }
            },
            Stage::Messages {
                chat,
                after,
                listed,
                last,
            } => {
                let page = MessagePage {
                    after,
                    max_bytes: PAGE_BYTES,
                };
                let messages = store.messages_after(ChatRef { user, id: &chat }, page);
                let messages = match messages.await {
                    // Deleted while it was read.
                    Err(StoreError::NotFound(_)) => Vec::new(),
                    found => found?,
                };
                let line = |stored: &crate::store::StoredMessage| {
                    json!({
                        "type": "message", "chat": chat, "message": stored.message,
                        "complete": stored.state == MessageState::Done,
                    })
                };
                let lines: Vec<Value> = messages.iter().map(line).collect();
                self.count.messages += lines.len() as u64;
                self.stage = match messages.last() {
                    None => Stage::Chats { listed, last },
                    Some(end) => Stage::Messages {
                        after: end.place,
                        chat,
                        listed,
                        last,
                    },
                };
                Ok(lines)
            }
            Stage::Files { after } => {
                let files = store.files_of_user(user, &after, FILES).await?;
                let addresses = &self.chats.shared().addresses;
                let line = |file: &crate::store::FileRow| {
                    json!({
                        "type": "file", "id": file.id, "chat": file.chat_id, "name": file.name,
                        "mediaType": file.media_type, "bytes": file.bytes, "createdAt": file.created,
                        "url": addresses.signed(&self.base, &file.id, self.at),
                    })
                };
                let lines: Vec<Value> = files.iter().map(line).collect();
                self.count.files += lines.len() as u64;
                self.stage = match files.into_iter().next_back() {
                    None => Stage::Logins,
                    Some(end) => Stage::Files { after: end.id },
                };
                Ok(lines)
            }
            Stage::Logins => {
                let logins = store.logins_of(user).await?;
                self.count.logins = logins.len() as u64;
                self.stage = Stage::Usage { after: None };
                Ok(logins.iter().map(exported_login).collect())
            }
            Stage::Usage { after } => {
                let cursor = after.as_ref().map(|(day, agent)| (*day, agent.as_str()));
                let rows = store.usage_of_user(user, cursor, USAGE_ROWS).await?;
                self.count.usage_rows += rows.len() as u64;
                let line = |row: &UsageRow| {
                    let mut line = json!(UsageState::from(row.spent));
                    line["type"] = json!("usage");
                    line["day"] = json!(date_of(row.day).to_string());
                    line["agent"] = json!(row.agent);
                    line
                };
                let lines = rows.iter().map(line).collect();
                self.stage = match rows.into_iter().next_back() {
                    None => Stage::Audit { after: None },
                    Some(end) => Stage::Usage {
                        after: Some((end.day, end.agent)),
                    },
                };
                Ok(lines)
            }
            Stage::Audit { after } => {
                let cursor = after.as_ref().map(|(chat, id)| (chat, *id));
                let rows = store.audit_of_user(user, cursor, MAX_AUDIT_ROWS).await?;
                self.count.audit_rows += rows.len() as u64;
                let Some(end) = rows.last() else {
                    let Count {
                        chats,
                        messages,
                        files,
                        logins,
                        usage_rows,
                        audit_rows,
                    } = self.count;
                    return Ok(vec![json!({
                        "type": "end", "chats": chats, "messages": messages, "files": files,
                        "logins": logins, "usageRows": usage_rows, "auditRows": audit_rows,
                    })]);
                };
                self.stage = Stage::Audit {
                    after: Some((end.row.chat_id.clone(), end.row.id)),
                };
                let line = |row: &crate::audit::chain::ChainedRow| {
                    let mut line = json!(row.row);
                    line["type"] = json!("audit");
                    line
                };
                Ok(rows.iter().map(line).collect())
            }
            Stage::Done => Ok(Vec::new()),
        }
    }
}
