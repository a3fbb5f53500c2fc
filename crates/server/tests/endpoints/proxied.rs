//! Requests that come through proxies, and a model that is reached in spite of one.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::support::users::{ALICE, KEYS};
use crate::support::{Bridge, JSON, asking, folded, text_of, within};

/// Without keys everybody who comes is the user: nobody may come from elsewhere.
#[tokio::test]
async fn without_keys_a_request_for_a_client_elsewhere_is_refused() {
    let open = Bridge::start();
    let guarded = Bridge::configured(KEYS);
    let body = asking("forwarded", "say hi").to_string();
    for (name, value, passes) in [
        // What Next.js and Vite send on this machine.
        ("x-forwarded-for", "::1", true),
        ("x-forwarded-for", "127.0.0.1", true),
        ("x-forwarded-for", "::ffff:127.0.0.1", true),
        ("x-forwarded-host", "localhost:3000", true),
        ("forwarded", "for=127.0.0.1;proto=http;host=localhost", true),
        ("x-forwarded-for", "203.0.113.9", false),
        ("x-forwarded-for", "127.0.0.1, 203.0.113.9", false),
        ("x-forwarded-for", "203.0.113.9, 127.0.0.1", false),
        ("x-forwarded-for", "10.0.0.7", false),
        ("x-forwarded-for", "unknown", false),
        ("x-real-ip", "203.0.113.9", false),
        ("forwarded", "for=\"[2001:db8::1]:4711\"", false),
        ("forwarded", "for=127.0.0.1, for=_hidden", false),
        ("cf-connecting-ip", "203.0.113.9", false),
    ] {
        let headers = [JSON, ALICE, (name, value)];
        for (method, path) in [("POST", "/api/chat"), ("GET", "/api/chats"), ("GET", "/")] {
            let case = format!("{method} {path} {name}: {value}");
            let answer = open.send(method, path, &headers, &body).await;
            if passes {
                assert_eq!(answer.status, 200, "{case}");
            } else {
                assert_eq!((answer.status, answer.code().as_str()), (403, "forwarded"));
                assert!(answer.message().contains("auth.api_keys"), "{case}");
            }
            // Who has a key may come from anywhere.
            let answer = guarded.send(method, path, &headers, &body).await;
            assert_eq!(answer.status, 200, "{case}");
        }
    }
    let rebound = [("x-forwarded-host", "rebound.example:3000")];
    let refused = open.send("GET", "/api/chats", &rebound, "").await;
    assert_eq!(refused.code(), "foreign_host");
    for path in ["/health", "/ready"] {
        let probe = [("x-forwarded-for", "203.0.113.9")];
        assert_eq!(open.send("GET", path, &probe, "").await.status, 200);
    }
}

#[tokio::test]
async fn a_name_that_is_allowed_is_served_and_no_other() {
    let toml = format!("[server]\nallowed_hosts = [\"chat.example.org\", \"10.0.0.7\"]\n{KEYS}");
    let bridge = Bridge::configured(&toml);
    for (host, passes) in [
        ("chat.example.org", true),
        ("Chat.Example.org:8443", true),
        ("10.0.0.7:80", true),
        ("localhost", true),
        ("www.chat.example.org", false),
        ("chat.example.org.evil.example", false),
        ("chat.example.org:evil", false),
    ] {
        let headers = [("host", host), ALICE];
        let answer = bridge.send("GET", "/api/chats", &headers, "").await;
        if passes {
            assert_eq!(answer.status, 200, "{host}");
        } else {
            assert_eq!(answer.code(), "foreign_host", "{host}");
            assert!(answer.message().contains("server.allowed_hosts"), "{host}");
        }
    }
    // The page under that name is the bridge's own.
    let page = [
        JSON,
        ALICE,
        ("host", "chat.example.org"),
        ("origin", "https://chat.example.org"),
    ];
    let body = asking("named", "say hi").to_string();
    assert_eq!(
        bridge.send("POST", "/api/chat", &page, &body).await.status,
        200
    );
}

