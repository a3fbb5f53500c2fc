//! Chats and their messages.

use adk_bridge::store::{
    Before, ChatRef, Cut, FileRow, MAX_BODY_BYTES, MessageState, Opening, StoreError,
};
use adk_bridge_protocol::outbox::AuditKind;
use serde_json::json;

use super::*;

pub(crate) async fn are_made_once(home: &impl Home) {
    let store = home.open().await.unwrap();
    assert_eq!(store.chat(CHAT).await.unwrap(), None);
    let made = store.create_chat(CHAT, 1_000).await.unwrap();
    assert_eq!(
        (made.created, made.updated, made.generation),
        (1_000, 1_000, 0)
    );
    assert_eq!(made.title, None);
    assert_eq!(store.create_chat(CHAT, 2_000).await.unwrap(), made);
    assert_eq!(store.chat(CHAT).await.unwrap(), Some(made));
}

pub(crate) async fn of_another_user_do_not_exist(home: &impl Home) {
    let store = with_chat(home).await;
    let record = asking("m2", &["call-1"]);
    let row = file("0a", CHAT);
    store
        .append(CHAT, &[user("m1", "hi")], Cut::Nothing, 1)
        .await
        .unwrap();
    store
        .commit(CHAT, &record, &[audit(AuditKind::ApprovalRequested, "")], 2)
        .await
        .unwrap();
    store
        .append_events(CHAT, 0, "m2", vec!["{}".into()])
        .await
        .unwrap();
    store.add_file(&row).await.unwrap();

    let unknown = ChatRef {
        user: "alice",
        id: "chat-2",
    };
    for chat in [FOREIGN, unknown] {
        let message = [user("m3", "mine")];
        let decided = record.clone();
        let entry = [audit(AuditKind::AnswerRefused, "")];
        let refused = [
            missing(store.set_title(chat, "mine").await),
            missing(store.delete_chat(chat).await),
            missing(store.messages(chat).await),
            missing(store.append(chat, &message, Cut::Nothing, 3).await),
            missing(store.append(chat, &[], Cut::From("m1"), 3).await),
            missing(store.commit(chat, &decided, &entry, 3).await),
            missing(store.checkpoint(chat, &decided).await),
            missing(store.reply(chat, "m1").await),
            missing(store.append_audit(chat, &entry).await),
            missing(store.audit(chat).await),
            missing(
                store
                    .update_state(chat, "wallet", Box::new(|_| panic!("asked")))
                    .await,
            ),
            missing(store.append_events(chat, 0, "m2", vec!["{}".into()]).await),
            missing(store.events(chat, 0).await),
            missing(store.add_file(&file("0b", chat)).await),
        ];
        assert_eq!(refused, [const { "no such chat" }; 14]);
        assert_eq!(store.chat(chat).await.unwrap(), None);
        assert_eq!(store.open_replies_of(chat).await.unwrap(), []);
    }
    missing(store.create_chat(FOREIGN, 3).await);
    assert_eq!(store.file("mallory", "0a").await.unwrap(), None);
    assert_eq!(store.list_chats("mallory", 10, None).await.unwrap(), []);

    assert_eq!(shown(&*store).await, ["m1", "m2"]);
    assert_eq!(open_reply(&*store).await, Some(record));
    assert_eq!(store.audit(CHAT).await.unwrap().len(), 1);
    assert_eq!(store.events(CHAT, 0).await.unwrap().len(), 1);
    assert_eq!(store.file("alice", "0a").await.unwrap(), Some(row));
}

