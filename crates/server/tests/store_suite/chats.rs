//! Chats and their messages.

use adk_bridge::store::{
    ChatCursor, ChatOverview, ChatRef, Cut, FileRow, MAX_BODY_BYTES, MessageState, Opening,
    StoreError,
};
use adk_bridge_protocol::id::{ChatId, UserId};
use adk_bridge_protocol::outbox::AuditKind;
use adk_bridge_protocol::reply::EndReason;
use serde_json::json;

use super::*;

pub(crate) async fn are_made_once(home: &impl Home) {
    let store = home.open().await.unwrap();
    assert_eq!(store.chat(CHAT).await.unwrap(), None);
    let made = store.create_chat(CHAT, at(1_000)).await.unwrap();
    assert_eq!(
        (made.created, made.updated, made.generation),
        (at(1_000), at(1_000), 0)
    );
    assert_eq!(made.title, None);
    assert_eq!(store.create_chat(CHAT, at(2_000)).await.unwrap(), made);
    assert_eq!(store.chat(CHAT).await.unwrap(), Some(made));
}

pub(crate) async fn of_another_user_do_not_exist(home: &impl Home) {
    let store = with_chat(home).await;
    let record = asking("m2", &["call-1"]);
    let row = file("0a", CHAT);
    store
        .append(CHAT, &[user("m1", "hi")], Cut::Nothing, at(1))
        .await
        .unwrap();
    store
        .commit(
            CHAT,
            &record,
            &[audit(AuditKind::ApprovalRequested, "")],
            at(2),
        )
        .await
        .unwrap();
    store
        .append_events(CHAT, 0, M2, vec!["{}".into()])
        .await
        .unwrap();
    store.add_file(&row).await.unwrap();

    let unknown = ChatRef {
        user: &UserId::literal("alice"),
        id: &ChatId::literal("chat-2"),
    };
    for chat in [FOREIGN, unknown] {
        let message = [user("m3", "mine")];
        let decided = record.clone();
        let entry = [audit(AuditKind::AnswerRefused, "")];
        let refused = [
            missing(store.set_title(chat, "mine").await),
            missing(store.delete_chat(chat).await),
            missing(store.messages(chat).await),
            missing(store.append(chat, &message, Cut::Nothing, at(3)).await),
            missing(store.append(chat, &[], Cut::From(M1), at(3)).await),
            missing(store.commit(chat, &decided, &entry, at(3)).await),
            missing(store.checkpoint(chat, &decided).await),
            missing(store.reply(chat, M1).await),
            missing(store.append_audit(chat, &entry).await),
            missing(store.audit(chat, AuditPage::default()).await),
            missing(
                store
                    .update_state(chat, "wallet", Box::new(|_| panic!("asked")))
                    .await,
            ),
            missing(store.append_events(chat, 0, M2, vec!["{}".into()]).await),
            missing(store.events(chat, 0).await),
            missing(store.add_file(&file("0b", chat)).await),
        ];
        assert_eq!(refused, [const { "no such chat" }; 14]);
        assert_eq!(store.chat(chat).await.unwrap(), None);
        assert_eq!(store.open_replies_of(chat).await.unwrap(), []);
    }
    assert_eq!(
        store.file(&UserId::literal("mallory"), "0a").await.unwrap(),
        None
    );
    assert_eq!(
        store
            .list_chats(&UserId::literal("mallory"), 10, None)
            .await
            .unwrap(),
        []
    );

    assert_eq!(shown(&*store).await, ["m1", "m2"]);
    assert_eq!(open_reply(&*store).await, Some(record));
    assert_eq!(
        store.audit(CHAT, AuditPage::default()).await.unwrap().len(),
        1
    );
    assert_eq!(store.events(CHAT, 0).await.unwrap().len(), 1);
    assert_eq!(
        store.file(&UserId::literal("alice"), "0a").await.unwrap(),
        Some(row)
    );
}

