//! Files that a browser can show: its `<img>` sends no key, and its page may come from elsewhere.

use adk_bridge_protocol::base64;
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde_json::{Value, json};
use sha2::Sha256;
use sqlx::Connection as _;

use crate::support::users::{self, KEYS};
use crate::support::{Bridge, JSON, folded, http::Response};

const ALICE: &str = users::ALICE.1;
const BOB: &str = users::BOB.1;
const PAGE: &str = "http://page.example";
const PIXEL: &str =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk+A8AAQUBAScY42YAAAAASUVORK5CYII=";

/// A bridge, with keys or without, that has a picture of the user's and one of a tool's in the chat `c`.
struct Gallery {
    bridge: Bridge,
    has_keys: bool,
}

impl Gallery {
    async fn open(server: &str, has_keys: bool) -> Self {
        let keys = if has_keys { KEYS } else { "" };
        let toml = format!("[server]\nallowed_origins = [{PAGE:?}]\n{server}\n{keys}");
        let gallery = Self {
            bridge: Bridge::configured(&toml),
            has_keys,
        };
        let (status, _) = gallery.post(&[], &question(json!([]))).await;
        assert_eq!(status, 200);
        gallery
    }

    fn with_key<'h>(&self, headers: &[(&'h str, &'h str)]) -> Vec<(&'h str, &'h str)> {
        let key = self.has_keys.then_some(("authorization", ALICE));
        headers.iter().copied().chain(key).collect()
    }

    /// Asks for a picture; gives the answer's message.
    async fn post(&self, headers: &[(&str, &str)], message: &Value) -> (u16, Value) {
        let headers = self.with_key(&[headers, &[JSON]].concat());
        let body = json!({"id": "c", "messages": [message]}).to_string();
        let mut answer = self.bridge.open("POST", "/api/chat", &headers, &body).await;
        (answer.status, folded(&answer.events().await))
    }

    async fn list(&self, headers: &[(&str, &str)]) -> Vec<Value> {
        let headers = self.with_key(headers);
        let chat = self.bridge.send("GET", "/api/chats/c", &headers, "").await;
        chat.json()["messages"].as_array().unwrap().clone()
    }

    /// As an `<img>` does it.
    async fn show(&self, url: &str) -> Response {
        self.bridge.get(url).await
    }
}

fn question(more: Value) -> Value {
    let mut parts = vec![
        json!({"type": "text", "text": "draw a cat"}),
        json!({"type": "file", "mediaType": "image/png", "url": format!("data:image/png;base64,{PIXEL}")}),
    ];
    parts.extend(more.as_array().unwrap().clone());
    json!({"id": "u1", "role": "user", "parts": parts})
}

/// The addresses in messages.
fn urls(messages: &[Value]) -> Vec<String> {
    let parts = messages
        .iter()
        .flat_map(|it| it["parts"].as_array().unwrap());
    let files = parts.filter(|part| part["type"] == "file");
    files
        .map(|part| part["url"].as_str().unwrap().to_owned())
        .collect()
}

/// The path and query of an address, and what stands before it.
fn split(url: &str) -> (&str, &str) {
    url.split_at(url.find("/api/files/").unwrap())
}

/// Headers of a request, and what addresses begin with; `OWN` is the origin of the bridge.
type Case = (&'static [(&'static str, &'static str)], &'static str);

#[tokio::test]
async fn addresses_begin_where_the_page_finds_the_bridge() {
    let plain: &[Case] = &[
        (&[], ""),
        (&[("origin", "OWN"), ("sec-fetch-site", "same-origin")], ""),
        (&[("origin", "http://localhost:3000")], "OWN"),
        (&[("origin", PAGE), ("sec-fetch-site", "cross-site")], "OWN"),
        // A proxy that writes the bridge's own host: the page asked under its own.
        (&[("origin", PAGE)], ""),
        (&[("origin", PAGE), ("sec-fetch-site", "same-origin")], ""),
    ];
    let public: &[Case] = &[
        (&[], "https://chat.example"),
        (&[("origin", PAGE)], "https://chat.example"),
    ];
    for (server, has_keys, cases) in [
        ("", false, plain),
        ("", true, plain),
        ("public_url = \"https://chat.example/\"", true, public),
    ] {
        let gallery = Gallery::open(server, has_keys).await;
        let own = format!("http://{}", gallery.bridge.address);
        let or_own = |text: &'static str| {
            if text == "OWN" {
                own.clone()
            } else {
                text.to_owned()
            }
        };
        for (headers, expected) in cases {
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (*name, or_own(value)))
                .collect();
            let headers: Vec<_> = headers
                .iter()
                .map(|(name, value)| (*name, value.as_str()))
                .collect();
            // Listed, streamed as it is made, uploaded.
            let mut shown = urls(&gallery.list(&headers).await);
            let (_, made) = gallery.post(&headers, &question(json!([]))).await;
            shown.extend(urls(&[made]));
            let upload =
                gallery.with_key(&[&headers[..], &[("content-type", "image/png")]].concat());
            let pixel = base64::decode(PIXEL).unwrap();
            let sent = gallery
                .bridge
                .send("POST", "/api/files?chat=c", &upload, &pixel)
                .await;
            shown.push(sent.json()["url"].as_str().unwrap().to_owned());
            assert_eq!(shown.len(), 4);
            for url in shown {
                let (origin, path) = split(&url);
                assert_eq!(origin, or_own(expected), "{headers:?} {server}");
                let shown = gallery.show(path).await;
                assert_eq!(
                    (shown.status, shown.header("content-type")),
                    (200, Some("image/png"))
                );
            }
        }
    }
}