/// As Prometheus does with the configuration of the manifests for Kubernetes.
#[tokio::test]
async fn monitoring_asks_a_replica_by_its_address_and_with_a_key() {
    let manifest = include_str!("../../../../deploy/kubernetes/configuration.yaml");
    let hosts = manifest
        .lines()
        .find(|it| it.trim().starts_with("allowed_hosts"));
    let toml = format!("[server]\n{}\n{KEYS}", hosts.unwrap().trim());
    let bridge = Bridge::configured(&toml);
    let by_address = ("host", "10.0.0.5:8080");
    let wrong = ("authorization", "Bearer no-key-of-this-bridge");
    let metrics = bridge
        .send("GET", "/metrics", &[by_address, ALICE], "")
        .await;
    assert_eq!(metrics.status, 200);
    let refused = bridge
        .send("GET", "/metrics", &[by_address, wrong], "")
        .await;
    assert_eq!(refused.status, 401);
    // A browser sends cookies unasked, and a proxy may add a key to what a foreign page asks for.
    let cookie = ("cookie", "adk_bridge_login=x");
    for (path, more) in [
        ("/metrics", vec![]),
        ("/metrics", vec![cookie]),
        ("/api/chats", vec![ALICE]),
    ] {
        let headers = [vec![by_address], more].concat();
        let refused = bridge.send("GET", path, &headers, "").await;
        assert_eq!(refused.code(), "foreign_host", "{path}");
    }
    // Without keys, what is in the header proves nothing.
    let open = Bridge::start();
    let refused = open.send("GET", "/metrics", &[by_address, wrong], "").await;
    assert_eq!(refused.code(), "foreign_host");
}

#[tokio::test]
async fn a_request_names_one_host() {
    let bridge = Bridge::start();
    let host = bridge.address;
    for (head, status) in [
        (format!("GET /health HTTP/1.1\r\nhost: {host}\r\n"), 200),
        ("GET /health HTTP/1.1\r\n".to_owned(), 400),
        (
            format!("GET /api/chats HTTP/1.1\r\nhost: {host}\r\nhost: evil.example\r\n"),
            400,
        ),
        (
            format!("GET /api/chats HTTP/1.1\r\nhost: evil.example\r\nhost: {host}\r\n"),
            400,
        ),
        ("GET /health HTTP/1.0\r\n".to_owned(), 200),
        (
            format!(
                "GET /live HTTP/1.0\r\nhost: {host}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
                 sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
            ),
            426,
        ),
    ] {
        let mut stream = TcpStream::connect(host).await.unwrap();
        let request = format!("{head}connection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut said = Vec::new();
        within(stream.read_to_end(&mut said)).await.unwrap();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(
            said.split(' ').nth(1),
            Some(&*status.to_string()),
            "{head}: {said}"
        );
    }
}

/// The environment's proxy is for the world outside.
#[tokio::test]
async fn a_model_on_this_machine_is_reached_without_the_proxy() {
    let proxy = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = format!("http://{}", proxy.local_addr().unwrap());
    let bridge = Bridge::with("", |command| {
        for name in [
            "HTTP_PROXY",
            "http_proxy",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "all_proxy",
        ] {
            command.env(name, &address);
        }
        command.env_remove("NO_PROXY").env_remove("no_proxy");
    });
    let asked = async {
        let mut answer = bridge.ask("direct", "say hello").await;
        text_of(&folded(&answer.events().await))
    };
    tokio::select! {
        said = within(asked) => assert_eq!(said, "hello"),
        _ = proxy.accept() => panic!("the conversation went to the proxy"),
    }
}

#[tokio::test]
async fn lists_are_written_plainly_in_the_environment() {
    for (value, listed) in [
        ("http://localhost:3000", "http://localhost:3000"),
        ("https://a.example,https://b.example", "https://b.example"),
        ("https://a.example, https://b.example", "https://b.example"),
        (
            "[\"https://a.example\", \"https://b.example\"]",
            "https://a.example",
        ),
    ] {
        let bridge = Bridge::with("", |command| {
            command
                .env("ADK_BRIDGE__SERVER__ALLOWED_ORIGINS", value)
                .env("ADK_BRIDGE__SERVER__ALLOWED_HOSTS", "chat.example.org")
                .env("ADK_BRIDGE__AGENT__TOOLS", "get_weather,roll_dice")
                .env("ADK_BRIDGE__APPROVAL__TOOLS", "roll_dice");
        });
        let headers = [("origin", listed), ("host", "chat.example.org")];
        let answer = bridge.send("GET", "/api/agent", &headers, "").await;
        let origin = answer.header("access-control-allow-origin");
        assert_eq!(origin, Some(listed), "{value}");
        let tools = answer.json()["tools"].clone();
        let tools: Vec<(&str, bool)> = tools
            .as_array()
            .unwrap()
            .iter()
            .map(|tool| {
                let needs = tool["needsApproval"].as_bool().unwrap();
                (tool["name"].as_str().unwrap(), needs)
            })
            .collect();
        assert_eq!(tools, [("get_weather", false), ("roll_dice", true)]);
    }
}