/// The same ids in two chats of two users: nothing of one shows in the other, or goes with it.
pub(crate) async fn of_two_users_may_have_the_same_id(home: &impl Home) {
    let store = home.open().await.unwrap();
    for (n, chat) in (1_u64..).zip([CHAT, FOREIGN]) {
        let opening = Opening {
            messages: &[user("m1", chat.user.as_str())],
            cut: Cut::Nothing,
            heard: false,
            agent: None,
        };
        let record = asking("m2", &["call-1"]);
        let entry = [audit(AuditKind::ApprovalRequested, chat.user.as_str())];
        let made = store
            .begin(chat, opening, &record, &entry, at(n))
            .await
            .unwrap();
        assert_eq!(
            (made.title.as_deref(), made.created),
            (Some(chat.user.as_str()), at(n))
        );
        store
            .append_events(chat, 0, M2, vec![chat.user.to_string()])
            .await
            .unwrap();
        store.add_file(&file(&format!("0{n}"), chat)).await.unwrap();
        let keep = Box::new(|before: Option<Value>| {
            assert_eq!(before, None);
            (Some(json!(chat.user)), Value::Null)
        });
        store.update_state(chat, "wallet", keep).await.unwrap();
    }
    assert_eq!(store.delete_chat(CHAT).await.unwrap(), ["01"]);
    assert_eq!(store.chat(CHAT).await.unwrap(), None);

    let messages = store.messages(FOREIGN).await.unwrap();
    assert_eq!(messages[0].message, user("m1", "mallory"));
    assert_eq!(store.open_replies_of(FOREIGN).await.unwrap().len(), 1);
    let listed = store.list_chats(FOREIGN.user, 10, None).await.unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].waiting, 1);
    assert_eq!(store.events(FOREIGN, 0).await.unwrap()[0].body, "mallory");
    let found = store.file(FOREIGN.user, "02").await.unwrap();
    assert_eq!(found, Some(file("02", FOREIGN)));
    let wallet = Box::new(|kept: Option<Value>| (None, json!(kept)));
    let wallet = store.update_state(FOREIGN, "wallet", wallet).await;
    assert_eq!(wallet.unwrap(), json!("mallory"));
    for chat in [CHAT, FOREIGN] {
        let rows = store.audit(chat, AuditPage::default()).await.unwrap();
        assert_eq!(rows.len(), 1);
        assert_eq!(rows[0].user, *chat.user);
    }
}

