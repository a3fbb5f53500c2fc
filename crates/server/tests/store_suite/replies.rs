//! Replies, their approvals and their tool runs.

use std::future::Future as _;
use std::pin::pin;
use std::task::{Context, Waker};

use adk_bridge::store::{Cut, GrownReply, MessageState, OpenReply};
use adk_bridge_protocol::id::UserId;
use adk_bridge_protocol::message::{Extent, Growth};
use adk_bridge_protocol::outbox::AuditKind;
use serde_json::json;

use super::*;

pub(crate) async fn come_back_as_they_were(home: &impl Home) {
    let store = with_chat(home).await;
    assert_eq!(open_reply(&*store).await, None);
    let mut calls = json!([
        call(
            "call-1",
            json!({"is": "running"}),
            Some(json!({"state": "approved", "reason": "ok"}))
        ),
        call(
            "call-2",
            json!({"is": "awaitingClient", "expires": 99}),
            None
        ),
        call("call-3", json!({"is": "settled", "how": "unknown"}), None),
    ]);
    calls[1]["runsOn"] = json!("client");
    calls[1]["early"] = json!({"output": {"value": {"lat": 0.1}}});
    calls[2]["modelId"] = json!("model-3");
    let record = record("m2", "paying", calls, json!({"steps": 4, "retried": true}));
    store.commit(CHAT, &record, &[], at(1)).await.unwrap();
    assert_eq!(open_reply(&*store).await, Some(record.clone()));
    let open = OpenReply {
        user: "alice".into(),
        chat_id: "chat-1".into(),
    };
    assert_eq!(store.open_replies().await.unwrap(), [open]);
    assert_eq!(
        store.messages(CHAT).await.unwrap()[0].message,
        *record.message
    );
}

pub(crate) async fn have_a_state(home: &impl Home) {
    use MessageState::{Done, Running, Waiting};

    let store = with_chat(home).await;
    let asked = || {
        call(
            "call-1",
            json!({"is": "asked"}),
            Some(json!({"state": "requested"})),
        )
    };
    let client = || {
        let mut call = call(
            "call-2",
            json!({"is": "awaitingClient", "expires": 9}),
            None,
        );
        call["runsOn"] = json!("client");
        call
    };
    let running = || call("call-3", json!({"is": "running"}), None);
    let cases = [
        (json!([]), json!({"asking": true}), Running, true),
        (json!([asked()]), json!({}), Waiting, true),
        (json!([client()]), json!({}), Waiting, true),
        (json!([asked(), running()]), json!({}), Running, true),
        (json!([asked()]), json!({"asking": true}), Running, true),
        // Ended, and shown so; a restart has to settle its tool.
        (json!([running()]), json!({"ended": "stopped"}), Done, true),
        (json!([]), json!({"ended": "finished"}), Done, false),
    ];
    for (calls, more, state, open) in cases {
        let owed = calls.to_string().matches("awaitingClient").count();
        let record = record("m1", "", calls, more);
        store.commit(CHAT, &record, &[], at(1)).await.unwrap();
        // Clients may answer a reply that has ended; its record shows that.
        assert_eq!(store.reply(CHAT, M1).await.unwrap().as_ref(), Some(&record));
        assert_eq!(store.reply(CHAT, M9).await.unwrap(), None);
        let stored = store.messages(CHAT).await.unwrap();
        assert_eq!((stored.len(), stored[0].state), (1, state), "{record:?}");
        assert_eq!(open_reply(&*store).await, open.then_some(record));
        assert_eq!(store.open_replies().await.unwrap().len(), usize::from(open));
        let listed = store
            .list_chats(CHAT.user, 1, None)
            .await
            .unwrap()
            .remove(0);
        assert_eq!(listed.owed, vec!["process_payment"; owed]);
    }
}

pub(crate) async fn are_made_one_at_a_time(home: &impl Home) {
    let store = with_chat(home).await;
    store
        .commit(CHAT, &reply("m1", "one"), &[], at(1))
        .await
        .unwrap();
    let second = store.commit(CHAT, &reply("m2", "two"), &[], at(2)).await;
    assert_eq!(
        conflict(second),
        "another reply of this chat is in progress; close it first"
    );
    store
        .commit(CHAT, &finished("m1", "one"), &[], at(3))
        .await
        .unwrap();
    store
        .commit(CHAT, &reply("m2", "two"), &[], at(4))
        .await
        .unwrap();
    let revived = store
        .commit(CHAT, &reply("m1", "one more"), &[], at(5))
        .await;
    assert_eq!(
        conflict(revived),
        "another reply of this chat is in progress; close it first"
    );
    assert_eq!(open_reply(&*store).await, Some(reply("m2", "two")));
    assert_eq!(shown(&*store).await, ["m1", "m2"]);
}

