//! Long chats: many that are answered at once, many with a live client that only listens, and one that is read.

use serde_json::{Value, json};
use sqlx::Connection as _;

use crate::client::Client;
use crate::rig::{ALICE, MB, Rig, message, text};
use crate::support::http::{Answer, Connection};
use crate::support::{JSON, folded, text_of};

/// Nearly the largest message that is taken.
const LONG: usize = 15 * MB;

/// Sends a long message that says something at its end. The answer is not looked at.
async fn begin_long(rig: &Rig, chat: &str, says: &str, filling: &[u8]) -> Connection {
    let before = format!(
        r#"{{"id":"{chat}","messages":[{{"id":"u-{chat}","role":"user","parts":[{{"type":"data-x","data":""#
    );
    let after = format!(r#""}},{{"type":"text","text":"{says}"}}]}}]}}"#);
    let length = (before.len() + filling.len() + after.len()).to_string();
    let headers = [JSON, ALICE, ("content-length", length.as_str())];
    let mut connection = rig.begin("POST", "/api/chat", &headers).await;
    for piece in [before.as_bytes(), filling, after.as_bytes()] {
        assert!(connection.write(piece).await);
    }
    connection
}

/// Writes a long message as often as it takes until there is room for it.
async fn write_long(rig: &Rig, chat: &str, filling: &[u8]) {
    loop {
        let connection = begin_long(rig, chat, "say Kept.", filling).await;
        let answer = connection.answer("POST").await.whole().await;
        match answer.status {
            200 => return,
            status => assert_eq!((status, answer.code().as_str()), (429, "too_many")),
        }
    }
}

#[tokio::test]
async fn long_messages_at_once_are_answered_or_refused_before_they_begin() {
    const CHATS: usize = 10;
    let mut rig = Rig::start("").await;
    let filling = vec![b'w'; LONG];
    let (mut taken, mut refused): (Vec<(String, Answer)>, usize) = (Vec::new(), 0);
    for number in 0..CHATS {
        let chat = format!("c{number}");
        // It is answered until it is stopped.
        let connection = begin_long(&rig, &chat, "long 1000000", &filling).await;
        let answer = connection.answer("POST").await;
        if answer.status == 200 {
            taken.push((chat, answer));
            continue;
        }
        assert!(answer.header("retry-after").is_some());
        let answer = answer.whole().await;
        assert_eq!((answer.status, answer.code().as_str()), (429, "too_many"));
        let said = answer.message();
        assert!(said.contains("limits.loaded_bytes_per_user"), "{said}");
        let path = format!("/api/chats/{chat}");
        assert_eq!(rig.get(&path).await.status, 404);
        refused += 1;
        if refused == 1 {
            rig.serves_bob().await;
        }
    }
    assert!(refused > 0 && taken.len() > 1, "{refused} are refused");
    assert!(rig.peak() < 600 * MB, "{} MB", rig.peak() / MB);
    for (chat, mut answer) in taken {
        let path = format!("/api/chat/{chat}/stop");
        let stopped = rig.bridge.send("POST", &path, &[ALICE], "").await;
        assert_eq!(stopped.status, 204);
        assert!(text_of(&folded(&answer.events().await)).starts_with("word1 "));
    }
    // There is room again.
    write_long(&rig, "next", &filling).await;
    rig.recovers().await;
}

#[tokio::test]
async fn idle_live_clients_of_long_chats_hold_nothing() {
    const CHATS: usize = 12;
    let mut rig = Rig::start("\n[live]\nheartbeat = \"10m\"").await;
    let filling = vec![b'w'; LONG];
    for number in 0..CHATS {
        write_long(&rig, &format!("c{number}"), &filling).await;
    }
    rig.recovers().await;
    rig.bridge.forget_peak();
    let mut listening = Vec::new();
    for number in 0..CHATS {
        let path = format!("/live?chat=c{number}");
        let (head, client) = Client::try_open(&rig.bridge, &path, &[ALICE]).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        listening.push(client);
    }
    for client in &mut listening {
        client.check_alive().await;
    }
    rig.serves_bob().await;
    assert!(rig.peak() < 100 * MB, "{} MB", rig.peak() / MB);
    // They are still there, and so are their chats.
    rig.recovers().await;
    let client = &mut listening[CHATS - 1];
    client
        .send(
            json!({"type": "message", "id": format!("c{}", CHATS - 1), "messages": [
            message("u2", "user", vec![text("say Still here.")])]}),
        )
        .await;
    let (_, chunks) = client.turn().await;
    let said: String = chunks
        .iter()
        .filter_map(|it| it["delta"].as_str())
        .collect();
    assert_eq!(said, "Still here.");
    rig.recovers().await;
}

/// A chat of 200 MB, as an earlier version may have left it.
async fn fill(rig: &Rig, chat: &str, messages: usize) {
    let body = json!({"id": chat, "messages": [message("u0", "user", vec![text("say Begun.")])]});
    assert_eq!(rig.post(&body).await.status, 200);
    let database = rig.bridge.directory.path().join("data/adk-bridge.db");
    let url = format!("sqlite:{}", database.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    for number in 0..messages {
        let long = message(&format!("m{number}"), "user", vec![text(&"w".repeat(LONG))]);
        sqlx::query(
            "INSERT INTO messages (chat, id, state, body)
             SELECT key, ?1, 'done', ?2 FROM chats WHERE id = ?3",
        )
        .bind(format!("m{number}"))
        .bind(long.to_string())
        .bind(chat)
        .execute(&mut connection)
        .await
        .unwrap();
    }
    connection.close().await.unwrap();
}

#[tokio::test]
async fn a_chat_of_any_length_is_read_and_one_that_is_too_long_is_not_loaded() {
    const MESSAGES: usize = 12;
    let mut rig = Rig::start("").await;
    fill(&rig, "long", MESSAGES).await;
    rig.bridge.forget_peak();
    let connection = rig.begin("GET", "/api/chats/long", &[ALICE]).await;
    let mut answer = Rig::head(connection).await;
    assert_eq!(answer.status, 200);
    assert_eq!(answer.header("content-type"), Some("application/json"));
    let (mut bytes, mut others) = (0, Vec::new());
    while let Some(piece) = answer.piece().await {
        bytes += piece.len();
        others.extend(piece.into_iter().filter(|byte| *byte != b'w'));
        if bytes > LONG && others.len() < 1_000 {
            rig.serves_bob().await;
        }
    }
    assert!(bytes > MESSAGES * LONG);
    let chat: Value = serde_json::from_slice(&others).unwrap();
    let messages = chat["messages"].as_array().unwrap();
    assert_eq!(messages.len(), MESSAGES + 2);
    let ids: Vec<_> = messages[2..].iter().map(|it| it["id"].clone()).collect();
    let expected: Vec<_> = (0..MESSAGES).map(|n| json!(format!("m{n}"))).collect();
    assert_eq!(ids, expected);
    assert!(rig.peak() < 150 * MB, "{} MB", rig.peak() / MB);

    // A client that sends another message gets an error that says what to do, and nothing is loaded for that.
    let on = json!({"id": "long", "messages": [message("u9", "user", vec![text("say More.")])]});
    let refused = rig.post(&on).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (422, "chat_full")
    );
    assert!(refused.message().contains("limits.chat_bytes"));
    let path = "/live?chat=long";
    let (head, mut client) = Client::try_open(&rig.bridge, path, &[ALICE]).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client.closed().await;
    assert!(rig.peak() < 150 * MB, "{} MB", rig.peak() / MB);
    let path = "/api/chats/long";
    let deleted = rig.bridge.send("DELETE", path, &[ALICE], "").await;
    assert_eq!(deleted.status, 204);
    rig.recovers().await;
}
