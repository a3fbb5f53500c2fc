//! Clients that are slow, absent, many, or leave: nobody loses a chunk, and nobody costs the others anything.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Bridge, JSON, asking, folded, text_of, types, within, words};

/// What a client that never reads may cost while a long answer runs. Half of it would be the whole stream.
const MAX_GROWTH: usize = 30 * 1024 * 1024;
const LONG: usize = 20_000;
/// Enough to fill every buffer on the way.
const SLOWLY: usize = 10_000;

#[tokio::test]
async fn a_client_that_does_not_read_costs_little_and_holds_nobody_up() {
    let bridge = Bridge::start();
    bridge.ask("warm", "long 100").await.events().await;
    let before = bridge.memory();
    let mut silent = bridge.ask("unread", &format!("long {LONG}")).await;
    // Nothing but the head is read there. Another client of the same chat sets the pace.
    let mut other = bridge.resume("unread").await;
    assert_eq!(other.status, 200);
    let events = other.events().await;
    let message = folded(&events);
    assert!(
        text_of(&message) == words(LONG),
        "words are missing or out of order"
    );
    let grown = bridge.memory().saturating_sub(before);
    eprintln!("memory grew by {} KiB", grown / 1024);
    assert!(grown < MAX_GROWTH, "{grown} bytes");
    assert_eq!(message, bridge.last_message("unread").await);
    // It reads after all, and misses nothing.
    assert_eq!(folded(&silent.events().await), message);
}

