//! What every store must do.
//!
//! `store_suite!(home)` makes a test of each case, on a home of its own.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test that cannot go on has failed"
)]

pub(crate) mod branches;
pub(crate) mod chats;
pub(crate) mod evidence;
pub(crate) mod logins;
pub(crate) mod records;
pub(crate) mod replies;
pub(crate) mod retention;
pub(crate) mod sizes;
pub(crate) mod usage;

use std::sync::Arc;
use std::time::Duration;

use adk_bridge::store::{AuditEntry, AuditPage, ChatRef, Cut, Pending, Store, StoreError};
use adk_bridge_protocol::id::{ChatId, MessageId, UserId};
use adk_bridge_protocol::message::Message;
use adk_bridge_protocol::outbox::{Audit, AuditKind};
use adk_bridge_protocol::reply::Record;
use adk_bridge_protocol::time::Timestamp;
use serde_json::{Value, json};

/// Where a store lies. It can be opened again when it has been dropped.
pub(crate) trait Home: Sync {
    fn open(&self) -> Pending<'_, Arc<dyn Store>>;
}

macro_rules! store_suite {
    ($home:expr) => {
        store_suite! { $home;
            chats {
                are_made_once
                of_another_user_do_not_exist
                of_two_users_may_have_the_same_id
                are_listed_page_by_page
                get_their_title_from_the_first_text
                keep_messages_as_they_came
                revise_what_is_heard
                are_cut
                hold_a_message_once
                hold_long_messages
                hold_long_histories
                hold_any_text
                begin_with_a_question_and_its_reply
                begin_whole_or_not_at_all
                keep_their_first_agent
                leave_only_the_audit
                outlive_the_process
            }
            branches {
                come_back_to_what_was_cut
                know_what_was_never_seen
            }
            replies {
                come_back_as_they_were
                have_a_state
                are_made_one_at_a_time
                wait_while_the_conversation_continues
                are_committed_whole
                decide_an_approval_once
                let_one_of_fifty_decide
                run_a_tool_once
                are_checkpointed
                grow_between_checkpoints
                survive_being_given_up
            }
            sizes {
                are_counted_with_every_change
                of_each_user_are_known_at_start
                of_pages_are_bounded
            }
            evidence {
                is_chained_and_sealed
                is_given_up_by_age
                loses_what_people_wrote
                is_sealed_with_two_keys_and_not_without_end
            }
            records {
                audit_is_shown_oldest_first
                audit_is_read_in_pages
                a_refusal_is_found_again
                state_changes_with_nothing_in_between
                events_belong_to_a_generation
                files_belong_to_a_user
                audit_of_everybody_is_read_in_pages
            }
            retention {
                finds_chats_by_their_last_change
                forgets_files_by_their_age
                is_one_processs_job_if_there_are_several
            }
            logins {
                are_found_until_they_are_ended
                are_removed_when_they_are_over
                of_one_user_are_bounded
            }
            usage {
                is_counted_once
                of_many_at_once_adds_up
                is_listed_and_goes_by_age_and_user
                without_measure_is_bounded
            }
        }
    };
    ($home:expr; $($group:ident { $($case:ident)* })*) => {
        $(
            mod $group {
                use super::*;

                $(
                    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
                    async fn $case() {
                        crate::store_suite::$group::$case(&$home).await;
                    }
                )*
            }
        )*
    };
}

pub(crate) const CHAT: ChatRef<'static> = ChatRef {
    user: &UserId::literal("alice"),
    id: &ChatId::literal("chat-1"),
};

/// The same chat, asked for by somebody else.
pub(crate) const FOREIGN: ChatRef<'static> = ChatRef {
    user: &UserId::literal("mallory"),
    id: &ChatId::literal("chat-1"),
};

pub(crate) const M1: &MessageId = &MessageId::literal("m1");
pub(crate) const M2: &MessageId = &MessageId::literal("m2");
pub(crate) const M3: &MessageId = &MessageId::literal("m3");
pub(crate) const M4: &MessageId = &MessageId::literal("m4");
pub(crate) const M9: &MessageId = &MessageId::literal("m9");