pub(crate) async fn wait_while_the_conversation_continues(home: &impl Home) {
    let store = with_chat(home).await;
    let (first, second) = (asking("m1", &["call-1"]), asking("m2", &["call-2"]));
    for waits in [&first, &second] {
        store.commit(CHAT, waits, &[], at(1)).await.unwrap();
    }
    let third = reply("m3", "meanwhile");
    store.commit(CHAT, &third, &[], at(2)).await.unwrap();
    assert_eq!(
        store.open_replies_of(CHAT).await.unwrap(),
        [first.clone(), second, third.clone()]
    );
    assert_eq!(open_reply(&*store).await, Some(third));
    assert_eq!(waiting(&*store).await, 2);
    // One that goes on needs the others at rest.
    let goes_on = reply("m1", "paying");
    let refused = store.commit(CHAT, &goes_on, &[], at(3)).await;
    assert!(conflict(refused).contains("in progress"));
    let ended = finished("m3", "meanwhile");
    store.commit(CHAT, &ended, &[], at(4)).await.unwrap();
    store.commit(CHAT, &goes_on, &[], at(5)).await.unwrap();
}

pub(crate) async fn are_committed_whole(home: &impl Home) {
    let store = with_chat(home).await;
    let denied = json!({"state": "denied", "reason": "too much"});
    let first = record("m1", "one", json!([decided("call-1", denied)]), json!({}));
    store
        .commit(
            CHAT,
            &first,
            &[audit(AuditKind::ApprovalDenied, "too much")],
            at(1),
        )
        .await
        .unwrap();
    let before = store.chat(CHAT).await.unwrap();

    // A new approval, a new run and an audit row stand before and after the contradiction.
    let calls = json!([
        call(
            "call-0",
            json!({"is": "asked"}),
            Some(json!({"state": "requested"}))
        ),
        decided("call-1", json!({"state": "approved"})),
        call("call-2", json!({"is": "running"}), None),
    ]);
    let second = record("m1", "two", calls, json!({}));
    let refused = store
        .commit(
            CHAT,
            &second,
            &[audit(AuditKind::ApprovalApproved, "")],
            at(9),
        )
        .await;
    assert_eq!(
        conflict(refused),
        "approval approval-call-1 is denied already"
    );
    assert_eq!(open_reply(&*store).await, Some(first));
    assert_eq!(
        store.audit(CHAT, AuditPage::default()).await.unwrap().len(),
        1
    );
    assert_eq!(store.chat(CHAT).await.unwrap(), before);
    assert_eq!(waiting(&*store).await, 0);

    // The same without the contradiction: the rest was not written by halves.
    let calls = json!([
        call(
            "call-0",
            json!({"is": "asked"}),
            Some(json!({"state": "requested"}))
        ),
        decided("call-1", json!({"state": "denied", "reason": "too much"})),
        call("call-2", json!({"is": "running"}), None),
    ]);
    store
        .commit(CHAT, &record("m1", "two", calls, json!({})), &[], at(9))
        .await
        .unwrap();
    assert_eq!(waiting(&*store).await, 1);
}

pub(crate) async fn decide_an_approval_once(home: &impl Home) {
    let states = [
        json!({"state": "requested"}),
        json!({"state": "approved"}),
        json!({"state": "approved", "reason": "fine"}),
        json!({"state": "denied"}),
        json!({"state": "denied", "reason": "no"}),
        json!({"state": "expired"}),
        json!({"state": "superseded"}),
    ];
    let store = home.open().await.unwrap();
    for (n, first) in states.iter().enumerate() {
        for (m, second) in states.iter().enumerate() {
            let id = format!("chat-{n}-{m}").into();
            let chat = ChatRef {
                user: &UserId::literal("alice"),
                id: &id,
            };
            store.create_chat(chat, at(1)).await.unwrap();
            let commit = async |approval: &Value| {
                let calls = json!([decided("call-1", approval.clone())]);
                store
                    .commit(chat, &record("m1", "", calls, json!({})), &[], at(2))
                    .await
            };
            commit(first).await.unwrap();
            let again = commit(second).await;
            if n == 0 || n == m {
                again.unwrap();
            } else {
                let stored = first["state"].as_str().unwrap();
                assert_eq!(
                    conflict(again),
                    format!("approval approval-call-1 is {stored} already")
                );
            }
        }
    }
    // An approval belongs to its reply.
    store.create_chat(CHAT, at(1)).await.unwrap();
    let calls = json!([call(
        "call-1",
        json!({"is": "asked"}),
        Some(json!({"state": "requested"}))
    )]);
    store
        .commit(
            CHAT,
            &record("m1", "", calls.clone(), json!({"ended": "failed"})),
            &[],
            at(1),
        )
        .await
        .unwrap();
    let stolen = store
        .commit(CHAT, &record("m2", "", calls, json!({})), &[], at(2))
        .await;
    assert_eq!(
        conflict(stolen),
        "approval approval-call-1 is part of another reply already"
    );
}

