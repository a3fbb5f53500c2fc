//! How much there is of a chat, and messages that are read a page at a time.

use adk_bridge::store::{Cut, HistorySize, MessagePage, MessageState};
use adk_bridge_protocol::id::{ChatId, UserId};
use serde_json::json;

use super::*;

pub(crate) async fn are_counted_with_every_change(home: &impl Home) {
    let store = with_chat(home).await;
    let nothing = HistorySize::default();
    assert_eq!(store.history_size(CHAT).await.unwrap(), nothing);
    assert_eq!(store.history_size(FOREIGN).await.unwrap(), nothing);

    let length = |message: &Message| json!(message).to_string().len();
    let (short, long) = (user("m1", "hi"), user("m3", &"é".repeat(1_000)));
    store
        .append(CHAT, std::slice::from_ref(&short), Cut::Nothing, at(1))
        .await
        .unwrap();
    let first = store.history_size(CHAT).await.unwrap();
    assert_eq!((first.messages, first.bytes), (1, length(&short)));
    assert_eq!(first.kept, length(&short) as u64);

    // A reply counts with its record, and grows.
    let mut kept = first.kept;
    for words in ["one", "one two", "one two three"] {
        let record = reply("m2", words);
        let committed = store.commit(CHAT, &record, &[], at(2)).await.unwrap();
        let size = store.history_size(CHAT).await.unwrap();
        assert_eq!(committed.message, length(&record.message));
        assert_eq!(committed.kept, size.kept);
        assert_eq!(size.bytes, length(&short) + length(&record.message));
        assert!(size.kept > kept, "{words}");
        assert_eq!(size.open, 1);
        kept = size.kept;
    }
    store.checkpoint(CHAT, &reply("m2", "one")).await.unwrap();
    assert!(store.history_size(CHAT).await.unwrap().kept < kept);
    // With audit rows it is stored in another way.
    let ended = finished("m2", "one");
    let entry = [audit(AuditKind::AnswerRefused, "late")];
    let committed = store.commit(CHAT, &ended, &entry, at(3)).await.unwrap();
    let size = store.history_size(CHAT).await.unwrap();
    assert_eq!(committed.message, length(&ended.message));
    assert_eq!(committed.kept, size.kept);
    store
        .append(CHAT, std::slice::from_ref(&long), Cut::Nothing, at(4))
        .await
        .unwrap();
    let all = store.history_size(CHAT).await.unwrap();
    assert_eq!((all.messages, all.largest), (3, length(&long)));
    assert_eq!(all.open, 0);

    // What is cut is not shown, and kept.
    store.append(CHAT, &[], Cut::From(M2), at(5)).await.unwrap();
    let cut = store.history_size(CHAT).await.unwrap();
    assert_eq!((cut.messages, cut.bytes), (1, length(&short)));
    assert_eq!(cut.kept, all.kept);
    store.revise(CHAT, &user("m1", "hi there")).await.unwrap();
    assert_eq!(store.history_size(CHAT).await.unwrap().kept, all.kept + 6);
    store
        .append_events(CHAT, 1, M1, vec!["{}".into(), "{\"a\":1}".into()])
        .await
        .unwrap();
    assert_eq!(store.history_size(CHAT).await.unwrap().kept, all.kept + 15);
    // So does the state, as long as it is there.
    for (value, more) in [(json!("abcd"), 6), (json!([1]), 3), (json!(null), 4)] {
        let write = Box::new(|_| (Some(value), json!(null)));
        store.update_state(CHAT, "wallet", write).await.unwrap();
        let kept = store.history_size(CHAT).await.unwrap().kept;
        assert_eq!(kept, all.kept + 15 + more);
    }
    let remove = Box::new(|_| (None, json!(null)));
    store.update_state(CHAT, "wallet", remove).await.unwrap();
    assert_eq!(store.history_size(CHAT).await.unwrap().kept, all.kept + 15);
}