pub(crate) async fn are_listed_page_by_page(home: &impl Home) {
    let store = home.open().await.unwrap();
    let ids: Vec<ChatId> = (0..7).map(|n| format!("chat-{n}").into()).collect();
    for (n, id) in ids.iter().enumerate() {
        let chat = ChatRef {
            user: &UserId::literal("alice"),
            id,
        };
        // Pairs of the same time, so that the id decides as well.
        store
            .create_chat(chat, at(10 + n as u64 / 2))
            .await
            .unwrap();
    }
    store
        .create_chat(
            ChatRef {
                user: &UserId::literal("bob"),
                id: &ChatId::literal("his"),
            },
            at(99),
        )
        .await
        .unwrap();

    let mut pages = Vec::new();
    let mut last: Option<(Timestamp, ChatId)> = None;
    loop {
        let before = last.as_ref().map(|(updated, id)| ChatCursor {
            updated: *updated,
            id,
        });
        let page = store
            .list_chats(&UserId::literal("alice"), 3, before)
            .await
            .unwrap();
        let Some(end) = page.last() else { break };
        last = Some((end.chat.updated, end.chat.id.clone()));
        pages.push(
            page.into_iter()
                .map(|listed| listed.chat.id)
                .collect::<Vec<_>>(),
        );
    }
    let alice = UserId::literal("alice");
    let cursor = ChatCursor {
        updated: at(12),
        id: &ChatId::literal("chat-5"),
    };
    let titles = store.titles(&alice, 3, Some(cursor)).await.unwrap();
    let titles: Vec<&str> = titles.iter().map(|chat| chat.id.as_str()).collect();
    assert_eq!(titles, ["chat-4", "chat-3", "chat-2"]);
    let ids = ["chat-1", "his", "chat-3", "none"].map(ChatId::from);
    let listed = store.listed(&alice, &ids).await.unwrap();
    let listed: Vec<&str> = listed.iter().map(|it| it.chat.id.as_str()).collect();
    assert_eq!(listed, ["chat-3", "chat-1"]);
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
        user: &UserId::literal("alice"),
        id: &ChatId::literal("chat-0"),
    };
    store
        .append(oldest, &[user("m1", "hi")], Cut::Nothing, at(50))
        .await
        .unwrap();
    store
        .commit(oldest, &asking("m2", &["call-1", "call-2"]), &[], at(40))
        .await
        .unwrap();
    let first = store
        .list_chats(&UserId::literal("alice"), 1, None)
        .await
        .unwrap()
        .remove(0);
    assert_eq!(
        (first.chat.id.as_str(), first.chat.updated, first.waiting),
        ("chat-0", at(50), 2)
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
        .append(CHAT, &[picture], Cut::Nothing, at(1))
        .await
        .unwrap();
    assert_eq!(made.title, None);
    let said = [user("m2", "what is\nthis?"), user("m3", "hello?")];
    let made = store
        .append(CHAT, &said, Cut::Nothing, at(2))
        .await
        .unwrap();
    assert_eq!(made.title.as_deref(), Some("what is this?"));
    store.set_title(CHAT, "My cat").await.unwrap();
    let made = store
        .append(CHAT, &[user("m4", "more")], Cut::Nothing, at(3))
        .await
        .unwrap();
    assert_eq!(made.title.as_deref(), Some("My cat"));
}