#[tokio::test]
async fn a_signed_address_needs_no_key_and_another_one_does() {
    for has_keys in [false, true] {
        let gallery = Gallery::open("", has_keys).await;
        let shown = urls(&gallery.list(&[]).await);
        let [signed, other] = [&shown[0], &shown[1]];
        let (path, query) = signed.split_once('?').unwrap();
        let (expiry, signature) = query.split_once('&').unwrap();
        let whole = gallery.show(signed).await;
        assert_eq!(whole.body, base64::decode(PIXEL).unwrap());
        assert_eq!(
            whole.header("cross-origin-resource-policy"),
            Some("cross-origin")
        );

        let head = gallery.bridge.send("HEAD", signed, &[], "").await;
        assert_eq!((head.status, head.body.len()), (200, 0));
        assert_eq!(
            head.header("content-length"),
            Some(&*whole.body.len().to_string())
        );
        let part = [("range", "bytes=1-3")];
        let part = gallery.bridge.send("GET", signed, &part, "").await;
        assert_eq!((part.status, &part.body[..]), (206, &b"PNG"[..]));
        let page = [("origin", PAGE)];
        let fetched = gallery.bridge.send("GET", signed, &page, "").await;
        assert_eq!(fetched.header("access-control-allow-origin"), Some(PAGE));
        let attack = [("host", "evil.example")];
        assert_eq!(
            gallery.bridge.send("GET", signed, &attack, "").await.status,
            403
        );

        let past = forged(&gallery.bridge, path, 1_600_000_000).await;
        let future = forged(&gallery.bridge, path, 4_000_000_000).await;
        assert_eq!(gallery.show(&future).await.status, 200);
        let foreign = other.split_once('?').unwrap().1;
        for (wrong, word) in [
            (past, "expired"),
            (format!("{path}?{foreign}"), "not issued by this server"),
            (
                format!("{path}?{expiry}0&{signature}"),
                "not issued by this server",
            ),
            (
                format!("{path}?{expiry}&s={}", "0".repeat(64)),
                "not issued by this server",
            ),
            (format!("{path}?{expiry}"), "not issued by this server"),
            (format!("{path}?{signature}"), "not issued by this server"),
        ] {
            for method in ["GET", "HEAD"] {
                let refused = gallery.bridge.send(method, &wrong, &[], "").await;
                assert_eq!(refused.status, 403, "{wrong}");
            }
            let refused = gallery.show(&wrong).await;
            assert_eq!(refused.code(), "bad_signature");
            assert!(refused.message().contains(word), "{}", refused.message());
        }

        let by = async |key: &str| {
            let key = [("authorization", key)];
            gallery.bridge.send("GET", path, &key, "").await.status
        };
        match has_keys {
            true => {
                assert_eq!(gallery.show(path).await.status, 401);
                assert_eq!((by(ALICE).await, by(BOB).await), (200, 404));
            }
            false => assert_eq!(gallery.show(path).await.status, 200),
        }
        // It opens nothing but this file, and goes with it.
        for endpoint in ["/api/chats/c", "/api/chats", "/api/audit"] {
            let status = gallery.show(&format!("{endpoint}?{query}")).await.status;
            assert_eq!(status == 401, has_keys, "{endpoint}");
        }
        let key = gallery.with_key(&[]);
        let written = gallery.bridge.send("DELETE", signed, &key, "").await;
        assert_eq!(written.status, 405);
        let deleted = gallery
            .bridge
            .send("DELETE", "/api/chats/c", &key, "")
            .await;
        assert_eq!(deleted.status, 204);
        assert_eq!(gallery.show(signed).await.status, 404);
    }
}

