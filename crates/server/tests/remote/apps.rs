//! `apps = "*"`: the apps of an ADK server become agents, come and go.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::decided::adk;
use crate::stand_in::{ReceivedRequest, StandIn, ok, refused as refuse, well};
use crate::support::http::Response;
use crate::support::{Bridge, asking, refused, within};

type Listed = Arc<Mutex<Vec<u8>>>;

fn apps(names: &[&str]) -> Vec<u8> {
    ok(&json!(names))
}

/// A server whose list of apps the test changes.
fn listing(listed: &Listed) -> impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync + 'static {
    let listed = listed.clone();
    move |asked| match asked.path.as_str() {
        "/list-apps" => listed.lock().unwrap().clone(),
        _ => well(asked),
    }
}

fn toml(server: &StandIn, keys: &str) -> String {
    let address = server.address;
    format!("[[agents]]\nkind = \"adk\"\nbase_url = \"http://{address}\"\napps = \"*\"\n{keys}\n")
}

/// Asks for the agents until they are these.
async fn until_listed(bridge: &Bridge, wanted: &[&str]) -> Value {
    let wait = async {
        loop {
            let all = bridge.get("/api/agents").await.json();
            let ids: Vec<&str> = (all.as_array().unwrap().iter())
                .map(|agent| agent["id"].as_str().unwrap())
                .collect();
            if ids == wanted {
                return all;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(wait).await
}

/// An address at which nothing listens.
fn nowhere() -> std::net::SocketAddr {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap()
}

/// Asks in a chat, which this app answers.
async fn assert_answers(bridge: &Bridge, server: &StandIn, chat: &str, app: &str) {
    let answer = bridge.post("/api/chat", &asking(chat, "hi")).await;
    assert_eq!(answer.status, 200);
    let asked = server.asked("/run_sse").pop().unwrap();
    assert_eq!(asked.body["appName"], app);
}

/// The code of an answer that says that the bridge cannot do its work.
fn code(answer: &Response) -> Option<&str> {
    answer.header("x-error-code")
}

fn to(agent: &str, chat: &str) -> Value {
    let mut request = asking(chat, "hi");
    request["agent"] = json!(agent);
    request
}

#[tokio::test]
async fn apps_come_and_go() {
    let listed = Listed::new(Mutex::new(apps(&["shop", "weather"])));
    let server = StandIn::start(listing(&listed)).await;
    let mut bridge = Bridge::configured(&toml(&server, ""));
    let all = until_listed(&bridge, &["shop", "weather"]).await;
    assert_eq!(
        (&all[0]["default"], &all[1]["default"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(
        (&all[1]["name"], &all[1]["kind"]),
        (&json!("weather"), &json!("adk"))
    );
    for (chat, request, app) in [
        ("a", asking("a", "hi"), "shop"),
        ("b", to("weather", "b"), "weather"),
    ] {
        assert_eq!(bridge.post("/api/chat", &request).await.status, 200);
        let run = server.asked("/run_sse").pop().unwrap();
        assert_eq!(run.body["appName"], app, "{chat}");
    }

    // One comes: whoever names it does not wait for the next look.
    *listed.lock().unwrap() = apps(&["shop", "weather", "news"]);
    within(async { while bridge.post("/api/chat", &to("news", "c")).await.status != 200 {} }).await;
    assert_eq!(
        server.asked("/run_sse").pop().unwrap().body["appName"],
        "news"
    );

    // One goes.
    *listed.lock().unwrap() = apps(&["shop", "news"]);
    until_listed(&bridge, &["shop", "news"]).await;
    let runs = server.asked("/run_sse").len();
    for request in [asking("b", "hi"), to("weather", "b")] {
        let gone = bridge.post("/api/chat", &request).await;
        assert_eq!((gone.status, gone.code()), (410, "agent_gone".into()));
        assert!(gone.message().contains("weather"), "{}", gone.message());
    }
    let unknown = bridge.post("/api/chat", &to("weather", "d")).await;
    assert_eq!(
        (unknown.status, unknown.code()),
        (404, "unknown_agent".into())
    );
    assert_eq!(bridge.get("/api/chats/b").await.json()["agent"], "weather");
    assert_eq!(server.asked("/run_sse").len(), runs);
    // It is not there after a restart either, and there again when the server says so.
    bridge.kill_and_restart();
    assert_eq!(
        bridge.post("/api/chat", &asking("b", "hi")).await.code(),
        "agent_gone"
    );
    *listed.lock().unwrap() = apps(&["shop", "news", "weather"]);
    until_listed(&bridge, &["shop", "news", "weather"]).await;
    assert_answers(&bridge, &server, "b", "weather").await;
}

#[tokio::test]
async fn a_server_that_is_away_is_said_by_name_and_found_when_it_comes() {
    let address = nowhere();
    let config = format!(
        "[[agents]]\nid = \"far\"\nkind = \"adk\"\nbase_url = \"http://{address}\"\napps = \"*\"\n"
    );
    let bridge = Bridge::configured(&config);
    assert!(
        bridge.log().contains("attention") && bridge.log().contains("far"),
        "{}",
        bridge.log()
    );
    let ready = bridge.get("/ready").await;
    assert_eq!((ready.status, code(&ready)), (503, Some("no_agent")));
    assert!(ready.message().contains("far") && !ready.message().contains(&address.to_string()));
    assert_eq!(bridge.get("/api/agents").await.json(), json!([]));
    for request in [asking("a", "hi"), to("far.shop", "a")] {
        let early = bridge.post("/api/chat", &request).await;
        assert_eq!((early.status, code(&early)), (503, Some("no_agent")));
        assert!(early.header("retry-after").is_some());
        assert!(early.message().contains("far"), "{}", early.message());
    }
    assert_eq!(code(&bridge.get("/api/agent").await), Some("no_agent"));
    assert_eq!(
        bridge.post("/api/chat", &to("near.shop", "a")).await.code(),
        "unknown_agent"
    );

    let listed = Listed::new(Mutex::new(apps(&["shop"])));
    let server = StandIn::start_at(address, listing(&listed)).await;
    until_listed(&bridge, &["far.shop"]).await;
    assert_eq!(bridge.get("/ready").await.status, 200);
    assert_answers(&bridge, &server, "a", "shop").await;

    // With another agent beside it the bridge is ready, and says what is missing.
    let away = nowhere();
    let both = format!(
        "[[agents]]\nid = \"own\"\n{}",
        config.replace(&address.to_string(), &away.to_string())
    );
    let bridge = Bridge::configured(&both);
    let ready = bridge.get("/ready").await;
    assert_eq!(
        (ready.status, &ready.json()["unreachable"]),
        (200, &json!(["far"]))
    );
    assert_eq!(
        bridge
            .post("/api/chat", &asking("a", "say hi"))
            .await
            .status,
        200
    );
}

/// One app that the configuration names: its server is away, comes without the app, and then has it.
#[tokio::test]
async fn a_named_app_that_is_not_there_is_said_by_its_agent() {
    let address = nowhere();
    let toml = format!(
        "[[agents]]\nid = \"own\"\n[[agents]]\nid = \"till\"\nkind = \"adk\"\nbase_url = \"http://{address}\"\napp = \"shop\"\n"
    );
    let bridge = Bridge::configured(&toml);
    let ready = bridge.get("/ready").await;
    assert_eq!(
        (ready.status, ready.json()),
        (200, json!({"status": "ready", "unreachable": ["till"]}))
    );
    assert!(!ready.json().to_string().contains(&address.to_string()));

    let listed = Listed::new(Mutex::new(apps(&["news", "weather"])));
    let server = StandIn::start_at(address, listing(&listed)).await;
    until_ready(
        &bridge,
        &json!({"status": "ready", "missingApps": ["till"]}),
    )
    .await;
    // Health checks are answered from what is known.
    let looks = server.asked("/list-apps").len();
    for _ in 0..50 {
        assert_eq!(bridge.get("/ready").await.status, 200);
    }
    assert!(server.asked("/list-apps").len() <= looks + 3);
    let log = bridge.log();
    let said = "the agent till cannot answer: the ADK server at";
    assert_eq!(log.matches(said).count(), 1, "{log}");
    assert!(
        log.contains("has no app \"shop\", only \"news\", \"weather\""),
        "{log}"
    );
    // A server that fails, or has no list, says nothing of its apps.
    *listed.lock().unwrap() = refuse(500, "text/plain", "no");
    let looks = server.asked("/list-apps").len();
    let looked = async {
        while server.asked("/list-apps").len() == looks {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(looked).await;
    assert_eq!(
        bridge.get("/ready").await.json()["missingApps"],
        json!(["till"])
    );

    *listed.lock().unwrap() = apps(&["news", "shop"]);
    until_ready(&bridge, &json!({"status": "ready"})).await;
    assert_eq!(bridge.post("/api/chat", &to("till", "a")).await.status, 200);
    let asked = server.asked("/run_sse").pop().unwrap();
    assert_eq!(asked.body["appName"], "shop");
}

/// Asks whether the bridge is ready until it answers this.
async fn until_ready(bridge: &Bridge, wanted: &Value) {
    let wait = async {
        while bridge.get("/ready").await.json() != *wanted {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(wait).await;
}

/// A list may be anything: what cannot be an agent is left out, and nothing fails.
#[tokio::test]
async fn lists_that_are_none_make_no_agents() {
    let many: Vec<String> = (0..1_000).map(|n| format!("app{n}")).collect();
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    for (list, agents) in [
        (
            apps(&["ok", "a b", "..", "a/b", "", "own", "ok"]),
            vec!["own", "ok"],
        ),
        (ok(&json!({"apps": ["a"]})), vec!["own"]),
        (ok(&json!([1, null, {}])), vec!["own"]),
        (refuse(500, "text/plain", "no"), vec!["own"]),
        (refuse(200, "application/json", &deep), vec!["own"]),
        (refuse(200, "application/json", "[\"a"), vec!["own"]),
        (b"nonsense".to_vec(), vec!["own"]),
    ] {
        let listed = Listed::new(Mutex::new(list));
        let server = StandIn::start(listing(&listed)).await;
        let config = format!("[[agents]]\nid = \"own\"\n{}", toml(&server, ""));
        let bridge = Bridge::configured(&config);
        until_listed(&bridge, &agents).await;
        assert_eq!(
            bridge
                .post("/api/chat", &asking("a", "say hi"))
                .await
                .status,
            200
        );
    }
    // An id in front of a name does not make it another one; and a long list is not repeated.
    let mut odd = vec!["ok".to_owned(), ".".to_owned(), "..".to_owned()];
    odd.extend((0..100).map(|n| format!("{n} {}", "x".repeat(5_000))));
    let listed = Listed::new(Mutex::new(ok(&json!(odd))));
    let server = StandIn::start(listing(&listed)).await;
    let bridge = Bridge::configured(&toml(&server, "id = \"shop\"\n"));
    until_listed(&bridge, &["shop.ok"]).await;
    let log = bridge.log();
    assert!(log.contains("\"..\" (its id could not stand"), "{log}");
    assert!(log.contains("94 more"), "{log}");
    assert!(log.len() < 20_000, "{}", log.len());

    let listed = Listed::new(Mutex::new(ok(&json!(many))));
    let server = StandIn::start(listing(&listed)).await;
    let bridge = Bridge::configured(&toml(&server, ""));
    let all = bridge.get("/api/agents").await.json();
    assert_eq!(all.as_array().unwrap().len(), 200);
    assert!(
        bridge.log().contains("all after the first 200"),
        "{}",
        bridge.log()
    );
}

#[tokio::test]
async fn an_app_that_is_not_there_is_refused_at_start() {
    let listed = Listed::new(Mutex::new(apps(&["shop", "weather"])));
    let server = StandIn::start(listing(&listed)).await;
    let address = server.address;
    let keys = format!("kind = \"adk\"\nbase_url = \"http://{address}\"\napp = \"shp\"");
    for (toml, names) in [
        (format!("[agent]\n{keys}"), "agent.app"),
        (
            format!("[[agents]]\nid = \"x\"\n{keys}"),
            "agents \"x\": app",
        ),
    ] {
        let said = tokio::task::spawn_blocking(move || refused(&toml, |_| {}))
            .await
            .unwrap();
        for word in [names, "\"shp\"", "shop, weather"] {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
}

/// A question that waits for an app whose server is away expires when it is back: nobody has to ask for the chat.
#[tokio::test]
async fn what_was_interrupted_goes_on_when_the_app_is_there() {
    let serve = |asked: &ReceivedRequest| match asked.path.as_str() {
        "/list-apps" => apps(&["app"]),
        _ => adk(asked),
    };
    let first = StandIn::start(serve).await;
    let expiry = "[approval]\ntimeout = \"5s\"\n";
    let config = toml(&first, expiry);
    let mut bridge = Bridge::configured(&config);
    let asked = bridge.post("/api/chat", &asking("c", "pay both")).await;
    assert_eq!(asked.status, 200);
    assert_eq!(first.asked("/run_sse").len(), 1);

    let address = nowhere();
    let moved = config.replace(&first.address.to_string(), &address.to_string());
    std::fs::write(bridge.directory.path().join("test.toml"), moved).unwrap();
    bridge.kill_and_restart();
    let away = bridge.post("/api/chat", &asking("c", "hello?")).await;
    assert_eq!((away.status, code(&away)), (503, Some("no_agent")));
    assert_eq!(bridge.get("/api/chats/c").await.json()["agent"], "app");

    let second = StandIn::start_at(address, serve).await;
    let expired = async {
        while second.asked("/run_sse").is_empty() {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    };
    within(expired).await;
    let sent = second.asked("/run_sse")[0].body["newMessage"]["parts"].clone();
    let text = sent.to_string();
    assert!(
        text.contains("functionResponse") && !text.contains("true"),
        "{text}"
    );
}
