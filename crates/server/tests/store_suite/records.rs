//! Records of a chat other than messages: audit rows, state of tools, events, files.

use adk_bridge::store::{AuditFilter, StoreChatState, StoredEvent};
use adk_bridge_agents::tool::ChatState as _;
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::outbox::AuditKind;
use serde_json::json;

use super::chats::file;
use super::*;

pub(crate) async fn audit_is_shown_oldest_first(home: &impl Home) {
    let store = with_chat(home).await;
    assert_eq!(store.audit(CHAT, AuditPage::default()).await.unwrap(), []);
    let both = [
        audit(AuditKind::ApprovalRequested, "one"),
        audit(AuditKind::ApprovalApproved, "two"),
    ];
    store
        .commit(CHAT, &reply("m1", ""), &both, at(1))
        .await
        .unwrap();
    let mut bare = audit(AuditKind::AnswerRefused, "three");
    bare.at = at(1); // Order is that of writing, not of clocks.
    bare.turn_id = None;
    bare.connection_id = Some("connection-1".to_owned());
    store.append_audit(CHAT, &[bare]).await.unwrap();

    let rows = store.audit(CHAT, AuditPage::default()).await.unwrap();
    let kinds: Vec<_> = rows.iter().map(|row| row.kind.as_str()).collect();
    assert_eq!(
        kinds,
        ["approval.requested", "approval.approved", "answer.refused"]
    );
    assert!(rows.is_sorted_by(|one, next| one.id < next.id));
    let mut shown = serde_json::to_value(&rows[2]).unwrap();
    assert!(shown["id"].take().is_u64());
    assert_eq!(
        serde_json::to_string(&shown).unwrap(),
        json!({
            "id": null, "at": 1, "chatId": "chat-1", "turnId": null,
            "connectionId": "connection-1", "kind": "answer.refused", "toolCallId": "call-1",
            "toolName": "process_payment", "approvalId": "approval-call-1", "user": "alice",
            "transport": "sse", "dialect": "native", "reason": "three", "inputHash": "hash",
            "replica": "bridge-1",
        })
        .to_string()
    );
}

pub(crate) async fn audit_is_read_in_pages(home: &impl Home) {
    let store = with_chat(home).await;
    let other = ChatRef {
        id: &ChatId::literal("chat-2"),
        ..CHAT
    };
    store.create_chat(other, at(1)).await.unwrap();
    for number in 0..7 {
        let row = audit(AuditKind::AnswerRefused, &number.to_string());
        store
            .append_audit(CHAT, std::slice::from_ref(&row))
            .await
            .unwrap();
        store.append_audit(other, &[row]).await.unwrap();
    }
    let (mut after, mut pages) = (0, Vec::new());
    loop {
        let page = AuditPage { after, limit: 3 };
        let rows = store.audit(CHAT, page).await.unwrap();
        let Some(last) = rows.last() else { break };
        after = last.id;
        pages.push(
            rows.iter()
                .filter_map(|row| row.reason.clone())
                .collect::<String>(),
        );
    }
    assert_eq!(pages, ["012", "345", "6"]);
}

pub(crate) async fn audit_of_everybody_is_read_in_pages(home: &impl Home) {
    let store = with_chat(home).await;
    store.create_chat(FOREIGN, at(1)).await.unwrap();
    for (chat, reason) in [(CHAT, "0"), (FOREIGN, "1"), (CHAT, "2")] {
        let row = audit(AuditKind::AnswerRefused, reason);
        store.append_audit(chat, &[row]).await.unwrap();
    }
    let (user, chat) = (Some(CHAT.user), Some(CHAT.id));
    let nobody = &UserId::literal("nobody");
    for (of, expected) in [
        (AuditFilter::default(), "012"),
        (AuditFilter { user, chat: None }, "02"),
        (AuditFilter { user, chat }, "02"),
        (AuditFilter { user: None, chat }, "012"),
        (
            AuditFilter {
                user: Some(nobody),
                chat: None,
            },
            "",
        ),
    ] {
        let (mut after, mut found) = (0, String::new());
        loop {
            let page = AuditPage { after, limit: 1 };
            let rows = store.audit_of_all(of, page).await.unwrap();
            let Some(row) = rows.last() else { break };
            after = row.id;
            found.extend(row.reason.clone());
        }
        assert_eq!(found, expected, "{of:?}");
    }
}