pub(crate) async fn revise_what_is_heard(home: &impl Home) {
    let store = with_chat(home).await;
    let unheard = message(json!({"id": "m1", "role": "user", "parts": []}));
    store
        .append(CHAT, &[unheard], Cut::Nothing, at(1))
        .await
        .unwrap();
    store
        .commit(CHAT, &finished("m2", "yes?"), &[], at(2))
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
    // As deep as a body can be that is parsed on its own.
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
        .append(CHAT, std::slice::from_ref(&message), Cut::Nothing, at(1))
        .await
        .unwrap();
    store
        .append(CHAT, &many, Cut::Nothing, at(2))
        .await
        .unwrap();
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
        .append(CHAT, &[user("m1", "one")], Cut::Nothing, at(1))
        .await
        .unwrap();
    store
        .commit(CHAT, &finished("m2", "two"), &[], at(2))
        .await
        .unwrap();
    store
        .append(CHAT, &[user("m3", "three")], Cut::Nothing, at(3))
        .await
        .unwrap();
    store
        .commit(CHAT, &reply("m4", "four"), &[], at(4))
        .await
        .unwrap();

    // A reply in the making is closed first.
    for cut in [Cut::After(M3), Cut::From(M4), Cut::From(M1)] {
        let refused = store.append(CHAT, &[user("m5", "x")], cut, at(5)).await;
        assert_eq!(
            conflict(refused),
            "another reply of this chat is in progress; close it first"
        );
    }
    assert_eq!(
        missing(store.append(CHAT, &[], Cut::After(M9), at(5)).await),
        "no such message"
    );
    assert_eq!(shown(&*store).await, ["m1", "m2", "m3", "m4"]);
    assert_eq!(store.chat(CHAT).await.unwrap().unwrap().generation, 0);
    store
        .commit(CHAT, &finished("m4", "four"), &[], at(5))
        .await
        .unwrap();

    let steps: [(Cut<'_>, &[_], &[&str], u64); 6] = [
        // Regenerate.
        (Cut::After(M3), &[], &["m1", "m2", "m3"], 1),
        // Nothing follows: the history is the same, and so is the agent's session.
        (Cut::After(M3), &[], &["m1", "m2", "m3"], 1),
        // An edited message keeps its id.
        (
            Cut::From(M3),
            &[user("m3", "edited")],
            &["m1", "m2", "m3"],
            2,
        ),
        (
            Cut::After(M3),
            &[user("m5", "more")],
            &["m1", "m2", "m3", "m5"],
            2,
        ),
        (
            Cut::After(M2),
            &[user("m6", "else")],
            &["m1", "m2", "m6"],
            3,
        ),
        (Cut::From(M1), &[user("m1", "again")], &["m1"], 4),
    ];
    for (cut, add, left, generation) in steps {
        let chat = store.append(CHAT, add, cut, at(6)).await.unwrap();
        assert_eq!(chat.generation, generation, "{cut:?}");
        assert_eq!(shown(&*store).await, left, "{cut:?}");
    }
    assert_eq!(
        store.messages(CHAT).await.unwrap()[0].message,
        user("m1", "again")
    );
    // What was cut does not come back on its own.
    assert_eq!(
        missing(store.append(CHAT, &[], Cut::After(M3), at(7)).await),
        "no such message"
    );
    let late = store
        .commit(CHAT, &finished("m4", "late"), &[], at(7))
        .await;
    assert_eq!(conflict(late), "reply m4 was cut from the history");
    missing(store.checkpoint(CHAT, &reply("m4", "late")).await);
    assert_eq!(shown(&*store).await, ["m1"]);
}

pub(crate) async fn hold_a_message_once(home: &impl Home) {
    let store = with_chat(home).await;
    store
        .append(CHAT, &[user("m1", "one")], Cut::Nothing, at(1))
        .await
        .unwrap();
    store
        .commit(CHAT, &finished("m2", "two"), &[], at(2))
        .await
        .unwrap();
    for id in ["m1", "m2"] {
        let both = [user("m3", "new"), user(id, "old")];
        let refused = store.append(CHAT, &both, Cut::Nothing, at(3)).await;
        assert_eq!(
            conflict(refused),
            format!("message {id} is in this chat already; cut it first")
        );
    }
    let over_the_user = store
        .commit(CHAT, &finished("m1", "mine"), &[], at(3))
        .await;
    assert_eq!(
        conflict(over_the_user),
        "message m1 is in this chat already; cut it first"
    );
    // Nothing of a refusal stays, the new message before the old one included.
    assert_eq!(shown(&*store).await, ["m1", "m2"]);
    // In another chat the id is free.
    let other = ChatRef {
        user: &UserId::literal("alice"),
        id: &ChatId::literal("chat-2"),
    };
    store.create_chat(other, at(1)).await.unwrap();
    store
        .append(other, &[user("m1", "one")], Cut::Nothing, at(1))
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
        .append(CHAT, &messages[..201], Cut::Nothing, at(1))
        .await
        .unwrap();
    let opening = Opening {
        messages: &messages[201..],
        cut: Cut::Nothing,
        heard: false,
        agent: None,
    };
    store
        .begin(CHAT, opening, &reply("r1", ""), &[], at(1))
        .await
        .unwrap();
    assert_eq!(shown(&*store).await[..321], ids);
    assert_eq!(shown(&*store).await[321..], ["r1"]);
}

/// Databases differ in what they take for text. JSON may have every character, and so may ids.
pub(crate) async fn hold_any_text(home: &impl Home) {
    let store = home.open().await.unwrap();
    for (number, odd) in [
        "\0",
        "\u{10FFFE}0\0",
        "'\\\"$1",
        "\u{7f}\u{2028}\u{FFFD}é🎈",
    ]
    .iter()
    .enumerate()
    {
        let (user_id, id) = (UserId::from(*odd), ChatId::from(format!("chat {odd}")));
        let chat = ChatRef {
            user: &user_id,
            id: &id,
        };
        let mut record = asking(&format!("m{odd}"), &[odd]);
        let said = json!({
            "id": format!("m{odd}"), "role": "assistant", "parts": [{"type": "text", "text": odd, "state": "done"}],
        });
        record.message = message(said).into();
        let mut entry = audit(AuditKind::AnswerRefused, odd);
        entry.audit.call_id = Some((*odd).into());
        entry.transport = Some((*odd).to_owned());
        let question = [user(odd, odd)];
        let opening = Opening {
            messages: &question,
            cut: Cut::Nothing,
            heard: false,
            agent: Some(odd),
        };
        let begun = store
            .begin(chat, opening, &record, std::slice::from_ref(&entry), at(1))
            .await
            .unwrap();
        assert_eq!(
            (begun.id, begun.agent.as_deref()),
            (id.clone(), Some(*odd)),
            "{odd:?}"
        );
        store.set_title(chat, odd).await.unwrap();
        store
            .append_events(chat, 0, M1, vec![(*odd).to_owned()])
            .await
            .unwrap();
        let put = store.update_state(
            chat,
            odd,
            Box::new(|before| (Some(json!({"was": before, "is": odd})), json!(odd))),
        );
        assert_eq!(put.await.unwrap(), json!(odd));
        let row = FileRow {
            name: Some((*odd).to_owned()),
            ..file(&format!("0{number}"), chat)
        };
        store.add_file(&row).await.unwrap();

        let listed = store.list_chats(&user_id, 10, None).await.unwrap();
        assert_eq!(listed.len(), 1, "{odd:?}");
        assert_eq!(
            (listed[0].chat.title.as_deref(), listed[0].waiting),
            (Some(*odd), 1)
        );
        let messages: Vec<_> = store
            .messages(chat)
            .await
            .unwrap()
            .into_iter()
            .map(|stored| stored.message)
            .collect();
        assert_eq!(messages, [question[0].clone(), (*record.message).clone()]);
        assert_eq!(store.open_replies_of(chat).await.unwrap(), [record]);
        assert_eq!(store.events(chat, 0).await.unwrap()[0].body, *odd);
        assert_eq!(
            store.state(chat, odd).await.unwrap(),
            Some(json!({"was": null, "is": odd}))
        );
        assert_eq!(store.any_file(&row.id).await.unwrap(), Some(row));
        assert!(store.has_refused(chat, &entry.audit).await.unwrap());
        let shown = store.audit(chat, AuditPage::default()).await.unwrap();
        assert_eq!(
            (shown[0].reason.as_deref(), shown[0].transport.as_deref()),
            (Some(*odd), Some(*odd))
        );
    }
}

pub(crate) async fn begin_with_a_question_and_its_reply(home: &impl Home) {
    let store = home.open().await.unwrap();
    let question = [user("m1", "hi there")];
    let opening = Opening {
        messages: &question,
        cut: Cut::Nothing,
        heard: false,
        agent: None,
    };
    let record = reply("m2", "");
    let entry = [audit(AuditKind::AnswerRefused, "")];
    let made = store
        .begin(CHAT, opening, &record, &entry, at(1_000))
        .await
        .unwrap();
    assert_eq!((made.created, made.updated), (at(1_000), at(1_000)));
    assert_eq!(made.title.as_deref(), Some("hi there"));
    assert_eq!(store.chat(CHAT).await.unwrap(), Some(made));
    assert_eq!(shown(&*store).await, ["m1", "m2"]);
    assert_eq!(open_reply(&*store).await, Some(record));
    assert_eq!(
        store.audit(CHAT, AuditPage::default()).await.unwrap().len(),
        1
    );

    // Again in the same chat, and after a cut.
    store
        .commit(CHAT, &finished("m2", "hello"), &[], at(1_001))
        .await
        .unwrap();
    let next = [user("m3", "and then?")];
    for (messages, cut, record, shows) in [
        (&next[..], Cut::Nothing, "m4", ["m1", "m2", "m3", "m4"]),
        (&[], Cut::After(M3), "m5", ["m1", "m2", "m3", "m5"]),
    ] {
        let opening = Opening {
            messages,
            cut,
            heard: false,
            agent: None,
        };
        let chat = store
            .begin(CHAT, opening, &finished(record, ""), &[], at(1_002))
            .await
            .unwrap();
        assert_eq!(store.chat(CHAT).await.unwrap(), Some(chat));
        assert_eq!(shown(&*store).await, shows);
    }
    let chat = store.chat(CHAT).await.unwrap().unwrap();
    assert_eq!((chat.created, chat.updated), (at(1_000), at(1_002)));
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
            at(1),
        )
        .await
        .unwrap();
    store.append(CHAT, &[], Cut::From(M2), at(1)).await.unwrap();
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
        (&known[..], Cut::After(M1), "r1", exists("m1")),
    ] {
        let opening = Opening {
            messages,
            cut,
            heard: false,
            agent: None,
        };
        let entry = [audit(AuditKind::AnswerRefused, "")];
        let refused = store
            .begin(CHAT, opening, &reply(record, ""), &entry, at(9))
            .await;
        assert_eq!(conflict(refused), expected);
        assert_eq!(shown(&*store).await, ["m1"]);
        assert_eq!(store.chat(CHAT).await.unwrap(), before);
        assert_eq!(store.audit(CHAT, AuditPage::default()).await.unwrap(), []);
    }
    let opening = Opening {
        messages: &fresh,
        cut: Cut::Nothing,
        heard: false,
        agent: None,
    };
    store
        .begin(CHAT, opening, &reply("r1", ""), &[], at(9))
        .await
        .unwrap();
    let more = [user("m4", "meanwhile")];
    let opening = Opening {
        messages: &more,
        cut: Cut::Nothing,
        heard: false,
        agent: None,
    };
    // An open reply in somebody else's chat of the same id is no conflict.
    store
        .begin(FOREIGN, opening, &reply("r2", ""), &[], at(10))
        .await
        .unwrap();
    conflict(
        store
            .begin(CHAT, opening, &reply("r2", ""), &[], at(10))
            .await,
    );
    assert_eq!(shown(&*store).await, ["m1", "m3", "r1"]);
}