pub(crate) async fn let_one_of_fifty_decide(home: &impl Home) {
    let store = with_chat(home).await;
    store
        .commit(CHAT, &asking("m1", &["call-1"]), &[], at(1))
        .await
        .unwrap();
    let mut tasks = tokio::task::JoinSet::new();
    for n in 0..50 {
        let store = store.clone();
        tasks.spawn(async move {
            let (word, kind) = match n % 2 {
                0 => ("approved", AuditKind::ApprovalApproved),
                _ => ("denied", AuditKind::ApprovalDenied),
            };
            let reason = format!("answer {n}");
            let calls = json!([decided("call-1", json!({"state": word, "reason": reason}))]);
            let record = record("m1", &reason, calls, json!({}));
            let done = store
                .commit(CHAT, &record, &[audit(kind, &reason)], at(2))
                .await;
            done.map(|_| (reason, record))
        });
    }
    let mut winners = Vec::new();
    while let Some(done) = tasks.join_next().await {
        match done.unwrap() {
            Ok(winner) => winners.push(winner),
            refused => assert!(conflict(refused).ends_with(" already")),
        }
    }
    assert_eq!(winners.len(), 1);
    let (reason, record) = winners.remove(0);
    assert_eq!(open_reply(&*store).await, Some(record));
    let audit = store.audit(CHAT, AuditPage::default()).await.unwrap();
    assert_eq!(audit.len(), 1);
    assert_eq!(audit[0].reason, Some(reason));
}

pub(crate) async fn run_a_tool_once(home: &impl Home) {
    let running = json!({"is": "running"});
    let settled = |how: &str| json!({"is": "settled", "how": how});
    let cases: [(&str, &[Value], Option<usize>); 7] = [
        (
            "server",
            &[running.clone(), settled("output"), settled("output")],
            None,
        ),
        // Being run again after a crash, because it may be.
        (
            "server",
            &[running.clone(), running.clone(), settled("error")],
            None,
        ),
        ("server", &[settled("denied"), settled("denied")], None),
        (
            "server",
            &[running.clone(), settled("output"), running.clone()],
            Some(2),
        ),
        (
            "server",
            &[running.clone(), settled("unknown"), settled("output")],
            Some(2),
        ),
        (
            "server",
            &[running.clone(), settled("unknown"), running.clone()],
            Some(2),
        ),
        // A remote server may run what it has answered with a placeholder.
        (
            "remote",
            &[running.clone(), settled("output"), running.clone()],
            None,
        ),
    ];
    let store = home.open().await.unwrap();
    for (n, (runs_on, states, refused)) in cases.into_iter().enumerate() {
        let id = format!("chat-{n}").into();
        let chat = ChatRef {
            user: &UserId::literal("alice"),
            id: &id,
        };
        store.create_chat(chat, at(1)).await.unwrap();
        for (step, state) in states.iter().enumerate() {
            let mut call = call("call-1", state.clone(), None);
            call["runsOn"] = json!(runs_on);
            let done = store
                .commit(
                    chat,
                    &record("m1", "", json!([call]), json!({})),
                    &[],
                    at(2),
                )
                .await;
            if refused == Some(step) {
                assert_eq!(conflict(done), "the tool of call call-1 has run already");
            } else {
                done.unwrap();
            }
        }
    }
}

pub(crate) async fn are_checkpointed(home: &impl Home) {
    let store = with_chat(home).await;
    let unknown = store.checkpoint(CHAT, &reply("m1", "")).await;
    assert_eq!(missing(unknown), "no such message");
    store
        .append(CHAT, &[user("m0", "hi")], Cut::Nothing, at(1))
        .await
        .unwrap();
    missing(store.checkpoint(CHAT, &reply("m0", "over the user")).await);

    store
        .commit(CHAT, &reply("m1", ""), &[], at(1_500))
        .await
        .unwrap();
    for text in ["once", "once upon", "once upon a time"] {
        store.checkpoint(CHAT, &reply("m1", text)).await.unwrap();
        assert_eq!(open_reply(&*store).await, Some(reply("m1", text)));
    }
    assert_eq!(store.chat(CHAT).await.unwrap().unwrap().updated, at(1_500));
    drop(store);
    let store = home.open().await.unwrap();
    assert_eq!(
        open_reply(&*store).await,
        Some(reply("m1", "once upon a time"))
    );
    assert_eq!(shown(&*store).await, ["m0", "m1"]);
}