pub(crate) async fn of_each_user_are_known_at_start(home: &impl Home) {
    let store = with_chat(home).await;
    let others = ChatRef {
        user: &UserId::literal("bob"),
        id: &ChatId::literal("chat-1"),
    };
    store.create_chat(others, at(1)).await.unwrap();
    for chat in [CHAT, others] {
        store
            .append(chat, &[user("m1", "hello")], Cut::Nothing, at(1))
            .await
            .unwrap();
    }
    store
        .add_file(&adk_bridge::store::FileRow {
            id: "0a".into(),
            chat_id: CHAT.id.clone(),
            user: CHAT.user.clone(),
            media_type: "image/png".into(),
            bytes: 1_000,
            name: None,
            created: at(1),
        })
        .await
        .unwrap();
    let bytes = store.history_size(CHAT).await.unwrap().kept;
    store.close().await.unwrap();
    drop(store);
    let store = home.open().await.unwrap();
    let mut counted = store.stored_bytes().await.unwrap();
    counted.sort();
    let expected = [("alice".into(), bytes + 1_000), ("bob".into(), bytes)];
    assert_eq!(counted, expected);
    for (user, bytes) in &expected {
        assert_eq!(store.stored_bytes_of(user).await.unwrap(), *bytes);
    }
    store.delete_chat(CHAT).await.unwrap();
    assert_eq!(store.stored_bytes().await.unwrap(), expected[1..]);
    assert_eq!(store.stored_bytes_of(CHAT.user).await.unwrap(), 0);
}

pub(crate) async fn of_pages_are_bounded(home: &impl Home) {
    let store = with_chat(home).await;
    let texts = [10, 10, 5_000, 10, 10, 10, 400, 10];
    let messages: Vec<_> = (0..)
        .zip(texts)
        .map(|(number, length)| user(&format!("m{number}"), &"x".repeat(length)))
        .collect();
    store
        .append(CHAT, &messages, Cut::Nothing, at(1))
        .await
        .unwrap();
    store
        .append(
            CHAT,
            &[user("n", "new")],
            Cut::AllBut(&places_but(&*store, "m4").await),
            at(2),
        )
        .await
        .unwrap();
    store
        .commit(CHAT, &reply("r", "and so on"), &[], at(3))
        .await
        .unwrap();
    let whole = store.messages(CHAT).await.unwrap();
    for (max_bytes, pages) in [(1, 9), (500, 5), (usize::MAX, 1)] {
        let mut page = MessagePage {
            after: 0,
            max_bytes,
        };
        let (mut read, mut count) = (Vec::new(), 0);
        loop {
            let some = store.messages_after(CHAT, page).await.unwrap();
            let Some(last) = some.last() else {
                break;
            };
            page.after = last.place;
            let bytes: usize = some
                .iter()
                .map(|stored| json!(stored.message).to_string().len())
                .sum();
            assert!(
                some.len() == 1 || bytes <= max_bytes,
                "{bytes} of {max_bytes}"
            );
            read.extend(some);
            count += 1;
        }
        assert_eq!(read, whole);
        assert_eq!(count, pages, "{max_bytes}");
    }
    assert_eq!(whole.last().unwrap().state, MessageState::Running);
    let page = MessagePage {
        after: 0,
        max_bytes: 1,
    };
    missing(store.messages_after(FOREIGN, page).await);
    // More small ones than a page has come with the next.
    let many: Vec<_> = (0..1_500).map(|n| user(&format!("s{n}"), "x")).collect();
    store
        .append(CHAT, &many, Cut::Nothing, at(4))
        .await
        .unwrap();
    let page = MessagePage {
        after: 0,
        max_bytes: usize::MAX,
    };
    let first = store.messages_after(CHAT, page).await.unwrap();
    assert!(first.len() < 1_500, "{}", first.len());
    let after = first.last().unwrap().place;
    let rest = store
        .messages_after(CHAT, MessagePage { after, ..page })
        .await
        .unwrap();
    assert_eq!(first.len() + rest.len(), whole.len() + 1_500);
}

/// The places of all messages but one.
async fn places_but(store: &dyn Store, id: &str) -> Vec<u64> {
    let outline = store.outline(CHAT).await.unwrap();
    let others = outline.iter().filter(|placed| placed.id != id);
    others.map(|placed| placed.place).collect()
}