pub(crate) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(millis)
}

/// A store with one chat in it.
pub(crate) async fn with_chat(home: &impl Home) -> Arc<dyn Store> {
    let store = home.open().await.unwrap();
    store.create_chat(CHAT, at(1_000)).await.unwrap();
    store
}

/// The newest reply of the chat that has not ended.
pub(crate) async fn open_reply(store: &dyn Store) -> Option<Record> {
    store.open_replies_of(CHAT).await.unwrap().pop()
}

pub(crate) fn user(id: &str, text: &str) -> Message {
    message(json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]}))
}

pub(crate) fn message(value: Value) -> Message {
    serde_json::from_value(value).unwrap()
}

/// A reply in the making, asking the model.
pub(crate) fn reply(id: &str, text: &str) -> Record {
    record(id, text, json!([]), json!({"asking": true}))
}

pub(crate) fn finished(id: &str, text: &str) -> Record {
    record(id, text, json!([]), json!({"ended": "finished"}))
}

/// A reply that waits, or does whatever `more` says.
pub(crate) fn record(id: &str, text: &str, calls: Value, more: Value) -> Record {
    let mut value = json!({
        "message": {"id": id, "role": "assistant", "parts": [
            {"type": "step-start"},
            {"type": "text", "text": text, "state": "done"},
        ]},
        "calls": calls,
        "asking": false,
        "steps": 1,
        "retried": false,
    });
    for (key, field) in more.as_object().unwrap() {
        value[key] = field.clone();
    }
    serde_json::from_value(value).unwrap()
}

/// A server tool's call in a state, with an approval in a state.
pub(crate) fn call(id: &str, state: Value, approval: Option<Value>) -> Value {
    let mut call = json!({
        "id": id, "name": "process_payment", "input": {"amount": 50, "recipient": "Hanako"},
        "step": 1, "runsOn": "server", "state": state,
    });
    if let Some(approval) = approval {
        call["approval"] = json!({
            "id": format!("approval-{id}"), "hint": "pay?", "inputHash": "hash",
            "askedAt": 1_000, "expiresAt": 301_000, "state": approval,
        });
    }
    call
}

/// A reply whose payment waits for a human.
pub(crate) fn asking(id: &str, calls: &[&str]) -> Record {
    let calls = calls
        .iter()
        .map(|id| {
            call(
                id,
                json!({"is": "asked"}),
                Some(json!({"state": "requested"})),
            )
        })
        .collect();
    record(id, "let me pay", calls, json!({}))
}

pub(crate) fn audit(kind: AuditKind, reason: &str) -> AuditEntry {
    AuditEntry {
        at: at(5_000),
        turn_id: Some("turn-1".to_owned()),
        connection_id: None,
        transport: Some("sse".to_owned()),
        dialect: Some("native".to_owned()),
        replica: Some("bridge-1".to_owned()),
        audit: Audit {
            kind,
            call_id: Some("call-1".into()),
            tool: Some("process_payment".to_owned()),
            approval_id: Some("approval-call-1".into()),
            reason: Some(reason.to_owned()),
            input_hash: Some("hash".to_owned()),
        },
    }
}

/// The ids of the messages that are shown.
pub(crate) async fn shown(store: &dyn Store) -> Vec<MessageId> {
    let messages = store.messages(CHAT).await.unwrap();
    messages
        .into_iter()
        .map(|stored| stored.message.id)
        .collect()
}

/// The approvals that wait.
pub(crate) async fn waiting(store: &dyn Store) -> u64 {
    let listed = store.list_chats(CHAT.user, 10, None).await.unwrap();
    listed.iter().map(|listed| listed.waiting).sum()
}

/// The conflict that it ended with.
#[track_caller]
pub(crate) fn conflict<T>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Conflict(conflict)) => conflict.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("no conflict"),
    }
}

/// What was not found.
#[track_caller]
pub(crate) fn missing<T>(result: Result<T, StoreError>) -> String {
    match result {
        Err(error @ StoreError::NotFound(_)) => error.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("found"),
    }
}
