//! Agents that quote what they were sent: their users are shown no secret of the bridge, and the log holds neither.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, events, fine, refused, well};
use crate::support::Bridge;

const KEY: &str = "PLANTED-GEMINI-KEY-12345";
const TOKEN: &str = "PLANTED-ADK-TOKEN-67890";
const WORDS: &str = "nobody else should read this";

/// Everything that was asked, as one text.
fn echo(asked: &ReceivedRequest) -> String {
    // Heads are read in lower case; the secrets are not.
    let head = asked.head.to_uppercase();
    format!("{head} {}", asked.body)
}

/// The secret and the address, as the heads of requests have them.
fn named(asked: &ReceivedRequest) -> String {
    let heads = asked.head.lines().map(str::to_uppercase);
    let heads = heads.filter(|line| {
        ["HOST:", "X-GOOG-API-KEY:", "AUTHORIZATION:"]
            .iter()
            .any(|name| line.starts_with(name))
    });
    heads.collect::<Vec<_>>().join(" ")
}

/// Words so long that what is shown of them would end within the secret.
fn long(asked: &ReceivedRequest) -> String {
    let named = named(asked);
    let place = named.find("PLANTED").unwrap();
    let secret = named[place..].split(' ').next().unwrap();
    format!("{}{secret} and more", "x".repeat(SHOWN - secret.len() + 4))
}

/// How much of what an agent says is shown (PROTOCOL.md).
const SHOWN: usize = 300;

/// The ways in which a request is quoted, by number.
fn quoted(asked: &ReceivedRequest, way: usize) -> Vec<u8> {
    let echo = echo(asked);
    let kind = "application/json";
    match way {
        0 => refused(400, "text/plain", &echo),
        1 => refused(400, kind, &json!({"error": {"message": echo}}).to_string()),
        2 => refused(500, kind, &json!({"detail": echo}).to_string()),
        3 => refused(
            422,
            kind,
            &json!({"detail": [{"msg": "bad", "input": echo}]}).to_string(),
        ),
        4 => refused(403, kind, &json!({"error": {"request": echo}}).to_string()),
        5 => events(format!("data: {}\n\n", json!({"error": {"message": echo}}))),
        6 => events(format!("data: {}\n\n", json!({"error": echo}))),
        7 => events(format!("data: {}\n\n", json!({"error": {"request": echo}}))),
        8 => said(json!({"author": "app", "errorCode": "X", "errorMessage": echo})),
        9 => said(json!({"author": "app", "errorCode": named(asked)})),
        10 => said(json!({"author": "app", "errorCode": "X", "finishReason": named(asked)})),
        11 => said(json!({"promptFeedback": {"blockReason": named(asked)}, "errorCode": "X"})),
        12 => events(format!(
            "data: {}\n\ndata: {}\n\n",
            json!({"candidates": [{"finishReason": named(asked)}]}),
            json!({"error": {"message": "x"}})
        )),
        13 => refused(
            400,
            kind,
            &json!({"error": {"message": long(asked)}}).to_string(),
        ),
        14 => refused(500, kind, &json!({"detail": long(asked)}).to_string()),
        15 => said(json!({"error": {"message": long(asked)}})),
        _ => said(json!({"author": "app", "errorCode": long(asked), "errorMessage": "x"})),
    }
}
const WAYS: usize = 17;

fn said(event: Value) -> Vec<u8> {
    events(format!("data: {event}\n\n"))
}

fn way_of(asked: &ReceivedRequest) -> usize {
    let text = asked.body.to_string();
    let rest = text.rsplit("way ").next().unwrap_or_default();
    let end = rest.find(|c: char| !c.is_ascii_digit());
    rest[..end.unwrap_or(rest.len())].parse().unwrap_or(0)
}