#[tokio::test]
async fn a_slow_reader_gets_every_chunk_once() {
    let bridge = Bridge::start();
    let mut answer = bridge.ask("slowly", &format!("long {SLOWLY}")).await;
    let mut events = Vec::new();
    while let Some(event) = answer.event().await {
        events.push(event);
        if events.len() % 50 == 0 {
            // Slower than the agent speaks.
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
    let message = folded(&events);
    assert!(text_of(&message) == words(SLOWLY));
    assert_eq!(message, bridge.last_message("slowly").await);
}

/// The other dialect holds text back while anything may still be asked, and sends what its projection shows.
#[tokio::test]
async fn readers_of_the_other_dialect_have_what_is_stored_too() {
    let bridge = Bridge::start();
    let mut request = asking("adk", "call roll_dice {\"sides\": 6} then slow 6");
    request["dialect"] = json!("adk");
    let mut first = bridge
        .open("POST", "/api/chat", &[JSON], &request.to_string())
        .await;
    let mut events = first.events_until("tool-input-available").await;
    let path = "/api/chat/adk/stream?dialect=adk";
    let mut second = bridge.open("GET", path, &[], "").await;
    let mut native = bridge.resume("adk").await;
    let (rest, second, native) = tokio::join!(first.events(), second.events(), native.events());
    events.extend(rest);
    let chat = bridge.get("/api/chats/adk?dialect=adk").await.json();
    let message = &chat["messages"][1];
    assert!(text_of(message).ends_with(&words(6)), "{message}");
    for events in [events, second] {
        assert_eq!(&folded(&events), message);
    }
    assert_eq!(folded(&native), bridge.last_message("adk").await);
}

#[tokio::test]
async fn what_is_being_streamed_comes_by_resume_only() {
    let bridge = Bridge::start();
    let mut answer = bridge.ask("half", "slow 1000").await;
    answer.events_until("word2 ").await;
    let message = bridge.last_message("half").await;
    assert_eq!(message["role"], "user");
    let mut resumed = bridge.resume("half").await;
    let events = resumed.events_until("word2 ").await;
    assert_eq!(types(&events)[0], "start");
}

#[tokio::test]
async fn an_answer_that_grows_too_long_ends_by_length() {
    let bridge = Bridge::configured("[server]\nmax_answer_bytes = 20000\n");
    let events = bridge.ask("much", "long 100000").await.events().await;
    let finish: Value = serde_json::from_str(&events[events.len() - 2]).unwrap();
    assert_eq!(finish["finishReason"], "length", "{finish}");
    let message = folded(&events);
    let text = text_of(&message);
    // The word that passes the limit is the last.
    assert!((20_000..20_020).contains(&text.len()), "{}", text.len());
    assert_eq!(message, bridge.last_message("much").await);
}

#[tokio::test]
async fn who_leaves_loses_nothing() {
    let bridge = Bridge::start();
    let mut answer = bridge.ask("left", &format!("long {SLOWLY}")).await;
    answer.events_until("word10 ").await;
    drop(answer);
    let message = bridge.settled_message("left").await;
    assert!(text_of(&message) == words(SLOWLY));
    assert_eq!(bridge.resume("left").await.status, 204);
}

#[tokio::test]
async fn stop_ends_the_turn_and_keeps_what_was_said() {
    let bridge = Bridge::start();
    let mut answer = bridge.ask("stopped", "slow 1000").await;
    let mut second = bridge.resume("stopped").await;
    let mut events = answer.events_until("word3 ").await;
    let stop = bridge.send("POST", "/api/chat/stopped/stop", &[], "").await;
    assert_eq!((stop.status, stop.body.len()), (204, 0));
    events.extend(answer.events().await);
    assert_eq!(
        types(&events)[types(&events).len() - 2..],
        ["abort", "[DONE]"]
    );
    let message = bridge.last_message("stopped").await;
    assert_eq!(message["metadata"]["ended"], "stopped", "{message}");
    assert!(
        text_of(&message).starts_with("word1 word2 word3"),
        "{message}"
    );
    assert_eq!(folded(&events), message);
    assert_eq!(folded(&second.events().await), message);
    // The chat goes on.
    let events = bridge.ask("stopped", "say on").await.events().await;
    assert_eq!(text_of(&folded(&events)), "on");
}

#[tokio::test]
async fn two_posts_at_once_to_one_chat_both_come_to_an_end() {
    let bridge = Bridge::start();
    let (mut first, mut second) = tokio::join!(
        bridge.ask("twice", "long 3000"),
        bridge.ask("twice", "long 3000")
    );
    let (one, two) = tokio::join!(first.events(), second.events());
    let ends: Vec<String> = [&one, &two]
        .into_iter()
        .map(|events| {
            let types = types(events);
            assert_eq!(types.last().map(String::as_str), Some("[DONE]"));
            types[types.len() - 2].clone()
        })
        .collect();
    assert!(ends.contains(&"finish".to_owned()), "{ends:?}");
    let chat = bridge.get("/api/chats/twice").await.json();
    let roles: Vec<&str> = chat["messages"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|message| message["role"].as_str())
        .collect();
    assert_eq!(
        roles.iter().filter(|role| **role == "user").count(),
        2,
        "{roles:?}"
    );
    assert_eq!(roles.last(), Some(&"assistant"));
    assert!(text_of(&bridge.last_message("twice").await) == words(3000));
}

#[tokio::test]
async fn three_resume_at_once_and_all_have_the_same() {
    let bridge = Bridge::start();
    let mut answer = bridge.ask("shared", "slow 12").await;
    let mut events = answer.events_until("word2 ").await;
    let (mut one, mut two, mut three) = tokio::join!(
        bridge.resume("shared"),
        bridge.resume("shared"),
        bridge.resume("shared")
    );
    let (rest, one, two, three) =
        tokio::join!(answer.events(), one.events(), two.events(), three.events());
    events.extend(rest);
    let message = bridge.last_message("shared").await;
    assert_eq!(text_of(&message), words(12));
    for events in [events, one, two, three] {
        assert_eq!(folded(&events), message);
    }
}

#[tokio::test]
async fn a_chat_can_be_deleted_while_it_is_answered() {
    let bridge = Bridge::start();
    let mut answer = bridge.ask("gone", "slow 1000").await;
    answer.events_until("word2 ").await;
    let deleted = bridge.send("DELETE", "/api/chats/gone", &[], "").await;
    assert_eq!(deleted.status, 204);
    let events = answer.events().await;
    assert_eq!(events.last().map(String::as_str), Some("[DONE]"));
    assert_eq!(bridge.get("/api/chats/gone").await.status, 404);
    assert_eq!(bridge.resume("gone").await.status, 204);
    let events = bridge.ask("gone", "say new").await.events().await;
    assert_eq!(text_of(&folded(&events)), "new");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_chats_stream_at_once() {
    const CHATS: usize = 200;
    const WORDS: usize = 200;
    let bridge = std::sync::Arc::new(Bridge::start());
    // Everybody has asked before anybody reads on: all of them stream at once.
    let all_asked = std::sync::Arc::new(tokio::sync::Barrier::new(CHATS));
    let clients: Vec<_> = (0..CHATS)
        .map(|number| {
            let (bridge, all_asked) = (bridge.clone(), all_asked.clone());
            tokio::spawn(async move {
                let chat = format!("chat{number}");
                let mut answer = bridge.ask(&chat, &format!("long {WORDS}")).await;
                assert_eq!(answer.status, 200);
                within(all_asked.wait()).await;
                let events = answer.events().await;
                let types = types(&events);
                assert_eq!(types[types.len() - 2..], ["finish", "[DONE]"]);
                let message = folded(&events);
                assert_eq!(text_of(&message), words(WORDS), "{chat}");
                message
            })
        })
        .collect();
    for (number, client) in clients.into_iter().enumerate() {
        let message = client.await.unwrap();
        let stored = bridge.last_message(&format!("chat{number}")).await;
        assert_eq!(stored, message);
    }
}

/// What a stock client does whose connection broke in the middle: it has a part of the message and posts again.
#[tokio::test]
async fn the_same_words_again_get_a_new_answer_and_are_not_doubled() {
    let bridge = Bridge::start();
    let mut request = asking("again", "long 50");
    request["messages"][0]["id"] = json!("mine");
    for _ in 0..3 {
        let events = bridge
            .open("POST", "/api/chat", &[JSON], &request.to_string())
            .await
            .events()
            .await;
        assert_eq!(text_of(&folded(&events)), words(50));
    }
    let chat = bridge.get("/api/chats/again").await.json();
    let ids: Vec<&Value> = chat["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| &message["role"])
        .collect();
    assert_eq!(ids, ["user", "assistant"]);
}