pub(crate) async fn grow_between_checkpoints(home: &impl Home) {
    let store = with_chat(home).await;
    let grown = |texts: Vec<Growth>| GrownReply {
        user: CHAT.user.clone(),
        chat_id: CHAT.id.clone(),
        epoch: None,
        message_id: M1.clone(),
        texts,
    };
    store
        .commit(CHAT, &reply("m1", "once"), &[], at(1))
        .await
        .unwrap();
    let whole = store.history_size(CHAT).await.unwrap();
    let mut extent = Extent::of(&reply("m1", "once").message);
    let mut all = Vec::new();
    for text in [
        "once upon",
        "once upon \"a\" \0 time",
        "once upon \"a\" \0 time ü\u{10FFFE}",
    ] {
        let piece = grown(extent.grow(&reply("m1", text).message).unwrap());
        all.push(piece.clone());
        // A statement may be repeated.
        for _ in 0..2 {
            store
                .grow_replies(std::slice::from_ref(&piece))
                .await
                .unwrap();
        }
        assert_eq!(open_reply(&*store).await, Some(reply("m1", text)));
    }
    store.grow_replies(&all).await.unwrap();
    // Memory is reserved for a reply as it is loaded.
    let grown_size = store.history_size(CHAT).await.unwrap();
    let added = " upon \"a\" \0 time ü\u{10FFFE}".len();
    assert!(grown_size.bytes >= whole.bytes + added, "{grown_size:?}");
    assert!(
        grown_size.largest >= whole.largest + added,
        "{grown_size:?}"
    );
    drop(store);
    let store = home.open().await.unwrap();
    let last = reply("m1", "once upon \"a\" \0 time ü\u{10FFFE}");
    assert_eq!(open_reply(&*store).await, Some(last.clone()));

    // What is stored whole has it all, and pieces that come late change nothing.
    let whole = reply("m1", "once upon a midnight");
    store.checkpoint(CHAT, &whole).await.unwrap();
    store.grow_replies(&all).await.unwrap();
    assert_eq!(open_reply(&*store).await, Some(whole));

    // Nobody else has them.
    let (other, gone) = (UserId::literal("bob"), ChatId::literal("gone"));
    let mut elsewhere = vec![all[0].clone(), all[0].clone(), all[0].clone()];
    elsewhere[0].user = other;
    elsewhere[1].chat_id = gone;
    elsewhere[2].message_id = M9.clone();
    store.grow_replies(&elsewhere).await.unwrap();
    store
        .commit(CHAT, &finished("m1", "The end"), &[], at(2))
        .await
        .unwrap();
    store.grow_replies(&all).await.unwrap();
    store.grow_replies(&[]).await.unwrap();
    let stored = store.reply(CHAT, M1).await.unwrap();
    assert_eq!(stored, Some(finished("m1", "The end")));
}

/// A commit whose caller goes away in the middle is there whole or not at all, and the next one works.
pub(crate) async fn survive_being_given_up(home: &impl Home) {
    let store = with_chat(home).await;
    store
        .commit(CHAT, &reply("m1", "0"), &[], at(1))
        .await
        .unwrap();
    let mut rows = 0;
    for polls in 1..60 {
        let text = polls.to_string();
        let entry = [audit(AuditKind::ToolStarted, &text)];
        let record = reply("m1", &text);
        {
            let mut commit = pin!(store.commit(CHAT, &record, &entry, at(1)));
            for _ in 0..polls {
                let mut context = Context::from_waker(Waker::noop());
                if commit.as_mut().poll(&mut context).is_ready() {
                    break;
                }
                // Lets the database get somewhere between two looks.
                store.chat(CHAT).await.unwrap();
            }
        }
        // Waits for whatever became of it.
        store.set_title(CHAT, &text).await.unwrap();
        let audit = store.audit(CHAT, AuditPage::default()).await.unwrap();
        let written = open_reply(&*store).await == Some(record);
        assert_eq!(audit.len(), rows + usize::from(written));
        rows = audit.len();
    }
    store
        .commit(CHAT, &finished("m1", "end"), &[], at(1))
        .await
        .unwrap();
}

/// A call that a human has decided, or is asked to.
fn decided(id: &str, approval: Value) -> Value {
    let state = match approval["state"].as_str() {
        Some("requested") => "asked",
        _ => "decided",
    };
    call(id, json!({"is": state}), Some(approval))
}
