//! Answers that nobody reads, and answers that grow by files which are named again and again.

use futures_util::future::join_all;
use serde_json::json;

use crate::rig::{ALICE, MB, Rig, message, picture, text};
use crate::support::http::Connection;

/// What one answer, stream or model request may hold of files, as base64, and some room for the rest.
const INLINE: usize = 21 * MB;

/// The address of a picture of 6 MB, which stands 60 times in an answer of a chat.
async fn named_often(rig: &Rig) -> String {
    let url = rig.upload("amp", 6 * MB).await;
    let body = json!({"id": "amp", "messages": [
        message("u1", "user", vec![text("draw")]),
        message("a1", "assistant", vec![picture(&url); 60]),
        message("u2", "user", vec![text("say Thanks.")]),
    ]});
    assert_eq!(rig.post(&body).await.status, 200);
    url
}

#[tokio::test]
async fn a_file_that_is_named_often_is_shown_as_often_as_fits() {
    let mut rig = Rig::start("").await;
    let url = named_often(&rig).await;
    let read = rig.read();
    let answer = rig.get("/api/chats/amp?dialect=adk").await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.len() < INLINE, "{}", answer.body.len());
    assert!(rig.read() - read < 10 * MB, "{}", rig.read() - read);
    let chat = answer.json();
    let parts = chat["messages"][1]["parts"].as_array().unwrap();
    let images: Vec<_> = parts
        .iter()
        .filter(|part| part["type"] == "data-image")
        .collect();
    assert_eq!(images.len(), 60);
    let whole = images
        .iter()
        .filter(|image| image["data"]["data"].is_string());
    assert_eq!(whole.count(), 2);
    let named = images
        .iter()
        .filter(|image| image["data"]["url"] == json!(url));
    assert_eq!(named.count(), 58);

    // A stream that brings the same message to a client that has nothing of it.
    let body = json!({"id": "amp", "dialect": "adk", "messages": [message("a1", "assistant", vec![text("")])]});
    let answer = rig.post(&body).await;
    assert_eq!(answer.status, 200);
    assert!(answer.body.len() < INLINE, "{}", answer.body.len());
    let stream = String::from_utf8(answer.body).unwrap();
    assert_eq!(stream.matches("\"data-image\"").count(), 60);
    assert!(rig.peak() < 250 * MB, "{} MB", rig.peak() / MB);
    rig.recovers().await;
}

#[tokio::test]
async fn many_who_ask_for_it_at_once_are_served_or_refused() {
    let mut rig = Rig::start("unread_bytes_per_user = 40000000").await;
    named_often(&rig).await;
    let asked = join_all((0..5).map(|_| rig.get("/api/chats/amp?dialect=adk"))).await;
    rig.serves_bob().await;
    let served = asked.iter().filter(|answer| answer.status == 200).count();
    assert!(served > 0);
    for answer in asked.iter().filter(|answer| answer.status != 200) {
        assert_eq!(answer.status, 429);
        assert!(answer.message().contains("limits.unread_bytes_per_user"));
        assert!(answer.header("retry-after").is_some());
    }
    assert!(rig.peak() < 300 * MB, "{} MB", rig.peak() / MB);
    rig.recovers().await;
}

#[tokio::test]
async fn a_file_that_is_named_often_is_read_once_for_the_model() {
    let mut rig = Rig::start("").await;
    let url = rig.upload("amp", 5 * MB).await;
    let mut parts = vec![picture(&url); 100];
    parts.push(text("say Seen."));
    let read = rig.read();
    let body = json!({"id": "amp", "messages": [message("u1", "user", parts)]});
    let answer = rig.post(&body).await;
    assert_eq!(answer.status, 200);
    // The scripted model reads its request, with three of the copies, in the same process.
    assert!(rig.read() - read < 60 * MB, "{}", rig.read() - read);
    assert!(rig.peak() < 400 * MB, "{} MB", rig.peak() / MB);
    rig.recovers().await;
}

#[tokio::test]
async fn answers_that_nobody_reads_are_bounded_and_given_up() {
    let mut rig = Rig::start("write_stall = \"3s\"\nunread_bytes_per_user = 25000000").await;
    for post in 0..3 {
        let stored = json!({"type": "data-x", "data": "x".repeat(2 * MB)});
        let said = message(&format!("u{post}"), "user", vec![text("say Yes."), stored]);
        let body = json!({"id": "long", "messages": [said]});
        assert_eq!(rig.post(&body).await.status, 200);
    }
    let mut asked: Vec<Connection> = Vec::new();
    for _ in 0..20 {
        asked.push(rig.begin("GET", "/api/chats/long", &[ALICE]).await);
    }
    rig.serves_bob().await;
    let mut unread = Vec::new();
    let mut refused = 0;
    for connection in asked {
        let answer = Rig::head(connection).await;
        match answer.status {
            200 => unread.push(answer),
            status => {
                assert_eq!(status, 429);
                assert!(answer.header("retry-after").is_some());
                refused += 1;
            }
        }
    }
    assert!(!unread.is_empty() && refused > 0, "{refused} refused");
    assert!(rig.peak() < 150 * MB, "{} MB", rig.peak() / MB);
    // They are let go although their clients are there.
    rig.recovers().await;
    while rig.get("/api/chats/long").await.status == 429 {}
    drop(unread);
}
