//! What a front end and the configuration hand in to the session of an ADK agent: its state, and marks for a run.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use adk_bridge_protocol::base64;
use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, events, fine, ok, refused, well};
use crate::support::socket::Client;
use crate::support::{Bridge, JSON, asking, refused as refused_to_start, text_of, within};

const KEYS: &str = "[auth]\napi_keys = [{ key = \"key-of-ann-0123456789\", user = \"ann\" }]\n";
const ANN: (&str, &str) = ("authorization", "Bearer key-of-ann-0123456789");

fn with(mut request: Value, fields: Value) -> Value {
    for (name, value) in fields.as_object().unwrap() {
        request[name] = value.clone();
    }
    request
}

async fn ask(bridge: &Bridge, request: &Value) -> Vec<String> {
    let body = request.to_string();
    let mut answer = bridge.open("POST", "/api/chat", &[JSON, ANN], &body).await;
    assert_eq!(answer.status, 200, "{request}");
    answer.events().await
}

/// The sessions that were created, and the runs, without what every run has.
fn told(stand_in: &StandIn) -> (Vec<Value>, Vec<Value>) {
    let created = stand_in.asked("/sessions").into_iter();
    let created = created.filter(|asked| asked.head.starts_with("post"));
    let created = created.map(|asked| asked.body["state"].clone()).collect();
    let runs = stand_in.asked("/run_sse").into_iter();
    let runs = runs.map(|asked| {
        json!({"delta": asked.body.get("stateDelta"), "marks": asked.body.get("customMetadata")})
    });
    (created, runs.collect())
}

fn run(delta: Value, marks: Value) -> Value {
    json!({"delta": delta, "marks": marks})
}

