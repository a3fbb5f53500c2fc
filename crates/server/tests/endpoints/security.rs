//! Keys, users, origins and hosts; and what is refused before anything is served.

use std::time::Duration;

use serde_json::{Value, json};

use crate::support::process::refusal;
use crate::support::users::ALICE;
use crate::support::{Bridge, JSON, asking, command_without_address, refused, refused_in, within};

const KEYS: &str = "
[server]
allowed_origins = [\"https://app.example\"]
[[auth.api_keys]]
key = \"alice-secret-0123456789\"
user = \"alice\"
[[auth.api_keys]]
key = \"bob-secret-9876543210\"
user = \"bob\"
[[agent.client_tools]]
name = \"pick_colour\"
";
/// The scheme may be written in lower case.
const BOB: (&str, &str) = ("authorization", "bearer bob-secret-9876543210");

/// Every endpoint that asks for a key.
const ENDPOINTS: [(&str, &str); 14] = [
    ("POST", "/api/chat"),
    ("GET", "/api/chat/hers/stream"),
    ("POST", "/api/chat/hers/stop"),
    ("POST", "/api/chat/hers/tool-output"),
    ("GET", "/api/chats"),
    ("GET", "/api/chats/hers"),
    ("PATCH", "/api/chats/hers"),
    ("DELETE", "/api/chats/hers"),
    ("GET", "/api/audit?chat=hers"),
    ("GET", "/api/agent"),
    ("POST", "/api/files?chat=hers"),
    ("GET", "/api/files/0123"),
    ("POST", "/api/ticket"),
    ("GET", "/metrics"),
];

#[tokio::test]
async fn without_a_valid_key_only_the_page_and_the_signs_of_life_answer() {
    let bridge = Bridge::configured(KEYS);
    let body = asking("hers", "say hi").to_string();
    let wrong = [
        None,
        Some(""),
        Some("Bearer"),
        Some("Bearer "),
        Some("Bearer alice-secret-012345678"),
        Some("Bearer alice-secret-01234567890"),
        Some("Bearer ALICE-SECRET-0123456789"),
        Some("Basic alice-secret-0123456789"),
        Some("alice-secret-0123456789"),
        Some("Bearer alice"),
    ];
    for (method, path) in ENDPOINTS {
        for key in wrong {
            let mut headers = vec![JSON];
            headers.extend(key.map(|key| ("authorization", key)));
            let response = bridge.send(method, path, &headers, &body).await;
            assert_eq!(response.status, 401, "{method} {path} {key:?}");
            assert_eq!(response.code(), "unauthorized");
            assert_eq!(response.header("www-authenticate"), Some("Bearer"));
        }
    }
    // The address is no place for a key: it is kept in logs and histories.
    let response = bridge.get("/api/chats?key=alice-secret-0123456789").await;
    assert_eq!(response.status, 401);
    for path in ["/", "/health", "/ready"] {
        assert_eq!(bridge.get(path).await.status, 200, "{path}");
    }
    let chats = bridge.send("GET", "/api/chats", &[ALICE], "").await;
    assert_eq!(chats.json(), json!([]), "nothing came of it");
}

#[tokio::test]
async fn a_stream_of_somebody_else_is_not_resumed() {
    let bridge = Bridge::configured(KEYS);
    let asked = asking("hers", "slow 1000").to_string();
    let mut hers = bridge
        .open("POST", "/api/chat", &[JSON, ALICE], &asked)
        .await;
    hers.events_until("word1").await;
    let his = bridge
        .send("GET", "/api/chat/hers/stream", &[BOB], "")
        .await;
    assert_eq!((his.status, his.body.len()), (204, 0));
    let stop = bridge.send("POST", "/api/chat/hers/stop", &[BOB], "").await;
    assert_eq!(stop.status, 404);
    hers.events_until("word3").await;
    let mut again = bridge
        .open("GET", "/api/chat/hers/stream", &[ALICE], "")
        .await;
    again.events_until("word1").await;
}

#[tokio::test]
async fn pages_from_elsewhere_change_nothing() {
    let bridge = Bridge::configured(KEYS);
    let own = format!("http://{}", bridge.address);
    let body = asking("origins", "say hi").to_string();
    for (origin, passes) in [
        (None, true),
        (Some(own.as_str()), true),
        (Some("https://app.example"), true),
        (Some("http://app.example"), false),
        (Some("https://app.example:8443"), false),
        (Some("https://app.example.evil.example"), false),
        (Some("https://evil.example"), false),
        (Some("null"), false),
        (Some(""), false),
        (Some("http://localhost.evil.example"), false),
        // A page that this machine serves, through the proxy of its development server.
        (Some("http://localhost"), true),
        (Some("http://localhost:3000"), true),
    ] {
        let mut headers = vec![JSON, ALICE];
        headers.extend(origin.map(|origin| ("origin", origin)));
        for (method, path) in ENDPOINTS {
            let response = bridge.send(method, path, &headers, &body).await;
            let reads = method == "GET";
            assert_eq!(
                response.status != 403,
                passes || reads,
                "{method} {path} {origin:?}"
            );
            if response.status == 403 {
                assert_eq!(response.code(), "foreign_origin");
            }
            let shown = response.header("access-control-allow-origin");
            let listed = origin.filter(|origin| *origin == "https://app.example");
            assert_eq!(shown, listed, "{method} {path} {origin:?}");
            let credentials = response.header("access-control-allow-credentials");
            assert_eq!(credentials, listed.map(|_| "true"), "{method} {path}");
        }
    }
}

/// A browser asks before it sends JSON or a key to another origin.
#[tokio::test]
async fn pages_on_the_allow_list_can_really_be_used() {
    let bridge = Bridge::configured(KEYS);
    let listed = ("origin", "https://app.example");
    let asked = [
        listed,
        ("access-control-request-method", "POST"),
        (
            "access-control-request-headers",
            "authorization,content-type,user-agent",
        ),
    ];
    let preflight = bridge.send("OPTIONS", "/api/chat", &asked, "").await;
    assert_eq!((preflight.status, preflight.body.len()), (204, 0));
    for (name, value) in [
        ("access-control-allow-origin", "https://app.example"),
        (
            "access-control-allow-headers",
            "authorization,content-type,user-agent",
        ),
        ("access-control-allow-methods", "GET,POST,PATCH,DELETE"),
        ("vary", "origin"),
    ] {
        assert_eq!(preflight.header(name), Some(value), "{name}");
    }
    let body = asking("page", "say hi").to_string();
    let answer = bridge
        .send("POST", "/api/chat", &[JSON, ALICE, listed], &body)
        .await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.header("access-control-allow-origin"),
        Some("https://app.example")
    );
    // The page must be able to read why it was refused.
    let refused = bridge
        .send("POST", "/api/chat", &[JSON, listed], &body)
        .await;
    assert_eq!(refused.status, 401);
    assert_eq!(
        refused.header("access-control-allow-origin"),
        Some("https://app.example")
    );

    let mut foreign = asked;
    foreign[0].1 = "https://evil.example";
    let preflight = bridge.send("OPTIONS", "/api/chat", &foreign, "").await;
    assert_eq!(preflight.status, 403);
    assert_eq!(preflight.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn a_name_that_points_here_is_not_served() {
    let bridge = Bridge::start();
    let port = bridge.address.port();
    for (host, passes) in [
        (format!("127.0.0.1:{port}"), true),
        (format!("localhost:{port}"), true),
        (format!("LocalHost:{port}"), true),
        ("localhost".into(), true),
        (format!("[::1]:{port}"), true),
        ("127.0.0.2".into(), true),
        (format!("evil.example:{port}"), false),
        (format!("localhost.evil.example:{port}"), false),
        (format!("127.0.0.1.evil.example:{port}"), false),
        ("192.168.0.1".into(), false),
        ("0.0.0.0".into(), false),
        ("localhost:evil".into(), false),
    ] {
        let headers = [("host", host.as_str())];
        for path in ["/", "/api/chats", "/api/agent"] {
            let response = bridge.send("GET", path, &headers, "").await;
            let status = if passes { 200 } else { 403 };
            assert_eq!(response.status, status, "{host} {path}");
            if !passes {
                assert_eq!(response.code(), "foreign_host");
            }
        }
    }
}

#[tokio::test]
async fn keys_reach_neither_the_log_nor_an_answer() {
    let bridge = Bridge::with(KEYS, |command| {
        command.env("RUST_LOG", "trace");
    });
    let body = asking("logged", "say hi").to_string();
    let mut answers = Vec::new();
    for key in [
        ALICE,
        BOB,
        ("authorization", "Bearer wrong-secret-000000000"),
    ] {
        for (method, path) in ENDPOINTS {
            answers.push(bridge.send(method, path, &[JSON, key], &body).await);
        }
    }
    // The log is written by another thread than the one that answers.
    within(async {
        while !bridge.log().contains("TRACE") {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
    assert!(!bridge.log().contains("secret"), "a key is in the log");
    for answer in answers {
        assert!(
            !String::from_utf8_lossy(&answer.body).contains("secret"),
            "{answer:?}"
        );
    }
}

#[test]
fn what_cannot_be_served_is_refused_at_start_by_name() {
    for (toml, named) in [
        ("[server]\nlistn = \"127.0.0.1:0\"", "listn"),
        ("[serve]\nlisten = \"127.0.0.1:0\"", "serve"),
        ("[server]\nmax_body_bytes = -1", "server.max_body_bytes"),
        ("[approval]\ntimeout = \"soon\"", "approval.timeout"),
        ("[approval]\ntools = [\"no_such_tool\"]", "approval.tools"),
        ("[agent]\ntools = [\"no_such_tool\"]", "agent.tools"),
        ("[agent]\nkind = \"oracle\"", "agent.kind"),
        ("[agent]\nmax_steps = 0", "agent.max_steps"),
        ("[agent]\nbase_url = \"here\"", "agent.base_url"),
        (
            "[server]\nallowed_origins = [\"http://localhost:3000/\"]",
            "server.allowed_origins",
        ),
        (
            "[[agent.client_tools]]\nname = \"roll_dice\"",
            "agent.client_tools",
        ),
        (
            "[[auth.api_keys]]\nkey = \"short\"\nuser = \"a\"",
            "auth.api_keys",
        ),
        ("[[auth.api_keys]]\nkey = \"long-enough-0123456\"", "user"),
        (
            "[auth]\napi_keys = \"long-enough-0123456\"",
            "auth.api_keys",
        ),
        (
            "[auth]\napi_keys = [\"long-enough-0123456\"]",
            "auth.api_keys",
        ),
        ("auth = \"long-enough-0123456\"", "auth"),
        ("[store]\nurl = \"mysql://x\"", "store.url"),
        ("[store]\nurl = \"postgres://127.0.0.1:1/x\"", "store.url"),
    ] {
        let said = refused(toml, |_| {});
        assert!(said.contains(named), "{toml}: {said}");
        assert!(!said.contains("long-enough"), "{toml}: {said}");
    }
    for (variable, value, named) in [
        ("ADK_BRIDGE__SERVER__LISTN", "127.0.0.1:0", "listn"),
        ("ADK_BRIDGE__TOOLS__TIMEOUT", "5", "tools.timeout"),
        ("ADK_BRIDGE__NOTHING__AT_ALL", "1", "nothing"),
        (
            "ADK_BRIDGE__AUTH__API_KEYS",
            "long-enough-0123456",
            "auth.api_keys",
        ),
    ] {
        let said = refused("", |command| {
            command.env(variable, value);
        });
        assert!(said.to_lowercase().contains(named), "{variable}: {said}");
        assert!(!said.contains("long-enough"), "{variable}: {said}");
    }
}

#[test]
fn an_address_for_others_needs_keys() {
    for address in ["0.0.0.0:0", "[::]:0", "192.0.2.1:0"] {
        let directory = tempfile::TempDir::new().unwrap();
        let mut command = command_without_address(&directory, "");
        command.args(["--listen", address]);
        let said = refusal(&mut command);
        for word in ["server.listen", "auth.api_keys", "127.0.0.1"] {
            assert!(said.contains(word), "{address}: {said}");
        }
    }
}

#[tokio::test]
async fn data_in_use_are_refused_to_a_second_bridge() {
    let bridge = Bridge::start();
    // The log of the first is in the same directory: what it has said so far is written over.
    let said = refused_in(&bridge.directory, "", |_| {});
    assert!(said.contains("in use"), "{said}");
    assert!(said.contains("--data-dir"), "{said}");
    assert_eq!(
        bridge.get("/ready").await.json()["status"],
        Value::from("ready")
    );
}

#[test]
fn a_data_directory_that_is_none_is_named() {
    let directory = tempfile::TempDir::new().unwrap();
    let data = directory.path().join("data");
    std::fs::write(&data, "no directory").unwrap();
    let said = refused_in(&directory, "", |_| {});
    for word in [data.to_str().unwrap(), "--data-dir"] {
        assert!(said.contains(word), "{said}");
    }
    assert_eq!(said.matches("os error").count(), 1, "said twice: {said}");
}