pub(crate) async fn are_listed_page_by_page(home: &impl Home) {
    let store = home.open().await.unwrap();
    let ids: Vec<String> = (0..7).map(|n| format!("chat-{n}")).collect();
    for (n, id) in ids.iter().enumerate() {
        let chat = ChatRef { user: "alice", id };
        // Pairs of the same time, so that the id decides as well.
        store.create_chat(chat, 10 + n as u64 / 2).await.unwrap();
    }
    store
        .create_chat(
            ChatRef {
                user: "bob",
                id: "his",
            },
            99,
        )
        .await
        .unwrap();

    let mut pages = Vec::new();
    let mut last: Option<(u64, String)> = None;
    loop {
        let before = last.as_ref().map(|(updated, id)| Before {
            updated: *updated,
            id,
        });
        let page = store.list_chats("alice", 3, before).await.unwrap();
        let Some(end) = page.last() else { break };
        last = Some((end.chat.updated, end.chat.id.clone()));
        pages.push(
            page.into_iter()
                .map(|listed| listed.chat.id)
                .collect::<Vec<_>>(),
        );
    }
    assert_eq!(
        pages,
        [
            vec!["chat-6", "chat-5", "chat-4"],
            vec!["chat-3", "chat-2", "chat-1"],
            vec!["chat-0"],
        ]
    );

    // What changed last comes first; a clock that was set back changes nothing.
    let oldest = ChatRef {
        user: "alice",
        id: "chat-0",
    };
    store
        .append(oldest, &[user("m1", "hi")], Cut::Nothing, 50)
        .await
        .unwrap();
    store
        .commit(oldest, &asking("m2", &["call-1", "call-2"]), &[], 40)
        .await
        .unwrap();
    let first = store.list_chats("alice", 1, None).await.unwrap().remove(0);
    assert_eq!(
        (first.chat.id.as_str(), first.chat.updated, first.waiting),
        ("chat-0", 50, 2)
    );
    assert!(first.owed.is_empty());
    assert_eq!(first.chat.title.as_deref(), Some("hi"));
}

pub(crate) async fn get_their_title_from_the_first_text(home: &impl Home) {
    let store = with_chat(home).await;
    let picture = message(json!({"id": "m1", "role": "user", "parts": [
        {"type": "file", "mediaType": "image/png", "url": "/api/files/1"},
    ]}));
    let made = store
        .append(CHAT, &[picture], Cut::Nothing, 1)
        .await
        .unwrap();
    assert_eq!(made.title, None);
    let said = [user("m2", "what is\nthis?"), user("m3", "hello?")];
    let made = store.append(CHAT, &said, Cut::Nothing, 2).await.unwrap();
    assert_eq!(made.title.as_deref(), Some("what is this?"));
    store.set_title(CHAT, "My cat").await.unwrap();
    let made = store
        .append(CHAT, &[user("m4", "more")], Cut::Nothing, 3)
        .await
        .unwrap();
    assert_eq!(made.title.as_deref(), Some("My cat"));
}

pub(crate) async fn revise_what_is_heard(home: &impl Home) {
    let store = with_chat(home).await;
    let unheard = message(json!({"id": "m1", "role": "user", "parts": []}));
    store
        .append(CHAT, &[unheard], Cut::Nothing, 1)
        .await
        .unwrap();
    store
        .commit(CHAT, &finished("m2", "yes?"), &[], 2)
        .await
        .unwrap();
    for heard in ["good", "good morning"] {
        store.revise(CHAT, &user("m1", heard)).await.unwrap();
    }
    let messages = store.messages(CHAT).await.unwrap();
    assert_eq!(messages[0].message, user("m1", "good morning"));
    assert_eq!(shown(&*store).await, ["m1", "m2"]);
    let chat = store.chat(CHAT).await.unwrap().unwrap();
    assert_eq!(chat.title.as_deref(), Some("good morning"));
    store.set_title(CHAT, "Greetings").await.unwrap();
    let more = user("m1", "good morning to you");
    store.revise(CHAT, &more).await.unwrap();
    let chat = store.chat(CHAT).await.unwrap().unwrap();
    assert_eq!(chat.title.as_deref(), Some("Greetings"), "the user's own");
    for (chat, id) in [(CHAT, "m3"), (CHAT, "m2"), (FOREIGN, "m1")] {
        missing(store.revise(chat, &user(id, "no")).await);
    }
}

