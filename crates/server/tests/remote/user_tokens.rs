//! Agents that are asked with the user's own token: each user's is used for that user only, and nothing is kept of it.

use std::path::Path;
use std::time::{Duration, SystemTime};

use adk_bridge_protocol::base64;
use serde_json::{Value, json};

use crate::decided::adk;
use crate::stand_in::{ReceivedRequest, StandIn, events, refused};
use crate::support::socket::Client;
use crate::support::users::{ALICE, BOB, KEYS};
use crate::support::{Bridge, JSON, asking, refused as refused_to_start, within};

const FROM: &str = "x-forwarded-access-token";
const TOKEN: &str = "token = { kind = \"user\", from = \"x-forwarded-access-token\" }\n";

type Header<'h> = (&'h str, &'h str);

fn bearer(asked: &ReceivedRequest) -> Option<&str> {
    let mut lines = asked.head.lines();
    lines.find_map(|line| line.strip_prefix("authorization: bearer "))
}

/// A token that nobody signed, which ends in so many seconds; heads are read in lower case.
fn jwt(name: &str, seconds: i64) -> String {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let end = i64::try_from(now.unwrap().as_secs()).unwrap() + seconds;
    let claims = base64::encode(json!({"exp": end, "of": name}).to_string().as_bytes());
    let claims = claims.replace('+', "-").replace('/', "_");
    format!("{name}-e30.{}.s", claims.trim_end_matches('='))
}