/// Forgets its sessions when it is told to.
fn forgetful(forgot: Arc<AtomicBool>) -> impl Fn(&ReceivedRequest) -> Vec<u8> + Send + Sync {
    move |asked| match asked.path.as_str() {
        path if path.ends_with("/sessions") => {
            forgot.store(false, Ordering::SeqCst);
            well(asked)
        }
        "/run_sse" if forgot.load(Ordering::SeqCst) => {
            refused(404, "application/json", r#"{"detail":"Session not found"}"#)
        }
        "/run_sse" if asked.body["newMessage"].to_string().contains("change") => {
            let changed =
                json!({"author": "app", "actions": {"stateDelta": {"page": "agent's", "own": 1}}});
            events(format!("data: {changed}\n\n{}", fine()))
        }
        _ => well(asked),
    }
}

/// The claims of a key stand where the configuration names them. A key whose claim is missing is left out, and no front end can
/// set it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_begins_with_the_claims_of_its_user() {
    let stand_in = StandIn::start(well).await;
    let keys = "[[auth.api_keys]]\nkey = \"key-of-ann-0123456789\"\nuser = \"ann\"\n\
                claims = { email = \"ann@x.example\", groups = [\"a\", \"b\"], secret = \"unnamed-claim\" }\n";
    let state = "state = { mail = \"{user} <{claims.email}>\", in = \"{claims.groups}\", boss = \"{claims.boss}\" }\n";
    let bridge = Bridge::configured(&format!("{}{state}{keys}", stand_in.toml()));
    ask(&bridge, &asking("c", "one")).await;
    let (created, runs) = told(&stand_in);
    assert_eq!(
        created,
        [json!({"mail": "ann <ann@x.example>", "in": ["a", "b"]})]
    );
    assert_eq!(runs, [run(Value::Null, Value::Null)]);
    let request = with(asking("c", "two"), json!({"state": {"boss": "me"}}));
    let headers = [JSON, ANN];
    let refused = bridge
        .send("POST", "/api/chat", &headers, request.to_string())
        .await;
    assert_eq!(refused.status, 422, "{refused:?}");
    assert!(!format!("{:?}", stand_in.asked("/")).contains("unnamed-claim"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_begins_with_the_state_of_configuration_and_request() {
    let forgot = Arc::new(AtomicBool::new(false));
    let stand_in = StandIn::start(forgetful(forgot.clone())).await;
    let state = "state = { user_name = \"{user}\", \"user:plan\" = { tier = 2 } }\n";
    let mut bridge = Bridge::configured(&format!("{}{state}{KEYS}", stand_in.toml()));
    let own = json!({"user_name": "ann", "user:plan": {"tier": 2}});
    let all = with(own.clone(), json!({"page": "cart"}));

    // A front end sends its state with every request; it is told once.
    for text in ["one", "two"] {
        ask(
            &bridge,
            &with(asking("c", text), json!({"state": {"page": "cart"}})),
        )
        .await;
    }
    let nothing = run(Value::Null, Value::Null);
    assert_eq!(
        told(&stand_in),
        (vec![all.clone()], vec![nothing.clone(); 2])
    );
    // What has changed in it, and what one message changes, goes with the message; marks go with every run.
    let news = json!({"state": {"page": "shop"}, "stateDelta": {"n": 1}, "customMetadata": {"trace": "t"}});
    ask(&bridge, &with(asking("c", "three"), news)).await;
    ask(&bridge, &asking("c", "change")).await;
    let runs = told(&stand_in).1;
    let three = run(json!({"page": "shop", "n": 1}), json!({"trace": "t"}));
    assert_eq!(runs[2..], [three, nothing.clone()]);

    // A session that was lost is as it was, after a restart of the bridge as well: what the agent changed counts.
    bridge.kill_and_restart();
    forgot.store(true, Ordering::SeqCst);
    ask(&bridge, &asking("c", "four")).await;
    let restored = with(own.clone(), json!({"page": "agent's", "own": 1, "n": 1}));
    let (created, runs) = told(&stand_in);
    assert_eq!(created, [all, restored]);
    assert_eq!(runs.last(), Some(&nothing));
    // What the front end says after that counts again, and so it does in the next session.
    ask(
        &bridge,
        &with(asking("c", "five"), json!({"stateDelta": {"page": "last"}})),
    )
    .await;
    forgot.store(true, Ordering::SeqCst);
    ask(&bridge, &asking("c", "six")).await;
    let (created, _) = told(&stand_in);
    assert_eq!(created[2]["page"], "last");

    // A chat that asks for nothing gets what the configuration sets, and only that.
    ask(&bridge, &asking("other", "one")).await;
    assert_eq!(told(&stand_in).0.last(), Some(&own));
}

/// Go servers refuse fields that they do not know.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_where_nothing_is_handed_in() {
    let stand_in = StandIn::start(well).await;
    let bridge = Bridge::configured(&stand_in.toml());
    let empty = json!({"state": {}, "stateDelta": {}, "customMetadata": {}});
    let nothing = json!({"state": null, "stateDelta": null, "customMetadata": null});
    for (chat, fields) in [("a", empty), ("b", nothing), ("c", json!({}))] {
        bridge
            .post("/api/chat", &with(asking(chat, "hi"), fields))
            .await;
    }
    for asked in stand_in.asked("/") {
        let Some(body) = asked.body.as_object() else {
            continue;
        };
        for name in ["state", "stateDelta", "customMetadata"] {
            assert!(!body.contains_key(name), "{asked:?}");
        }
    }
    assert_eq!(stand_in.asked("/run_sse").len(), 3);
}

/// An agent whose server cannot be reached is told when it is back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_did_not_reach_the_agent_goes_with_the_next_message() {
    let away = Arc::new(AtomicBool::new(true));
    let gone = away.clone();
    let stand_in = StandIn::start(move |asked| match asked.path.as_str() {
        "/run_sse" if gone.load(Ordering::SeqCst) => refused(500, "text/plain", "down"),
        _ => well(asked),
    })
    .await;
    let mut bridge = Bridge::configured(&stand_in.toml());
    let delta = json!({"stateDelta": {"n": 1, "m": [null]}});
    bridge
        .post("/api/chat", &with(asking("c", "one"), delta.clone()))
        .await;
    away.store(false, Ordering::SeqCst);
    bridge.kill_and_restart();
    bridge.post("/api/chat", &asking("c", "two")).await;
    bridge.post("/api/chat", &asking("c", "three")).await;
    let runs = told(&stand_in).1;
    let deltas: Vec<&Value> = runs.iter().map(|run| &run["delta"]).collect();
    let told = &delta["stateDelta"];
    assert_eq!(deltas, [told, told, &Value::Null]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_front_end_may_not_hand_in_is_refused_by_name() {
    let stand_in = StandIn::start(well).await;
    let state = "state = { user_name = \"{user}\" }\n";
    let bridge = Bridge::configured(&format!("{}{state}", stand_in.toml()));
    let deep = (0..20).fold(json!(1), |inner, _| json!([inner]));
    let large = json!({"a": "x".repeat(70_000)});
    let cases = [
        (json!({"state": 7}), 422, "wrong_type", "state"),
        (json!({"state": [1]}), 422, "wrong_type", "state"),
        (json!({"stateDelta": "x"}), 422, "wrong_type", "stateDelta"),
        (
            json!({"customMetadata": true}),
            422,
            "wrong_type",
            "customMetadata",
        ),
        (
            json!({"state": {"app:motto": 1}}),
            422,
            "bad_value",
            "app:motto",
        ),
        (
            json!({"stateDelta": {"user:plan": 1}}),
            422,
            "bad_value",
            "user:plan",
        ),
        (
            json!({"stateDelta": {"temp:x": 1}}),
            422,
            "bad_value",
            "temp:x",
        ),
        (
            json!({"stateDelta": {"_adk_x": 1}}),
            422,
            "bad_value",
            "_adk_x",
        ),
        (
            json!({"state": {"ADK_oauth2_1": 1}}),
            422,
            "bad_value",
            "ADK_oauth2_1",
        ),
        (
            json!({"state": {"user_name": "eve"}}),
            422,
            "bad_value",
            "agent.state",
        ),
        (
            json!({"stateDelta": {"user_name": "eve"}}),
            422,
            "bad_value",
            "agent.state",
        ),
        (json!({"state": {"": 1}}), 422, "bad_value", "\"\""),
        (
            json!({"state": {"k".repeat(129): 1}}),
            422,
            "bad_value",
            "1 to 128",
        ),
        (json!({"state": {"a": deep}}), 422, "bad_value", "deep"),
        (json!({"state": large}), 413, "too_large", "state"),
        (json!({"stateDelta": large}), 413, "too_large", "stateDelta"),
        (
            json!({"customMetadata": large}),
            413,
            "too_large",
            "customMetadata",
        ),
    ];
    let mut live = Client::open(&bridge, "/live?chat=live").await;
    for (fields, status, code, word) in cases {
        let request = with(asking("c", "hi"), fields.clone());
        let refusal = bridge.post("/api/chat", &request).await;
        assert_eq!(
            (refusal.status, refusal.code().as_str()),
            (status, code),
            "{fields}"
        );
        assert!(refusal.message().contains(word), "{}", refusal.message());
        let frame = with(
            json!({"type": "message", "messages": request["messages"]}),
            fields,
        );
        live.send(frame).await;
        assert_eq!(live.control().await["code"], code);
    }
    assert!(stand_in.asked("/run_sse").is_empty());
    assert_eq!(bridge.get("/api/chats").await.json(), json!([]));
}

/// A page may serve several agents: what only some of them take does not break the others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_without_a_session_is_not_disturbed() {
    let bridge = Bridge::start();
    for fields in [
        json!({"state": {"page": "cart"}, "stateDelta": {"a": 1}, "customMetadata": {"b": 2}}),
        json!({"state": "idle"}),
    ] {
        let answer = bridge
            .post("/api/chat", &with(asking("c", "say hi"), fields))
            .await;
        assert_eq!(answer.status, 200);
    }
    let said = refused_to_start("[agent]\nstate = { a = 1 }\n", |_| {});
    assert!(
        said.contains("agent.state") && said.contains("session"),
        "{said}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sockets_hand_in_as_requests_do() {
    let stand_in = StandIn::start(|asked| match asked.path.as_str() {
        path if path.ends_with("/sessions") => ok(&json!({"id": "s"})),
        _ => well(asked),
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    let fields = json!({"state": {"a": 1}, "stateDelta": {"b": 2}, "customMetadata": {"c": 3}});
    let messages = asking("x", "hi")["messages"].clone();
    let mut live = Client::open(&bridge, "/live?chat=live").await;
    live.send(with(
        json!({"type": "message", "messages": messages}),
        fields.clone(),
    ))
    .await;
    let (_, chunks) = live.turn().await;
    assert!(json!(chunks).to_string().contains("fine"), "{chunks:?}");
    let mut stock = Client::open(&bridge, "/api/chat/ws").await;
    let send = json!({"type": "send", "requestId": "r", "id": "ws", "messages": messages, "trigger": "submit-message", "body": fields});
    stock.send(send).await;
    while stock.json().await["type"] != "end" {}
    let one = run(json!({"b": 2}), json!({"c": 3}));
    let state = json!({"a": 1});
    assert_eq!(told(&stand_in), (vec![state; 2], vec![one; 2]));
}

/// A session that was there before the bridge knew it has not been told anything.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_that_is_there_already_is_told_with_the_first_run() {
    let stand_in = StandIn::start(|asked| match asked.path.as_str() {
        path if path.ends_with("/sessions") => refused(
            409,
            "application/json",
            r#"{"detail":"Session already exists"}"#,
        ),
        _ => well(asked),
    })
    .await;
    let bridge = Bridge::configured(&stand_in.toml());
    for text in ["one", "two"] {
        let answer = bridge
            .post(
                "/api/chat",
                &with(asking("c", text), json!({"state": {"a": 1}})),
            )
            .await;
        assert_eq!(answer.status, 200);
    }
    let runs = told(&stand_in).1;
    assert_eq!(
        runs,
        [
            run(json!({"a": 1}), Value::Null),
            run(Value::Null, Value::Null)
        ]
    );
    let message = bridge.last_message("c").await;
    assert_eq!(text_of(&message), "fine");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spoken_conversation_begins_with_the_state() {
    let stand_in = StandIn::start(well).await;
    let state = "state = { user_name = \"{user}\" }\n";
    let bridge = Bridge::configured(&format!("{}{state}", stand_in.toml()));
    let mut live = Client::open(&bridge, "/live?chat=c").await;
    let silence = base64::encode(&[0; 640]);
    live.send(json!({"type": "audio_chunk", "chunk": silence}))
        .await;
    let asked = async {
        while stand_in.asked("/sessions").is_empty() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    within(asked).await;
    assert_eq!(told(&stand_in).0, [json!({"user_name": "local"})]);
}