pub(crate) async fn keep_messages_as_they_came(home: &impl Home) {
    let store = with_chat(home).await;
    // As deep as a body can be that is parsed by itself.
    let deep = (0..126).fold(json!(1), |inner, _| json!([inner]));
    let message = message(json!({
        "id": "m1", "metadata": {"n": 1.1, "deep": [null, {"a": 0.1}]}, "role": "user",
        "parts": [
            {"type": "text", "text": "quote \" nul \u{0} astral 𝄞 line \u{2028}", "later": [1]},
            {"type": "hologram", "data": {"z": 1, "a": 2}},
            {"type": "tool-x", "toolCallId": "c", "state": "half-done", "input": 12345678901234567890u64},
            {"type": "data-note", "id": "n", "data": null},
            {"type": "tool-y", "toolCallId": "d", "state": "output-available", "input": {}, "output": deep},
        ],
        "annotations": [{"unknown": true}],
    }));
    let many: Vec<_> = (0..30)
        .map(|n| user(&format!("u{}", 30 - n), "x"))
        .collect();
    store
        .append(CHAT, std::slice::from_ref(&message), Cut::Nothing, 1)
        .await
        .unwrap();
    store.append(CHAT, &many, Cut::Nothing, 2).await.unwrap();
    let stored = store.messages(CHAT).await.unwrap();
    assert_eq!(stored[0].message, message);
    assert_eq!(
        serde_json::to_string(&stored[0].message).unwrap(),
        serde_json::to_string(&message).unwrap()
    );
    assert!(
        stored
            .iter()
            .all(|stored| stored.state == MessageState::Done)
    );
    let order: Vec<_> = stored[1..]
        .iter()
        .map(|stored| &stored.message.id)
        .collect();
    assert_eq!(
        order,
        many.iter().map(|message| &message.id).collect::<Vec<_>>()
    );
}