pub(crate) async fn a_refusal_is_found_again(home: &impl Home) {
    let store = with_chat(home).await;
    let refused = audit(AuditKind::AnswerRefused, "late");
    let bare = AuditEntry {
        audit: Audit {
            call_id: None,
            approval_id: None,
            ..refused.audit.clone()
        },
        ..refused.clone()
    };
    let has = async |entry: &AuditEntry| store.has_refused(CHAT, &entry.audit).await.unwrap();
    assert!(!has(&refused).await && !has(&bare).await);
    store
        .append_audit(CHAT, std::slice::from_ref(&bare))
        .await
        .unwrap();
    assert!(!has(&refused).await && has(&bare).await);
    store
        .append_audit(CHAT, std::slice::from_ref(&refused))
        .await
        .unwrap();
    assert!(has(&refused).await && has(&bare).await);
    assert!(!has(&audit(AuditKind::AnswerRefused, "forged")).await);
    let foreign = ChatRef {
        user: &UserId::literal("mallory"),
        ..CHAT
    };
    assert!(!store.has_refused(foreign, &refused.audit).await.unwrap());
}

pub(crate) async fn state_changes_with_nothing_in_between(home: &impl Home) {
    let store = with_chat(home).await;
    let state = Arc::new(StoreChatState::new(store.clone(), CHAT));
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..50 {
        let state = state.clone();
        tasks.spawn(async move {
            let change = |before: Option<Value>| {
                let next = json!(before.map_or(0, |value| value.as_u64().unwrap()) + 1);
                (Some(next.clone()), next)
            };
            state.update("count", Box::new(change)).await.unwrap()
        });
    }
    let mut seen: Vec<u64> = Vec::new();
    while let Some(value) = tasks.join_next().await {
        seen.push(value.unwrap().as_u64().unwrap());
    }
    seen.sort_unstable();
    assert_eq!(seen, (1..=50).collect::<Vec<_>>());

    // Nothing removes the value; another key has its own.
    let steps = [
        ("other", None, json!(null)),
        ("count", None, json!(50)),
        ("count", Some(json!({"a": [0.1]})), json!(null)),
        ("count", Some(json!(null)), json!({"a": [0.1]})),
        ("count", None, json!(null)),
    ];
    for (key, after, before) in steps {
        let stored = after.clone();
        let change = Box::new(|before: Option<Value>| (after, json!(before)));
        assert_eq!(state.update(key, change).await.unwrap(), before);
        assert_eq!(store.state(CHAT, key).await.unwrap(), stored);
    }

    let foreign = StoreChatState::new(store.clone(), FOREIGN);
    let refused = foreign
        .update("count", Box::new(|_| (None, json!(1))))
        .await;
    assert_eq!(refused, Err("no such chat".to_owned()));
    let refused = store.state(FOREIGN, "count").await;
    assert!(matches!(refused, Err(StoreError::NotFound(_))));
}

pub(crate) async fn events_belong_to_a_generation(home: &impl Home) {
    let store = with_chat(home).await;
    let events = |range: std::ops::Range<u32>| -> Vec<String> {
        range.map(|n| format!("{{ \"n\":{n} }}")).collect()
    };
    store
        .append_events(CHAT, 0, M2, events(0..3))
        .await
        .unwrap();
    store
        .append_events(CHAT, 1, M2, events(5..6))
        .await
        .unwrap();
    store
        .append_events(CHAT, 0, M4, events(3..5))
        .await
        .unwrap();
    store.append_events(CHAT, 0, M4, Vec::new()).await.unwrap();
    let stored = store.events(CHAT, 0).await.unwrap();
    let bodies: Vec<_> = stored.iter().map(|event| event.body.clone()).collect();
    assert_eq!(bodies, events(0..5));
    let owners: Vec<_> = stored
        .iter()
        .map(|event| event.message_id.as_str())
        .collect();
    assert_eq!(owners, ["m2", "m2", "m2", "m4", "m4"]);
    let one = StoredEvent {
        message_id: "m2".into(),
        body: "{ \"n\":5 }".to_owned(),
    };
    assert_eq!(store.events(CHAT, 1).await.unwrap(), [one]);
    assert_eq!(store.events(CHAT, 2).await.unwrap(), []);
}

pub(crate) async fn files_belong_to_a_user(home: &impl Home) {
    let store = with_chat(home).await;
    let mut unnamed = file("0b", CHAT);
    unnamed.name = None;
    for row in [file("0a", CHAT), unnamed] {
        store.add_file(&row).await.unwrap();
        assert_eq!(
            store
                .file(&UserId::literal("alice"), &row.id)
                .await
                .unwrap(),
            Some(row.clone())
        );
        assert_eq!(
            store
                .file(&UserId::literal("mallory"), &row.id)
                .await
                .unwrap(),
            None
        );
        // An id is used once.
        assert!(store.add_file(&row).await.is_err());
    }
    assert_eq!(
        store.file(&UserId::literal("alice"), "0c").await.unwrap(),
        None
    );
    let mut ids = store.file_ids().await.unwrap();
    ids.sort();
    assert_eq!(ids, ["0a", "0b"]);
}