async fn play(bridge: &Bridge, level: &str, secret: &str, address: SocketAddr) {
    let (part, address) = (&secret[..12], address.to_string());

    let mut leaked = Vec::new();
    for way in 0..WAYS {
        let text = format!("{WORDS} way {way}");
        let chat = format!("c{way}");
        let shown = bridge.ask(&chat, &text).await.events().await;
        let errors: Vec<String> = shown
            .iter()
            .filter_map(|event| serde_json::from_str::<Value>(event).ok())
            .filter_map(|chunk| chunk["errorText"].as_str().map(str::to_owned))
            .collect();
        assert_eq!(errors.len(), 1, "way {way}: {shown:?}");
        let shown = shown.concat();
        let found = [part, &address].into_iter().filter(|it| shown.contains(it));
        leaked.extend(found.map(|found| format!("way {way}: {found}")));
        assert!(errors[0].len() < 600, "way {way}: {errors:?}");
    }
    assert!(leaked.is_empty(), "{leaked:?}");
    let metrics = bridge.get("/metrics").await;
    let (log, metrics) = (bridge.log(), String::from_utf8_lossy(&metrics.body));
    assert!(
        !log.contains(part) && !metrics.contains(part),
        "{level}: {log}"
    );
    if level == "info" {
        assert!(!log.contains(WORDS), "{log}");
        assert!(log.contains("failed (error"), "{log}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gateway_that_quotes_its_requests() {
    let stand_in = StandIn::start(|asked| quoted(asked, way_of(asked))).await;
    let address = stand_in.address;
    let toml = format!("[agent]\nkind = \"gemini\"\nbase_url = \"http://{address}\"\n");
    for level in ["info", "debug", "trace"] {
        let bridge = Bridge::with(&toml, |command| {
            command.env("GEMINI_API_KEY", KEY).env("RUST_LOG", level);
        });
        play(&bridge, level, KEY, address).await;
    }
    let heads = stand_in.asked("/v1beta");
    let sent = |asked: &ReceivedRequest| asked.head.to_uppercase().contains(KEY);
    assert!(heads.iter().all(sent), "it was there to be quoted");

    let toml = format!(
        "[agent]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"http://{address}/v1\"\napi_key_env = \"MODEL_KEY\"\n"
    );
    for level in ["info", "trace"] {
        let bridge = Bridge::with(&toml, |command| {
            command.env("MODEL_KEY", KEY).env("RUST_LOG", level);
        });
        play(&bridge, level, KEY, address).await;
    }
    let heads = stand_in.asked("/v1/chat/completions");
    assert!(
        heads.len() >= WAYS && heads.iter().all(sent),
        "it was there to be quoted"
    );
}

/// In addition to runs, a server is asked for artifacts, for what it knows of its app, and to forget: what it says then
/// may be a user's words, too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adk_server_that_quotes_its_users() {
    let stand_in = StandIn::start(|asked| {
        let words = json!({"detail": WORDS}).to_string();
        match asked.path.as_str() {
            "/run_sse" => {
                let saved = json!({"artifactDelta": {format!("{WORDS}.txt"): 0}});
                let saved = json!({"author": "app", "actions": saved});
                events(format!("data: {saved}\n\n{}", fine()))
            }
            path if path.ends_with("/sessions") => well(asked),
            _ => refused(500, "application/json", &words),
        }
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    bridge.ask("c", "hello").await.events().await;
    bridge.get("/api/agent").await;
    assert_eq!(
        bridge.send("DELETE", "/api/chats/c", &[], b"").await.status,
        204
    );
    // The user does not wait until the agent has forgotten.
    let mut log = bridge.log();
    for _ in 0..100 {
        if log.contains("a session of a deleted chat remains") {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        log = bridge.log();
    }
    assert!(!log.contains(WORDS), "{log}");
    for expected in [
        "an artifact cannot be loaded",
        "a session of a deleted chat remains",
        "cannot be looked up",
    ] {
        assert!(log.contains(expected), "{expected}: {log}");
    }
    // It shows what is wrong.
    assert!(log.contains("500 Internal Server Error"), "{log}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adk_server_that_quotes_its_requests() {
    let stand_in = StandIn::start(|asked| match asked.path.as_str() {
        "/run_sse" => quoted(asked, way_of(asked)),
        _ => well(asked),
    })
    .await;
    let toml = format!(
        "{}headers = {{ authorization = \"Bearer {TOKEN}\" }}\n",
        stand_in.toml()
    );
    for level in ["info", "trace"] {
        let bridge = Bridge::with(&toml, |command| {
            command.env("RUST_LOG", level);
        });
        play(&bridge, level, TOKEN, stand_in.address).await;
    }
}

/// The configuration of a login, as google-adk 1.39.1 writes it, and the same in the spelling of `@google/adk`.
fn login(is_snake: bool) -> Value {
    let credential = json!({"authType": "oauth2", "oauth2": {
        "clientId": "app", "clientSecret": CLIENT_SECRET, "authUri": "https://login.example/a?state=x", "state": "x",
    }});
    let scheme = json!({"type": "oauth2", "flows": {"authorizationCode": {
        "authorizationUrl": "https://login.example/a", "tokenUrl": "https://login.example/t",
        "scopes": {"mail.read": "reads mail"},
    }}});
    let config = json!({"authScheme": scheme, "rawAuthCredential": credential,
        "exchangedAuthCredential": credential, "credentialKey": "adk_oauth2_1"});
    let mut args =
        json!({"functionCallId": "_adk_toolset_auth_Mail", "authConfig": config}).to_string();
    if is_snake {
        for (camel, snake) in [
            ("functionCallId", "function_call_id"),
            ("authConfig", "auth_config"),
            ("rawAuthCredential", "raw_auth_credential"),
            ("exchangedAuthCredential", "exchanged_auth_credential"),
            ("authType", "auth_type"),
            ("clientSecret", "client_secret"),
        ] {
            args = args.replace(camel, snake);
        }
    }
    serde_json::from_str(&args).unwrap()
}

const CLIENT_SECRET: &str = "PLANTED-CLIENT-SECRET-4711";

/// A run in which an agent asks for credentials, and one in which it repeats the answer: both as a server sends them.
fn asks_for_credentials(is_snake: bool, answered: bool) -> Vec<u8> {
    let args = login(is_snake);
    let config = args["authConfig"].clone();
    let config = if config.is_null() {
        args["auth_config"].clone()
    } else {
        config
    };
    let name = "adk_request_credential";
    let part = match answered {
        false => json!({"functionCall": {"id": "r1", "name": name, "args": args}}),
        true => json!({"functionResponse": {"id": "r1", "name": name, "response": config}}),
    };
    let asked = json!({"author": "app", "longRunningToolIds": ["r1"], "content": {"role": "model", "parts": [part]}});
    let pending = json!({
        "author": "app",
        "content": {"role": "user", "parts": [{"functionResponse":
            {"id": "c1", "name": "read_mail", "response": {"pending": true}}}]},
        "actions": {
            "requestedAuthConfigs": {"c1": config}, "stateDelta": {"adk_oauth2_1": config["rawAuthCredential"], "seen": 1},
        },
        "customMetadata": {"a2a:response": {"parts": [{"kind": "data", "data": {"name": name, "args": args}}]}},
    });
    let called = json!({"author": "app", "content": {"role": "model", "parts": [
        {"functionCall": {"id": "c1", "name": "read_mail", "args": {}}}]}});
    events(format!(
        "data: {called}\n\ndata: {asked}\n\ndata: {pending}\n\n{}",
        fine()
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adk_server_that_sends_the_secret_of_a_login() {
    for is_snake in [false, true] {
        let runs = std::sync::atomic::AtomicUsize::new(0);
        let stand_in = StandIn::start(move |asked| match asked.path.as_str() {
            "/run_sse" => match runs.fetch_add(1, std::sync::atomic::Ordering::Relaxed) {
                0 => asks_for_credentials(is_snake, false),
                1 => asks_for_credentials(is_snake, true),
                // The session is lost, and made again.
                2 => refused(404, "application/json", r#"{"detail":"Session not found"}"#),
                _ => events(fine()),
            },
            _ => well(asked),
        })
        .await;
        let bridge = Bridge::with(&stand_in.toml(), |command| {
            command.env("RUST_LOG", "debug,hyper=info,h2=info");
        });
        let mut seen = Vec::new();
        for (dialect, text) in [
            ("native", "read my mail"),
            ("adk", "again"),
            ("held", "hello"),
        ] {
            let body = json!({"id": "c", "dialect": dialect, "messages": [{"id": format!("m-{dialect}"), "role": "user",
                "parts": [{"type": "text", "text": text}]}]});
            let answer = bridge.post("/api/chat", &body).await;
            seen.push(String::from_utf8_lossy(&answer.body).into_owned());
        }
        for dialect in ["native", "adk", "held"] {
            let shown = bridge.get(&format!("/api/chats/c?dialect={dialect}")).await;
            seen.push(String::from_utf8_lossy(&shown.body).into_owned());
        }
        // What a user may see is there.
        assert!(seen[0].contains("login.example"), "{}", seen[0]);
        assert!(
            seen[0].contains("mail.read") && seen[0].contains("\"seen\":1"),
            "{}",
            seen[0]
        );
        seen.push(bridge.log());
        let restored = stand_in.asked("/apps/");
        assert!(
            restored
                .iter()
                .any(|asked| asked.body.to_string().contains("read_mail")),
            "it was restored"
        );
        let sent = restored
            .iter()
            .chain(&stand_in.asked("/run_sse"))
            .map(|asked| asked.body.to_string())
            .collect::<Vec<_>>();
        seen.extend(sent);
        let data = bridge.directory.path().join("data");
        for file in std::fs::read_dir(data).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                seen.push(String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned());
            }
        }
        for text in &seen {
            let found = text
                .find(CLIENT_SECRET)
                .map(|at| &text[at.saturating_sub(300)..at]);
            assert_eq!(found, None);
        }
    }
}
