//! Posts that bring nothing new, again and again: each is held longer, and only so many at once.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::{Bridge, JSON};

const PAYMENT: &str = r#"call process_payment {"amount": 5, "recipient": "Hanako"}"#;
/// How many may be held in one chat.
const AT_ONCE: usize = 32;
/// How long the first posts are held, one after the other.
const HOLDS: [u64; 4] = [250, 500, 1000, 2000];

/// A request with all that the server has of a chat, and nothing else.
async fn without_news(bridge: &Bridge, chat: &str) -> Value {
    let shown = bridge.get(&format!("/api/chats/{chat}")).await.json();
    json!({"id": chat, "messages": shown["messages"]})
}

async fn post_until_it_takes_seconds(bridge: &Bridge, body: &Value) {
    for least in HOLDS {
        let began = Instant::now();
        assert_eq!(bridge.post("/api/chat", body).await.status, 200);
        let took = began.elapsed();
        assert!(took >= Duration::from_millis(least), "{least}: {took:?}");
    }
}

/// A chat whose answer has ended is not forgotten between two posts of a front end that goes on and on.
#[tokio::test]
async fn each_post_to_an_ended_reply_is_held_longer() {
    let bridge = Bridge::start();
    bridge.ask("ended", "say hi").await.events().await;
    let body = without_news(&bridge, "ended").await;
    post_until_it_takes_seconds(&bridge, &body).await;
    let began = Instant::now();
    assert_eq!(bridge.post("/api/chat", &body).await.status, 200);
    let took = began.elapsed();
    assert!(took >= Duration::from_secs(4), "{took:?}");
}

/// The same bound for a message that waits as for one that has ended; an answer comes through.
#[tokio::test]
async fn only_so_many_posts_without_news_are_held() {
    for asked in [PAYMENT, "say hi"] {
        let bridge = Bridge::start();
        bridge.ask("c", asked).await.events().await;
        let body = without_news(&bridge, "c").await;
        post_until_it_takes_seconds(&bridge, &body).await;
        let mut held = Vec::new();
        for _ in 0..AT_ONCE {
            let text = body.to_string();
            let answer = bridge.open("POST", "/api/chat", &[JSON], &text).await;
            assert_eq!(answer.status, 200, "{asked}");
            held.push(answer);
        }
        let refused = bridge.post("/api/chat", &body).await;
        assert_eq!(
            (refused.status, refused.code()),
            (429, "too_many".into()),
            "{asked}"
        );
        assert!(refused.header("retry-after").is_some(), "{asked}");
        if asked == PAYMENT {
            let mut answered = body.clone();
            let part = &mut answered["messages"][1]["parts"][1];
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(true);
            assert_eq!(bridge.post("/api/chat", &answered).await.status, 200);
            let paid = bridge.settled_message("c").await;
            assert_eq!(paid["parts"][1]["state"], "output-available", "{paid}");
        }
    }
}