pub(crate) async fn hold_long_messages(home: &impl Home) {
    let store = with_chat(home).await;
    let text = "0123456789abcde\n".repeat(1024 * 1024);
    let long = user("m1", &text);
    store
        .append(CHAT, std::slice::from_ref(&long), Cut::Nothing, at(1))
        .await
        .unwrap();
    store
        .commit(CHAT, &reply("m2", &text), &[], at(1))
        .await
        .unwrap();
    let stored = store.messages(CHAT).await.unwrap();
    assert_eq!(stored[0].message, long);
    assert_eq!(open_reply(&*store).await, Some(reply("m2", &text)));

    let longer = vec!["{}".to_owned(), "x".repeat(MAX_BODY_BYTES + 1)];
    match store.append_events(CHAT, 0, M2, longer).await {
        Err(StoreError::TooLarge { bytes, limit }) => assert!(bytes > limit),
        other => panic!("{other:?}"),
    }
    assert_eq!(store.events(CHAT, 0).await.unwrap(), []);
}

pub(crate) async fn leave_only_the_audit(home: &impl Home) {
    let store = with_chat(home).await;
    fill(&*store).await;
    let audit = store.audit(CHAT, AuditPage::default()).await.unwrap();
    assert_eq!(store.delete_chat(CHAT).await.unwrap(), ["0a"]);
    assert_eq!(store.chat(CHAT).await.unwrap(), None);
    assert_eq!(store.open_replies().await.unwrap(), []);
    assert_eq!(
        store.file(&UserId::literal("alice"), "0a").await.unwrap(),
        None
    );
    assert_eq!(store.file_ids().await.unwrap(), Vec::<String>::new());
    assert_eq!(
        store.audit(CHAT, AuditPage::default()).await.unwrap(),
        audit
    );
    missing(store.delete_chat(CHAT).await);

    // Whoever takes the id gets an empty chat.
    store.create_chat(FOREIGN, at(9)).await.unwrap();
    assert_eq!(store.messages(FOREIGN).await.unwrap(), []);
    assert_eq!(
        store.audit(FOREIGN, AuditPage::default()).await.unwrap(),
        []
    );
    assert_eq!(store.events(FOREIGN, 0).await.unwrap(), []);
    let wallet = store
        .update_state(FOREIGN, "wallet", Box::new(|before| (None, json!(before))))
        .await;
    assert_eq!(wallet.unwrap(), json!(null));
    assert_eq!(
        store
            .list_chats(&UserId::literal("mallory"), 10, None)
            .await
            .unwrap()[0]
            .waiting,
        0
    );
    assert_eq!(
        store.audit(CHAT, AuditPage::default()).await.unwrap(),
        audit
    );
}