/// An address with a signature that the bridge itself would make, for a moment that a test cannot wait for.
async fn forged(bridge: &Bridge, path: &str, expiry: u64) -> String {
    let database = bridge.directory.path().join("data/adk-bridge.db");
    let url = format!("sqlite:{}", database.display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let key: Vec<u8> = sqlx::query_scalar("SELECT value FROM secrets")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("GET {path}\n{expiry}").as_bytes());
    let signature = mac.finalize().into_bytes();
    let signature: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{path}?e={expiry}&s={signature}")
}

/// A client sends back signed URLs. It is the same message, and what is stored has no signature in it.
#[tokio::test]
async fn addresses_that_come_back_are_the_same_files() {
    let mut gallery = Gallery::open("", true).await;
    let page = [("origin", PAGE)];
    let listed = gallery.list(&page).await;
    for shown in [listed[0].clone(), gallery.list(&[]).await[0].clone()] {
        // Regenerate: nothing was edited, and the picture is known.
        let (status, _) = gallery.post(&page, &shown).await;
        assert_eq!(status, 200);
        let now = gallery.list(&page).await;
        assert_eq!(now[0], listed[0]);
        assert_ne!(now[1]["id"], listed[1]["id"]);
    }
    // A new message with a picture of the same chat, by its signed address; in another chat it is not known.
    let url = &urls(&listed)[0];
    let parts = json!([{"type": "text", "text": "what is in this image?"},
                       {"type": "file", "mediaType": "image/png", "url": url}]);
    let message = json!({"id": "u2", "role": "user", "parts": parts});
    let (_, answer) = gallery.post(&page, &message).await;
    assert!(answer.to_string().contains("image/png ("), "{answer}");
    let elsewhere = json!({"id": "d", "messages": [message]}).to_string();
    let headers = gallery.with_key(&[JSON]);
    let refused = gallery
        .bridge
        .send("POST", "/api/chat", &headers, &elsewhere)
        .await;
    assert_eq!(refused.code(), "unknown_file");

    let database = gallery.bridge.directory.path().join("data/adk-bridge.db");
    let mut connection = sqlx::SqliteConnection::connect(&format!("sqlite:{}", database.display()))
        .await
        .unwrap();
    let bodies: Vec<String> = sqlx::query_scalar("SELECT body FROM messages")
        .fetch_all(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    let files = bodies.iter().filter(|body| body.contains("/api/files/"));
    assert!(files.clone().count() >= 3);
    assert!(
        !bodies
            .iter()
            .any(|body| body.contains("s=") || body.contains("http")),
        "{bodies:?}"
    );

    // The key is created once: URLs from before a restart are still valid.
    let (_, path) = split(url);
    gallery.bridge.kill_and_restart();
    assert_eq!(gallery.show(path).await.status, 200);
}

/// An answer to a question next to a picture: the client's copy has the signed URL.
#[tokio::test]
async fn a_copy_with_a_picture_is_not_sent_again() {
    let gallery = Gallery::open("", true).await;
    let pay = "draw a dog && call process_payment {\"amount\": 1, \"recipient\": \"x\"}";
    let pay = pay.replace("draw a dog", "call generate_image {\"prompt\": \"a dog\"}");
    let message = json!({"id": "u5", "role": "user", "parts": [{"type": "text", "text": pay}]});
    let page = [("origin", PAGE)];
    let (_, mut asked) = gallery.post(&page, &message).await;
    let before = urls(std::slice::from_ref(&asked));
    assert_eq!(before.len(), 1, "{asked}");
    for part in asked["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(true);
        }
    }
    let headers = gallery.with_key(&[page[0], JSON]);
    let body = json!({"id": "c", "messages": [message, asked]}).to_string();
    let mut answer = gallery
        .bridge
        .open("POST", "/api/chat", &headers, &body)
        .await;
    let events = answer.events().await;
    assert!(
        events.iter().any(|it| it.contains("tool-output-available")),
        "{events:?}"
    );
    assert!(
        !events.iter().any(|it| it.contains("\"file\"")),
        "{events:?}"
    );
}

#[test]
fn where_browsers_reach_the_bridge_is_an_origin() {
    for wrong in [
        "chat.example",
        "https://chat.example/path",
        "ftp://x",
        "https://",
    ] {
        let said = crate::support::refused(&format!("[server]\npublic_url = {wrong:?}\n"), |_| {});
        assert!(said.contains("server.public_url"), "{wrong}: {said}");
    }
}
