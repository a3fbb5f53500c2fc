//! Who may open a WebSocket: keys, tickets, origins, how many, and what is no handshake at all.

use crate::client::Client;
use crate::support::Bridge;

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
const ALICE: (&str, &str) = ("authorization", "Bearer alice-secret-0123456789");
const BOB: (&str, &str) = ("authorization", "Bearer bob-secret-9876543210");
const PAGE: (&str, &str) = ("origin", "https://app.example");
const DOORS: [&str; 2] = ["/live", "/api/chat/ws"];

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
    for door in DOORS {
        let (head, client) = Client::try_open(&bridge, door, &[ALICE]).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        client.leave().await;

        let (head, _) = Client::try_open(&bridge, door, &[]).await;
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");
        let path = format!("{door}?ticket=nonsense");
        let (head, _) = Client::try_open(&bridge, &path, &[]).await;
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");

        // A page is not shown a status, only a code.
        let path = format!("{door}?ticket={}", ticket(&bridge, ALICE).await);
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
    assert_eq!(his.closed().await.0, 4404);
    hers.say("say still here").await;
    hers.turn().await;
    let shown = bridge.send("GET", "/api/chats/hers", &[ALICE], "").await;
    assert_eq!(shown.json()["messages"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn pages_elsewhere_and_hosts_elsewhere_are_refused() {
    let bridge = Bridge::configured("[server]\nallowed_origins = [\"https://app.example\"]");
    let own = format!("http://{}", bridge.address);
    for door in DOORS {
        for (headers, status) in [
            (vec![], 101),
            (vec![("origin", own.as_str())], 101),
            (vec![PAGE], 101),
            (vec![("origin", "https://app.example.evil")], 403),
            (vec![("origin", "null")], 403),
            (vec![("origin", "http://127.0.0.1:1")], 403),
            (vec![("host", "rebound.example")], 403),
        ] {
            let (head, _) = Client::try_open(&bridge, door, &headers).await;
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status}")),
                "{door} {headers:?} {head}"
            );
        }
    }
}

#[tokio::test]
async fn a_user_has_so_many_and_no_more() {
    let bridge = Bridge::configured(KEYS);
    let mut open = Vec::new();
    for door in DOORS {
        open.push(Client::try_open(&bridge, door, &[ALICE]).await.1);
    }
    let (_, mut third) = Client::try_open(&bridge, "/live", &[ALICE]).await;
    assert_eq!(third.closed().await.0, 4429);
    let (_, mut his) = Client::try_open(&bridge, "/live?chat=his", &[BOB]).await;
    his.check_alive().await;
    open.pop().unwrap().leave().await;
    let (_, mut fourth) = Client::try_open(&bridge, "/live?chat=hers", &[ALICE]).await;
    fourth.check_alive().await;
}

#[tokio::test]
async fn what_is_no_handshake_is_told_so() {
    let bridge = Bridge::start();
    for door in DOORS {
        for headers in [
            [("upgrade", "")],
            [("upgrade", "h2c")],
            [("connection", "keep-alive")],
            [("sec-websocket-version", "8")],
            [("sec-websocket-key", "")],
        ] {
            let (head, _) = Client::try_open(&bridge, door, &headers).await;
            assert!(head.starts_with("HTTP/1.1 426"), "{headers:?} {head}");
        }
        let plain = bridge.get(door).await;
        assert_eq!(
            (plain.status, plain.code()),
            (426, "not_a_websocket".into())
        );
    }
    for (query, status) in [("dialect=klingon", 422), ("chat=", 422), ("sdk=seven", 400)] {
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