pub(crate) async fn keep_their_first_agent(home: &impl Home) {
    let store = home.open().await.unwrap();
    assert_eq!(store.overview(CHAT).await.unwrap(), ChatOverview::default());
    // A file may be there before the first message.
    store.create_chat(CHAT, at(1)).await.unwrap();
    assert_eq!(store.overview(CHAT).await.unwrap().agent, None);
    let turns = [
        (None, None),
        (Some("weather"), Some("weather")),
        (Some("shop"), Some("weather")),
        (None, Some("weather")),
    ];
    for (n, (given, kept)) in (1_u64..).zip(turns) {
        let opening = Opening {
            messages: &[user(&format!("u{n}"), "hi")],
            cut: Cut::Nothing,
            heard: false,
            agent: given,
        };
        let mut record = reply(&format!("r{n}"), "");
        record.ended = Some(EndReason::Finished);
        let begun = store
            .begin(CHAT, opening, &record, &[], at(n))
            .await
            .unwrap();
        assert_eq!(begun.agent.as_deref(), kept);
        let listed = store.list_chats(CHAT.user, 10, None).await.unwrap();
        assert_eq!(listed[0].chat.agent.as_deref(), kept);
        let found = store.chat(CHAT).await.unwrap().unwrap();
        assert_eq!(found.agent.as_deref(), kept);
        let seen = store.overview(CHAT).await.unwrap();
        assert_eq!(seen.agent.as_deref(), kept);
        assert_eq!(seen.size, store.history_size(CHAT).await.unwrap());
        // A cut takes messages, and not the agent.
        store
            .append(CHAT, &[], Cut::AllBut(&[]), at(n))
            .await
            .unwrap();
        assert_eq!(store.overview(CHAT).await.unwrap().agent.as_deref(), kept);
    }
    assert_eq!(store.overview(FOREIGN).await.unwrap().agent, None);
}

pub(crate) async fn outlive_the_process(home: &impl Home) {
    for closed in [true, false] {
        let store = home.open().await.unwrap();
        let chat = store.create_chat(CHAT, at(1_000)).await.unwrap();
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
        .append(CHAT, &[user("m1", "pay")], Cut::Nothing, at(1))
        .await
        .unwrap();
    let requested = [audit(AuditKind::ApprovalRequested, "")];
    store
        .commit(CHAT, &asking("m2", &["call-1"]), &requested, at(2))
        .await
        .unwrap();
    store
        .append_events(CHAT, 0, M2, vec!["{}".into()])
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
        store.audit(CHAT, AuditPage::default()).await.unwrap(),
        store.events(CHAT, 0).await.unwrap(),
        store.file(&UserId::literal("alice"), "0a").await.unwrap(),
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
        created: at(7),
    }
}
