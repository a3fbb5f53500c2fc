//! Who may open a WebSocket: keys, tickets, origins, how many, and what is no handshake at all.

use serde_json::json;

use crate::client::{CLOSE, Client, FIN, TEXT, reason};
use crate::support::users::{ALICE, BOB};
use crate::support::{Bridge, JSON, asking, folded, text_of};

const KEYS: &str = "
[server]
allowed_origins = [\"https://app.example\"]
max_sockets = 2
[[auth.api_keys]]
key = \"alice-secret-0123456789\"
user = \"alice\"
[[auth.api_keys]]
key = \"bob-secret-9876543210\"
user = \"bob\"
";
const PAGE: (&str, &str) = ("origin", "https://app.example");
const ENDPOINTS: [&str; 3] = ["/live", "/api/chat/ws", "/api/chat"];

async fn ticket(bridge: &Bridge, key: (&str, &str)) -> String {
    let response = bridge.send("POST", "/api/ticket", &[key], "").await;
    assert_eq!(response.status, 200);
    assert_eq!(response.header("cache-control"), Some("no-store"));
    response.json()["ticket"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_program_brings_its_key_and_a_page_its_ticket() {
    let bridge = Bridge::configured(KEYS);
    let refused = bridge.send("POST", "/api/ticket", &[], "").await;
    assert_eq!(refused.status, 401);
    for endpoint in ENDPOINTS {
        let (head, client) = Client::try_open(&bridge, endpoint, &[ALICE]).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        client.leave().await;

        let (head, _) = Client::try_open(&bridge, endpoint, &[]).await;
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");
        let path = format!("{endpoint}?ticket=nonsense");
        let (head, _) = Client::try_open(&bridge, &path, &[]).await;
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");

        // A page is not shown a status, only a code.
        let path = format!("{endpoint}?ticket={}", ticket(&bridge, ALICE).await);
        let (head, client) = Client::try_open(&bridge, &path, &[PAGE]).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        client.leave().await;
        let (head, mut again) = Client::try_open(&bridge, &path, &[PAGE]).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        assert_eq!(again.closed().await.0, 4401, "a ticket is used once");
    }
    assert!(!bridge.log().contains("ticket="), "{}", bridge.log());
}

#[tokio::test]
async fn a_ticket_is_for_its_user() {
    let bridge = Bridge::configured(KEYS);
    let (_, mut hers) = Client::try_open(&bridge, "/live?chat=hers", &[ALICE]).await;
    hers.say("say mine").await;
    hers.turn().await;
    let path = format!("/live?chat=hers&ticket={}", ticket(&bridge, BOB).await);
    let (_, mut his) = Client::try_open(&bridge, &path, &[PAGE]).await;
    his.say("say mine too").await;
    his.turn().await;
    hers.say("say still here").await;
    hers.turn().await;
    // Each has a chat of that id, and nothing of the other's.
    for (key, messages) in [(ALICE, 4), (BOB, 2)] {
        let shown = bridge.send("GET", "/api/chats/hers", &[key], "").await;
        let shown = shown.json()["messages"].as_array().unwrap().len();
        assert_eq!(shown, messages, "{key:?}");
    }
}

/// On the stock transport too, a chat that somebody else has is as free as any other.
#[tokio::test]
async fn a_running_turn_is_its_users() {
    let bridge = Bridge::configured(KEYS);
    let frame = |kind: &str, chat: &str, text: &str| {
        json!({
            "type": kind, "requestId": "r", "id": chat, "trigger": "submit-message",
            "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]}],
            "headers": {}, "body": {},
        })
    };
    let (_, mut hers) = Client::try_open(&bridge, "/api/chat/ws", &[ALICE]).await;
    hers.send(frame("send", "taken", "slow 1000")).await;
    while !hers.json().await.to_string().contains("word1 ") {}
    let (_, mut his) = Client::try_open(&bridge, "/api/chat/ws", &[BOB]).await;
    let mut resumed = Vec::new();
    for chat in ["taken", "fresh"] {
        his.send(frame("resume", chat, "")).await;
        resumed.push(his.json().await);
    }
    assert_eq!(resumed[0], resumed[1]);
    for chat in ["taken", "fresh"] {
        his.send(frame("send", chat, "say mine")).await;
        let mut said = String::new();
        loop {
            let frame = his.json().await;
            said += frame["chunk"]["delta"].as_str().unwrap_or_default();
            if frame["type"] == "end" {
                break;
            }
        }
        assert_eq!(said, "mine", "{chat}");
    }
    while !hers.json().await.to_string().contains("word3 ") {}
}

#[tokio::test]
async fn pages_elsewhere_and_hosts_elsewhere_are_refused() {
    let bridge = Bridge::configured("[server]\nallowed_origins = [\"https://app.example\"]");
    let own = format!("http://{}", bridge.address);
    for endpoint in ENDPOINTS {
        for (headers, status) in [
            (vec![], 101),
            (vec![("origin", own.as_str())], 101),
            (vec![PAGE], 101),
            (vec![("origin", "https://app.example.evil")], 403),
            (vec![("origin", "null")], 403),
            // Behind the proxy of a local page; the same page straight across says so.
            (vec![("origin", "http://127.0.0.1:1")], 101),
            (
                vec![
                    ("origin", "http://127.0.0.1:1"),
                    ("sec-fetch-site", "same-site"),
                ],
                403,
            ),
            (vec![("x-forwarded-for", "::1")], 101),
            (vec![("x-forwarded-for", "203.0.113.9")], 403),
            (vec![("forwarded", "for=203.0.113.9")], 403),
            (vec![("x-forwarded-host", "rebound.example")], 403),
            (vec![("host", "rebound.example")], 403),
        ] {
            let (head, _) = Client::try_open(&bridge, endpoint, &headers).await;
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status}")),
                "{endpoint} {headers:?} {head}"
            );
        }
    }
}

#[tokio::test]
async fn a_user_has_so_many_and_no_more() {
    let bridge = Bridge::configured(KEYS);
    let mut open = Vec::new();
    for endpoint in &ENDPOINTS[..2] {
        open.push(Client::try_open(&bridge, endpoint, &[ALICE]).await.1);
    }
    let (_, mut third) = Client::try_open(&bridge, "/live", &[ALICE]).await;
    assert_eq!(third.closed().await.0, 4429);
    let (_, mut his) = Client::try_open(&bridge, "/live?chat=his", &[BOB]).await;
    his.check_alive().await;
    open.pop().unwrap().leave().await;
    let (_, mut fourth) = Client::try_open(&bridge, "/live?chat=hers", &[ALICE]).await;
    fourth.check_alive().await;
}

/// Opens a socket of Alice's; none where it is closed because she has too many.
async fn another_of_alice(bridge: &Bridge) -> Option<Client> {
    let (_, mut client) = Client::try_open(bridge, "/live", &[ALICE]).await;
    // One that is closed may not take it.
    let ping = json!({"type": "ping", "timestamp": "there?"}).to_string();
    client.frame(FIN | TEXT, ping.as_bytes()).await;
    let frame = client.next().await.expect("an answer");
    if frame.head == FIN | CLOSE {
        assert_eq!(reason(&frame).0, 4429);
        return None;
    }
    Some(client)
}

/// Bob is served over HTTP and `/live`, and whoever watches the server learns how it is.
async fn assert_serves_bob(bridge: &Bridge) {
    for path in ["/health", "/ready"] {
        assert_eq!(bridge.get(path).await.status, 200, "{path}");
    }
    let body = asking("his", "say hi").to_string();
    let mut answer = bridge.open("POST", "/api/chat", &[JSON, BOB], &body).await;
    assert_eq!(answer.status, 200);
    assert_eq!(text_of(&folded(&answer.events().await)), "hi");
    let (_, mut his) = Client::try_open(bridge, "/live?chat=spoken", &[BOB]).await;
    his.check_alive().await;
}

#[tokio::test]
async fn one_users_sockets_leave_connections_for_others() {
    let keys = KEYS.replace("max_sockets = 2", "");
    let bridge = Bridge::with_files(&keys, 256);
    let mut open = Vec::new();
    while let Some(client) = another_of_alice(&bridge).await {
        open.push(client);
        assert!(open.len() < 100, "there is no limit");
    }
    assert_serves_bob(&bridge).await;
    // Some of her own are kept for requests.
    let listed = bridge.send("GET", "/api/chats", &[ALICE], "").await;
    assert_eq!(listed.status, 200);
    assert!(
        bridge.log().contains("instead of server.max_sockets"),
        "{}",
        bridge.log()
    );

    // Her requests count as well.
    let few = format!("{keys}[limits]\nconnections_per_user = 4\n");
    let bridge = Bridge::configured(&few);
    let mut streams = Vec::new();
    for chat in ["one", "two"] {
        let body = asking(chat, "slow 100000").to_string();
        let stream = bridge.open("POST", "/api/chat", &[JSON, ALICE], &body);
        streams.push(stream.await);
    }
    let _sockets = [
        another_of_alice(&bridge).await.expect("a first"),
        another_of_alice(&bridge).await.expect("a second"),
    ];
    assert!(another_of_alice(&bridge).await.is_none());
    assert_serves_bob(&bridge).await;
}

/// A page without a ticket is let in to learn why it is refused. Whoever does not go then is in nobody's way.
#[tokio::test]
async fn refused_sockets_that_stay_leave_connections_for_users() {
    let bridge = Bridge::with_files(KEYS, 256);
    let mut refused = Vec::new();
    for _ in 0..200 {
        let (head, client) = Client::try_open(&bridge, "/live", &[PAGE]).await;
        let is_refused = head.starts_with("HTTP/1.1 101") || head.starts_with("HTTP/1.1 401");
        assert!(is_refused, "{head}");
        refused.push(client);
        if refused.len() % 20 == 0 {
            assert_serves_bob(&bridge).await;
        }
    }
    let first = &mut refused[0];
    assert_eq!(first.closed().await.0, 4401, "it could read why");
}

#[tokio::test]
async fn anything_but_a_handshake_is_refused() {
    let bridge = Bridge::start();
    for endpoint in ENDPOINTS {
        for headers in [
            [("upgrade", "")],
            [("upgrade", "h2c")],
            [("connection", "keep-alive")],
            [("sec-websocket-version", "8")],
            [("sec-websocket-key", "")],
            [("sec-websocket-key", "dGhlIHNhbXBsZQ==")],
            [("sec-websocket-key", "dGhlIHNhbXBsZSBub25jZSBpcyBsb25n")],
        ] {
            let (head, _) = Client::try_open(&bridge, endpoint, &headers).await;
            assert!(head.starts_with("HTTP/1.1 426"), "{headers:?} {head}");
            let head = head.to_ascii_lowercase();
            assert!(head.contains("upgrade: websocket"), "{head}");
            assert!(head.contains("sec-websocket-version: 13"), "{head}");
        }
        let plain = bridge.get(endpoint).await;
        assert_eq!(
            (plain.status, plain.code()),
            (426, "not_a_websocket".into())
        );
    }
    for (query, status) in [
        ("dialect=klingon", 422),
        ("chat=", 422),
        ("sdk=seven", 422),
        ("sdk=5", 422),
    ] {
        let (head, _) = Client::try_open(&bridge, &format!("/live?{query}"), &[]).await;
        assert!(head.starts_with(&format!("HTTP/1.1 {status}")), "{head}");
    }
}

#[tokio::test]
async fn the_answer_is_what_the_protocol_asks_for() {
    let bridge = Bridge::start();
    let protocols = [("sec-websocket-protocol", "chat, other")];
    let (head, _) = Client::try_open(&bridge, "/live", &protocols).await;
    let head = head.to_ascii_lowercase();
    // The example of RFC 6455.
    for line in [
        "sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=",
        "sec-websocket-protocol: chat",
        "upgrade: websocket",
    ] {
        assert!(head.contains(line), "{line} in {head}");
    }
    assert!(!head.contains("sec-websocket-extensions"), "{head}");
}