async fn post(bridge: &Bridge, headers: &[Header<'_>], body: &Value) -> Vec<String> {
    let headers = [&[JSON], headers].concat();
    let mut answer = bridge
        .open("POST", "/api/chat", &headers, &body.to_string())
        .await;
    assert_eq!(answer.status, 200, "{body}");
    answer.events().await
}

async fn ask(bridge: &Bridge, headers: &[Header<'_>], chat: &str, text: &str) -> String {
    post(bridge, headers, &asking(chat, text)).await.join("\n")
}

/// Takes the tokens of these tests, and no other.
fn guarded(asked: &ReceivedRequest) -> Vec<u8> {
    match bearer(asked) {
        Some(token) if token.starts_with("good-") => adk(asked),
        Some(token) => refused(401, "text/plain", &format!("{token} is unknown here")),
        None => refused(401, "text/plain", "who are you?"),
    }
}

/// Everything that the bridge has written: its log, and all files of its directory.
fn written(bridge: &Bridge) -> String {
    fn read(path: &Path, all: &mut String) {
        for entry in std::fs::read_dir(path).unwrap().flatten() {
            match entry.path() {
                path if path.is_dir() => read(&path, all),
                path => all.push_str(&String::from_utf8_lossy(
                    &std::fs::read(path).unwrap_or_default(),
                )),
            }
        }
    }
    let mut all = String::new();
    read(bridge.directory.path(), &mut all);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_user_comes_with_the_own_token() {
    let stand_in = StandIn::start(guarded).await;
    let toml = format!("{}{TOKEN}{KEYS}", stand_in.toml());
    let mut bridge = Bridge::with(&toml, |command| {
        command.env("RUST_LOG", "trace");
    });
    let tokens = |from: usize| -> Vec<String> {
        let asked = stand_in.asked("/").into_iter().skip(from);
        let mut tokens: Vec<String> = asked
            .map(|asked| bearer(&asked).unwrap_or("none").to_owned())
            .collect();
        tokens.dedup();
        tokens
    };
    assert_eq!(bridge.get("/ready").await.status, 200);

    // Nobody's token, and an expired one, are not enough; nothing is asked in the name of another user.
    let (late, early) = (jwt("good-alice", -5), jwt("good-alice", 3000));
    let before = stand_in.asked("/run_sse").len();
    for headers in [&[ALICE][..], &[ALICE, (FROM, late.as_str())]] {
        let said = ask(&bridge, headers, "c", "hello").await;
        assert!(said.contains("sign in again"), "{said}");
    }
    assert_eq!(stand_in.asked("/run_sse").len(), before);
    let seen = stand_in.asked("/").len();
    let said = ask(&bridge, &[ALICE, (FROM, &early)], "c", "hello").await;
    assert!(said.contains("fine"), "{said}");
    assert_eq!(tokens(seen), [early.to_lowercase()]);

    // The last one counts for all that follows, until another comes; an expired one does not take its place.
    let seen = stand_in.asked("/").len();
    let said = ask(&bridge, &[ALICE, (FROM, &late)], "c", "hello").await;
    assert!(said.contains("fine"), "{said}");
    assert_eq!(tokens(seen), [early.to_lowercase()]);
    let seen = stand_in.asked("/").len();
    let said = ask(&bridge, &[BOB], "c", "hello").await;
    assert!(said.contains("sign in again"), "{said}");
    assert_eq!(stand_in.asked("/").len(), seen);
    ask(
        &bridge,
        &[BOB, (FROM, "Bearer good-bob-0123")],
        "c",
        "hello",
    )
    .await;
    assert_eq!(tokens(seen), ["good-bob-0123"]);

    // A page cannot send headers with a WebSocket: the request for its ticket has brought the token.
    let seen = stand_in.asked("/").len();
    let headers = [ALICE, (FROM, "good-alice-of-ticket")];
    let ticket = bridge
        .send("POST", "/api/ticket", &headers, "")
        .await
        .json();
    let path = format!(
        "/live?chat=spoken&ticket={}",
        ticket["ticket"].as_str().unwrap()
    );
    let mut client = Client::open(&bridge, &path).await;
    client.say("hello").await;
    let (_, chunks) = client.turn().await;
    assert!(json!(chunks).to_string().contains("fine"), "{chunks:?}");
    assert_eq!(tokens(seen), ["good-alice-of-ticket"]);
    client.leave().await;

    // A question outlives the process, the token does not; who answers brings another.
    ask(&bridge, &[ALICE], "q", "pay both").await;
    bridge.kill_and_restart();
    let said = ask(&bridge, &[ALICE], "c", "hello").await;
    assert!(said.contains("sign in again"), "{said}");
    let seen = stand_in.asked("/").len();
    let shown = bridge
        .send("GET", "/api/chats/q", &[ALICE], "")
        .await
        .json();
    let mut messages = shown["messages"].clone();
    for part in messages[1]["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(true);
        }
    }
    let body = json!({"id": "q", "messages": messages});
    let said = post(&bridge, &[ALICE, (FROM, "good-alice-again")], &body).await;
    assert!(said.join("").contains("Done."), "{said:?}");
    assert_eq!(tokens(seen), ["good-alice-again"]);

    // The agent has the last word, and may quote the token.
    let said = ask(&bridge, &[ALICE, (FROM, "stolen-token-4711")], "c", "hello").await;
    assert!(
        said.contains("sign in again") && said.contains("[hidden] is unknown"),
        "{said}"
    );
    let written = written(&bridge);
    for secret in ["good-alice", "good-bob", "stolen-token"] {
        assert!(!written.contains(secret), "{secret}");
        assert!(!said.contains(secret), "{secret}");
    }
}

/// Where nobody asks, an expired question has no token: the turn says so, and the conversation goes on when the user is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_happens_without_the_user_waits_for_the_user() {
    let stand_in = StandIn::start(guarded).await;
    let toml = format!("{}{TOKEN}[approval]\ntimeout = \"1s\"\n", stand_in.toml());
    let mut bridge = Bridge::configured(&toml);
    ask(&bridge, &[(FROM, "good-local-0123")], "c", "pay both").await;
    bridge.kill_and_restart();
    within(async {
        while bridge
            .last_message("c")
            .await
            .to_string()
            .contains("approval-requested")
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    let message = bridge.last_message("c").await;
    assert_eq!(message["metadata"]["ended"], "failed", "{message}");
    assert!(bridge.log().contains("kind=unauthorized"));
    let runs = stand_in.asked("/run_sse").len();
    let said = ask(&bridge, &[(FROM, "good-local-again")], "c", "go on").await;
    assert!(said.contains("fine"), "{said}");
    let asked = stand_in.asked("/run_sse");
    assert!(asked.len() > runs);
    let confirmed = asked[runs..]
        .iter()
        .any(|run| run.body.to_string().contains("\"confirmed\":true"));
    assert!(!confirmed, "what expired is not a yes");
}

/// A model behind chat completions gets it, too, and no key of the bridge.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_is_asked_with_the_own_token() {
    let stand_in = StandIn::start(|asked| match bearer(asked) {
        Some("good-alice-0123") => events(
            "data: {\"choices\":[{\"delta\":{\"content\":\"fine\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n",
        ),
        _ => refused(401, "application/json", "{\"error\":{\"message\":\"no\"}}"),
    })
    .await;
    let toml = format!(
        "[agent]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"http://{}/v1\"\n{TOKEN}{KEYS}",
        stand_in.address
    );
    let bridge = Bridge::configured(&toml);
    let said = ask(&bridge, &[ALICE], "c", "hello").await;
    assert!(said.contains("sign in again"), "{said}");
    assert!(stand_in.asked("/").is_empty());
    let said = ask(&bridge, &[ALICE, (FROM, "good-alice-0123")], "c", "hello").await;
    assert!(said.contains("fine"), "{said}");
    let said = ask(&bridge, &[BOB, (FROM, "bad-bob-0123")], "c", "hello").await;
    assert!(said.contains("refuses the token"), "{said}");
}

#[test]
fn keys_of_the_bridge_are_no_tokens() {
    let agent = "[agent]\nkind = \"adk\"\napp = \"a\"\n";
    for (token, word) in [
        ("{ kind = \"user\" }", "from ="),
        ("{ kind = \"user\", from = \"a b\" }", "from ="),
        ("{ kind = \"file\", path = \"x\", from = \"y\" }", "from ="),
        (
            "{ kind = \"user\", from = \"Authorization\" }",
            "auth.api_keys",
        ),
    ] {
        let toml = format!("{agent}token = {token}\n{KEYS}");
        let said = refused_to_start(&toml, |_| {});
        assert!(
            said.contains("agent.token") && said.contains(word),
            "{token}: {said}"
        );
    }
}