pub(crate) async fn are_cut(home: &impl Home) {
    let store = with_chat(home).await;
    store
        .append(CHAT, &[user("m1", "one")], Cut::Nothing, 1)
        .await
        .unwrap();
    store
        .commit(CHAT, &finished("m2", "two"), &[], 2)
        .await
        .unwrap();
    store
        .append(CHAT, &[user("m3", "three")], Cut::Nothing, 3)
        .await
        .unwrap();
    store
        .commit(CHAT, &reply("m4", "four"), &[], 4)
        .await
        .unwrap();

    // A reply in the making is closed first.
    for cut in [Cut::After("m3"), Cut::From("m4"), Cut::From("m1")] {
        let refused = store.append(CHAT, &[user("m5", "x")], cut, 5).await;
        assert_eq!(
            conflict(refused),
            "another reply of this chat is in the making; close it first"
        );
    }
    assert_eq!(
        missing(store.append(CHAT, &[], Cut::After("m9"), 5).await),
        "no such message"
    );
    assert_eq!(shown(&*store).await, ["m1", "m2", "m3", "m4"]);
    assert_eq!(store.chat(CHAT).await.unwrap().unwrap().generation, 0);
    store
        .commit(CHAT, &finished("m4", "four"), &[], 5)
        .await
        .unwrap();

    let steps: [(Cut<'_>, &[_], &[&str], u64); 6] = [
        // Regenerate.
        (Cut::After("m3"), &[], &["m1", "m2", "m3"], 1),
        // Nothing follows: the history is the same, and so is the agent's session.
        (Cut::After("m3"), &[], &["m1", "m2", "m3"], 1),
        // An edited message keeps its id.
        (
            Cut::From("m3"),
            &[user("m3", "edited")],
            &["m1", "m2", "m3"],
            2,
        ),
        (
            Cut::After("m3"),
            &[user("m5", "more")],
            &["m1", "m2", "m3", "m5"],
            2,
        ),
        (
            Cut::After("m2"),
            &[user("m6", "else")],
            &["m1", "m2", "m6"],
            3,
        ),
        (Cut::From("m1"), &[user("m1", "again")], &["m1"], 4),
    ];
    for (cut, add, left, generation) in steps {
        let chat = store.append(CHAT, add, cut, 6).await.unwrap();
        assert_eq!(chat.generation, generation, "{cut:?}");
        assert_eq!(shown(&*store).await, left, "{cut:?}");
    }
    assert_eq!(
        store.messages(CHAT).await.unwrap()[0].message,
        user("m1", "again")
    );
    // What was cut does not come back by itself.
    assert_eq!(
        missing(store.append(CHAT, &[], Cut::After("m3"), 7).await),
        "no such message"
    );
    let late = store.commit(CHAT, &finished("m4", "late"), &[], 7).await;
    assert_eq!(conflict(late), "reply m4 was cut from the history");
    missing(store.checkpoint(CHAT, &reply("m4", "late")).await);
    assert_eq!(shown(&*store).await, ["m1"]);
}

pub(crate) async fn hold_a_message_once(home: &impl Home) {
    let store = with_chat(home).await;
    store
        .append(CHAT, &[user("m1", "one")], Cut::Nothing, 1)
        .await
        .unwrap();
    store
        .commit(CHAT, &finished("m2", "two"), &[], 2)
        .await
        .unwrap();
    for id in ["m1", "m2"] {
        let both = [user("m3", "new"), user(id, "old")];
        let refused = store.append(CHAT, &both, Cut::Nothing, 3).await;
        assert_eq!(
            conflict(refused),
            format!("message {id} is in this chat already; cut it first")
        );
    }
    let over_the_user = store.commit(CHAT, &finished("m1", "mine"), &[], 3).await;
    assert_eq!(
        conflict(over_the_user),
        "message m1 is in this chat already; cut it first"
    );
    // Nothing of a refusal stays, the new message before the old one included.
    assert_eq!(shown(&*store).await, ["m1", "m2"]);
    // In another chat the id is free.
    let other = ChatRef {
        user: "alice",
        id: "chat-2",
    };
    store.create_chat(other, 1).await.unwrap();
    store
        .append(other, &[user("m1", "one")], Cut::Nothing, 1)
        .await
        .unwrap();
}

pub(crate) async fn hold_long_histories(home: &impl Home) {
    let store = with_chat(home).await;
    let messages: Vec<_> = (0..321)
        .map(|n| user(&format!("m{n}"), &format!("number {n}")))
        .collect();
    let ids: Vec<_> = messages.iter().map(|message| message.id.clone()).collect();
    store
        .append(CHAT, &messages[..201], Cut::Nothing, 1)
        .await
        .unwrap();
    let opening = Opening {
        messages: &messages[201..],
        cut: Cut::Nothing,
    };
    store
        .begin(CHAT, opening, &reply("r1", ""), &[], 1)
        .await
        .unwrap();
    assert_eq!(shown(&*store).await[..321], ids);
    assert_eq!(shown(&*store).await[321..], ["r1"]);
}

pub(crate) async fn begin_with_a_question_and_its_reply(home: &impl Home) {
    let store = home.open().await.unwrap();
    let question = [user("m1", "hi there")];
    let opening = Opening {
        messages: &question,
        cut: Cut::Nothing,
    };
    let record = reply("m2", "");
    let entry = [audit(AuditKind::AnswerRefused, "")];
    let made = store
        .begin(CHAT, opening, &record, &entry, 1_000)
        .await
        .unwrap();
    assert_eq!((made.created, made.updated), (1_000, 1_000));
    assert_eq!(made.title.as_deref(), Some("hi there"));
    assert_eq!(store.chat(CHAT).await.unwrap(), Some(made));
    assert_eq!(shown(&*store).await, ["m1", "m2"]);
    assert_eq!(open_reply(&*store).await, Some(record));
    assert_eq!(store.audit(CHAT).await.unwrap().len(), 1);

    // Again in the same chat, and after a cut.
    store
        .commit(CHAT, &finished("m2", "hello"), &[], 1_001)
        .await
        .unwrap();
    let next = [user("m3", "and then?")];
    for (messages, cut, record, shows) in [
        (&next[..], Cut::Nothing, "m4", ["m1", "m2", "m3", "m4"]),
        (&[], Cut::After("m3"), "m5", ["m1", "m2", "m3", "m5"]),
    ] {
        let opening = Opening { messages, cut };
        let chat = store
            .begin(CHAT, opening, &finished(record, ""), &[], 1_002)
            .await
            .unwrap();
        assert_eq!(store.chat(CHAT).await.unwrap(), Some(chat));
        assert_eq!(shown(&*store).await, shows);
    }
    let chat = store.chat(CHAT).await.unwrap().unwrap();
    assert_eq!((chat.created, chat.updated), (1_000, 1_002));
    assert_eq!(
        (chat.title.as_deref(), chat.generation),
        (Some("hi there"), 1)
    );
}

pub(crate) async fn begin_whole_or_not_at_all(home: &impl Home) {
    let store = with_chat(home).await;
    store
        .append(
            CHAT,
            &[user("m1", "one"), user("m2", "two")],
            Cut::Nothing,
            1,
        )
        .await
        .unwrap();
    store.append(CHAT, &[], Cut::From("m2"), 1).await.unwrap();
    let before = store.chat(CHAT).await.unwrap();
    let fresh = [user("m3", "new")];
    let twice = [user("m3", "new"), user("m3", "again")];
    let known = [user("m3", "new"), user("m1", "old")];
    let exists = |id: &str| format!("message {id} is in this chat already; cut it first");
    for (messages, cut, record, expected) in [
        (&known[..], Cut::Nothing, "r1", exists("m1")),
        (&twice[..], Cut::Nothing, "r1", exists("m3")),
        (&fresh[..], Cut::Nothing, "m1", exists("m1")),
        (&fresh[..], Cut::Nothing, "m3", exists("m3")),
        (&fresh[..], Cut::Nothing, "m2", exists("m2")),
        (&known[..], Cut::After("m1"), "r1", exists("m1")),
    ] {
        let opening = Opening { messages, cut };
        let entry = [audit(AuditKind::AnswerRefused, "")];
        let refused = store
            .begin(CHAT, opening, &reply(record, ""), &entry, 9)
            .await;
        assert_eq!(conflict(refused), expected);
        assert_eq!(shown(&*store).await, ["m1"]);
        assert_eq!(store.chat(CHAT).await.unwrap(), before);
        assert_eq!(store.audit(CHAT).await.unwrap(), []);
    }
    let opening = Opening {
        messages: &fresh,
        cut: Cut::Nothing,
    };
    missing(
        store
            .begin(FOREIGN, opening, &reply("r1", ""), &[], 9)
            .await,
    );
    store
        .begin(CHAT, opening, &reply("r1", ""), &[], 9)
        .await
        .unwrap();
    let more = [user("m4", "meanwhile")];
    let opening = Opening {
        messages: &more,
        cut: Cut::Nothing,
    };
    // An open reply of somebody else is no conflict either.
    missing(
        store
            .begin(FOREIGN, opening, &reply("r2", ""), &[], 10)
            .await,
    );
    conflict(store.begin(CHAT, opening, &reply("r2", ""), &[], 10).await);
    assert_eq!(shown(&*store).await, ["m1", "m3", "r1"]);
}

pub(crate) async fn hold_long_messages(home: &impl Home) {
    let store = with_chat(home).await;
    let text = "0123456789abcde\n".repeat(1024 * 1024);
    let long = user("m1", &text);
    store
        .append(CHAT, std::slice::from_ref(&long), Cut::Nothing, 1)
        .await
        .unwrap();
    store
        .commit(CHAT, &reply("m2", &text), &[], 1)
        .await
        .unwrap();
    let stored = store.messages(CHAT).await.unwrap();
    assert_eq!(stored[0].message, long);
    assert_eq!(open_reply(&*store).await, Some(reply("m2", &text)));

    let longer = vec!["{}".to_owned(), "x".repeat(MAX_BODY_BYTES + 1)];
    match store.append_events(CHAT, 0, "m2", longer).await {
        Err(StoreError::TooLarge { bytes, limit }) => assert!(bytes > limit),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.events(CHAT, 0).await.unwrap(), []);
}

pub(crate) async fn leave_only_the_audit(home: &impl Home) {
    let store = with_chat(home).await;
    fill(&*store).await;
    let audit = store.audit(CHAT).await.unwrap();
    assert_eq!(store.delete_chat(CHAT).await.unwrap(), ["0a"]);
    assert_eq!(store.chat(CHAT).await.unwrap(), None);
    assert_eq!(store.open_replies().await.unwrap(), []);
    assert_eq!(store.file("alice", "0a").await.unwrap(), None);
    assert_eq!(store.file_ids().await.unwrap(), Vec::<String>::new());
    assert_eq!(store.audit(CHAT).await.unwrap(), audit);
    missing(store.delete_chat(CHAT).await);

    // Whoever takes the id gets an empty chat.
    store.create_chat(FOREIGN, 9).await.unwrap();
    assert_eq!(store.messages(FOREIGN).await.unwrap(), []);
    assert_eq!(store.audit(FOREIGN).await.unwrap(), []);
    assert_eq!(store.events(FOREIGN, 0).await.unwrap(), []);
    let wallet = store
        .update_state(FOREIGN, "wallet", Box::new(|before| (None, json!(before))))
        .await;
    assert_eq!(wallet.unwrap(), json!(null));
    assert_eq!(
        store.list_chats("mallory", 10, None).await.unwrap()[0].waiting,
        0
    );
    assert_eq!(store.audit(CHAT).await.unwrap(), audit);
}

pub(crate) async fn outlive_the_process(home: &impl Home) {
    for closed in [true, false] {
        let store = home.open().await.unwrap();
        let chat = store.create_chat(CHAT, 1_000).await.unwrap();
        let before = if chat.title.is_none() {
            fill(&*store).await;
            contents(&*store).await
        } else {
            contents(&*store).await
        };
        if closed {
            store.close().await.unwrap();
        }
        drop(store);
        let store = home.open().await.unwrap();
        assert_eq!(contents(&*store).await, before);
        assert!(before.contains("let me pay"), "{before}");
    }
}

/// Something of everything.
async fn fill(store: &dyn Store) {
    store
        .append(CHAT, &[user("m1", "pay")], Cut::Nothing, 1)
        .await
        .unwrap();
    let requested = [audit(AuditKind::ApprovalRequested, "")];
    store
        .commit(CHAT, &asking("m2", &["call-1"]), &requested, 2)
        .await
        .unwrap();
    store
        .append_events(CHAT, 0, "m2", vec!["{}".into()])
        .await
        .unwrap();
    store.add_file(&file("0a", CHAT)).await.unwrap();
    let change = Box::new(|_| (Some(json!(100)), json!(null)));
    store.update_state(CHAT, "wallet", change).await.unwrap();
}

async fn contents(store: &dyn Store) -> String {
    let wallet = Box::new(|before: Option<Value>| (before.clone(), json!(before)));
    format!(
        "{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{:?}",
        store.list_chats(CHAT.user, 10, None).await.unwrap(),
        store.messages(CHAT).await.unwrap(),
        open_reply(store).await,
        store.open_replies().await.unwrap(),
        store.audit(CHAT).await.unwrap(),
        store.events(CHAT, 0).await.unwrap(),
        store.file("alice", "0a").await.unwrap(),
        store.file_ids().await.unwrap(),
        store.update_state(CHAT, "wallet", wallet).await.unwrap(),
    )
}

pub(crate) fn file(id: &str, chat: ChatRef<'_>) -> FileRow {
    FileRow {
        id: id.to_owned(),
        chat_id: chat.id.to_owned(),
        user: chat.user.to_owned(),
        media_type: "image/png".to_owned(),
        bytes: 3,
        name: Some("cat.png".to_owned()),
        created: 7,
    }
}
