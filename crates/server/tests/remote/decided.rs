//! What an agent is sent when a user decides one of two questions and sends a new message.

use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, events, fine, refused, session, text_of};
use crate::support::Bridge;

const CALLS: [(&str, &str, u32); 2] = [
    ("fc-1", "process_payment", 10),
    ("fc-2", "process_payment", 20),
];

/// A model gets both outcomes with the newer message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_gets_both_outcomes() {
    let stand_in = StandIn::start(|asked| {
        let first = asked.body["contents"].as_array().map(Vec::len) == Some(1);
        let calls = CALLS.map(|(_, name, amount)| {
            json!({"functionCall": {"name": name, "args": {"amount": amount, "recipient": "x"}}})
        });
        let parts = if first {
            json!(calls)
        } else {
            json!([{"text": "fine"}])
        };
        let content = json!({"role": "model", "parts": parts});
        let chunk = json!({"candidates": [{"content": content, "finishReason": "STOP"}]});
        events(format!("data: {chunk}\n\n"))
    })
    .await;
    let toml = format!(
        "[agent]\nkind = \"gemini\"\nbase_url = \"http://{}\"\ntools = [\"process_payment\"]\n",
        stand_in.address
    );
    let bridge = Bridge::with(&toml, |command| {
        command.env("GEMINI_API_KEY", "a-key");
    });
    approve_first_and_write_on(&bridge).await;
    let asked = stand_in.asked("/");
    assert_eq!(asked.len(), 2, "the closed reply asks no more: {asked:#?}");
    let contents = asked[1].body["contents"].as_array().unwrap();
    let responses: Vec<&Value> = contents
        .iter()
        .flat_map(|content| content["parts"].as_array().unwrap())
        .filter_map(|part| part.get("functionResponse"))
        .map(|response| &response["response"])
        .collect();
    assert_eq!(responses.len(), 2, "{contents:#?}");
    assert_eq!(responses[0]["balance"], 990, "{responses:?}");
    let error = responses[1]["error"].as_str().unwrap();
    assert!(error.contains("went on without an answer"), "{error}");
    let last = contents.last().unwrap();
    assert_eq!(last["parts"][0]["text"], "go on", "{contents:#?}");
}

/// An ADK server acts on its questions when all are answered: the one that was left is not confirmed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adk_server_runs_what_was_approved_before_it_hears_more() {
    let stand_in = StandIn::start(adk).await;
    let bridge = Bridge::configured(&stand_in.toml());
    approve_first_and_write_on(&bridge).await;
    let runs: Vec<Value> = stand_in
        .asked("/run_sse")
        .into_iter()
        .map(|asked| asked.body["newMessage"]["parts"].clone())
        .collect();
    assert_eq!(runs.len(), 3, "{runs:#?}");
    let confirmed: Vec<&Value> = runs[1]
        .as_array()
        .unwrap()
        .iter()
        .map(|part| &part["functionResponse"]["response"]["confirmed"])
        .collect();
    assert_eq!(confirmed, [true, false], "{runs:#?}");
    assert_eq!(runs[2][0]["text"], "go on", "{runs:#?}");
}

/// The same where the decision came in a request of its own, as a page and the library send it, before the user wrote:
/// next to another question, and next to a client tool whose output is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adk_server_gets_what_was_decided_before_the_user_wrote() {
    for (text, other) in [("pay both", "confirm-fc-2"), ("pay and pick", "fc-3")] {
        for approved in [true, false] {
            let stand_in = StandIn::start(adk).await;
            let bridge = Bridge::configured(&stand_in.toml());
            let mut messages = answered(&bridge, text, approved).await;
            let body = json!({"id": "c", "messages": messages});
            assert_eq!(bridge.post("/api/chat", &body).await.status, 200);
            assert_eq!(stand_in.asked("/run_sse").len(), 1, "{text}");
            messages.push(user("u2", "go on"));
            let body = json!({"id": "c", "messages": messages});
            let response = bridge.post("/api/chat", &body).await;
            let said = String::from_utf8_lossy(&response.body).into_owned();
            assert!(said.contains("fine"), "{said}");

            let (state, kind) = match approved {
                true => ("output-available", "approval.approved"),
                false => ("output-denied", "approval.denied"),
            };
            let states = states(&bridge).await;
            assert_eq!(states, [state, "output-error"], "{text}");
            assert_eq!(audited(&bridge, kind).await, 1, "{text}");
            let runs = stand_in.asked("/run_sse");
            let sent: Vec<Value> = runs
                .iter()
                .flat_map(|run| run.body["newMessage"]["parts"].as_array().unwrap().clone())
                .filter_map(|part| part.get("functionResponse").cloned())
                .collect();
            let of = |id: &str| -> Vec<&Value> {
                let sent = sent.iter().filter(|it| it["id"] == id);
                sent.map(|it| &it["response"]["confirmed"]).collect()
            };
            assert_eq!(of("confirm-fc-1"), [approved], "{text}: {sent:#?}");
            assert_eq!(of(other).len(), 1, "{text}: {sent:#?}");
            assert_ne!(*of(other)[0], true, "{text}: {sent:#?}");
            assert_eq!(text_of(runs.last().unwrap()), "go on", "{text}");
        }
    }
}

/// An ADK server takes an answer only where it asked: what was deleted meanwhile is left out of its next session.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_adk_server_gets_an_approval_whatever_was_deleted_before() {
    let stand_in = StandIn::start(adk).await;
    let bridge = Bridge::configured(&stand_in.toml());
    let stored = async || {
        let shown = bridge.get("/api/chats/c").await.json();
        shown["messages"].as_array().unwrap().clone()
    };
    let mut messages = Vec::new();
    for (id, text) in [("u1", "hello"), ("u2", "SECRET"), ("u3", "pay both")] {
        messages.push(user(id, text));
        let body = json!({"id": "c", "messages": messages});
        assert_eq!(bridge.post("/api/chat", &body).await.status, 200);
        messages = stored().await;
    }
    messages.drain(2..4);
    for part in messages[3]["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(true);
        }
    }
    let body = json!({"id": "c", "messages": messages});
    let response = bridge.post("/api/chat", &body).await;
    let said = String::from_utf8_lossy(&response.body).into_owned();
    assert!(said.contains("Done."), "{said}");
    let runs = stand_in.asked("/run_sse");
    assert_eq!(runs[2].body["sessionId"], runs[3].body["sessionId"]);
    let sent = runs[3].body["newMessage"].to_string();
    assert_eq!(sent.matches("\"confirmed\":true").count(), 2, "{sent}");

    messages = stored().await;
    messages.drain(2..4);
    messages.push(user("u4", "go on"));
    let body = json!({"id": "c", "messages": messages});
    assert_eq!(bridge.post("/api/chat", &body).await.status, 200);
    let made = stand_in.asked("/sessions");
    let last = made.last().unwrap().body.to_string();
    assert!(
        last.contains("pay both") && !last.contains("SECRET"),
        "{last}"
    );
    let ids = stored().await.into_iter().map(|it| it["id"].clone());
    let ids: Vec<Value> = ids.collect();
    assert!(!ids.contains(&json!("u2")), "{ids:?}");
}

async fn approve_first_and_write_on(bridge: &Bridge) {
    let mut messages = answered(bridge, "pay both", true).await;
    messages.push(user("u2", "go on"));
    let body = json!({"id": "c", "messages": messages});
    let response = bridge.post("/api/chat", &body).await;
    let said = String::from_utf8_lossy(&response.body).into_owned();
    assert!(said.contains("fine"), "{said}");

    let states = states(bridge).await;
    assert_eq!(states, ["output-available", "output-error"]);
    for kind in ["approval.approved", "approval.superseded", "tool.finished"] {
        assert_eq!(audited(bridge, kind).await, 1, "{kind}");
    }
}

/// The messages of a client that has asked, and has answered the first question.
async fn answered(bridge: &Bridge, text: &str, approved: bool) -> Vec<Value> {
    let body = json!({"id": "c", "messages": [user("u1", text)]});
    assert_eq!(bridge.post("/api/chat", &body).await.status, 200);
    let shown = bridge.get("/api/chats/c").await.json();
    let mut messages = shown["messages"].as_array().unwrap().clone();
    let mut parts = messages[1]["parts"].as_array_mut().unwrap().iter_mut();
    let part = parts.find(|part| part["type"] == "tool-process_payment");
    let part = part.unwrap();
    assert_eq!(part["state"], "approval-requested", "{part}");
    part["state"] = json!("approval-responded");
    part["approval"]["approved"] = json!(approved);
    messages
}

fn user(id: &str, text: &str) -> Value {
    json!({"id": id, "role": "user", "parts": [{"type": "text", "text": text}]})
}

/// The states of the calls of the first answer.
async fn states(bridge: &Bridge) -> Vec<Value> {
    let stored = bridge.get("/api/chats/c").await.json();
    let parts = stored["messages"][1]["parts"].as_array().unwrap().iter();
    let calls = parts.filter(|part| part.get("toolCallId").is_some());
    calls.map(|part| part["state"].clone()).collect()
}

async fn audited(bridge: &Bridge, kind: &str) -> usize {
    let rows = bridge.get("/api/audit?chat=c").await.json();
    let rows = rows.as_array().unwrap().iter();
    rows.filter(|row| row["kind"] == kind).count()
}

/// An agent with tools that want a confirmation, and one that its front end runs.
pub(crate) fn adk(asked: &ReceivedRequest) -> Vec<u8> {
    let said = |event: Value| format!("data: {event}\n\n");
    let model = |parts: Value, long_running: Value| {
        said(
            json!({"author": "app", "content": {"role": "model", "parts": parts}, "longRunningToolIds": long_running}),
        )
    };
    let call = |id: &str, name: &str, args: Value| json!({"functionCall": {"id": id, "name": name, "args": args}});
    let question = |(id, name, amount): (&str, &str, u32)| {
        let original = json!({"id": id, "name": name, "args": {"amount": amount}});
        let confirmation = json!({"hint": "", "confirmed": false});
        call(
            &format!("confirm-{id}"),
            "adk_request_confirmation",
            json!({"originalFunctionCall": original, "toolConfirmation": confirmation}),
        )
    };
    let payment = |(id, name, amount): (&str, &str, u32)| call(id, name, json!({"amount": amount}));
    match (asked.path.as_str(), text_of(asked)) {
        ("/run_sse", "pay both") => {
            let asks = CALLS.map(|(id, ..)| format!("confirm-{id}"));
            events(
                model(json!(CALLS.map(payment)), json!([]))
                    + &model(json!(CALLS.map(question)), json!(asks)),
            )
        }
        ("/run_sse", "pay and pick") => {
            let calls = [payment(CALLS[0]), call("fc-3", "pick_colour", json!({}))];
            events(
                model(json!(calls), json!(["fc-3"]))
                    + &model(json!([question(CALLS[0])]), json!(["confirm-fc-1"])),
            )
        }
        ("/run_sse", "") => {
            let sent = asked.body["newMessage"]["parts"].as_array().unwrap();
            let result = |sent: &Value| {
                let sent = &sent["functionResponse"];
                let id = sent["id"].as_str()?.strip_prefix("confirm-")?;
                let response = match sent["response"]["confirmed"] == true {
                    true => json!({"paid": id}),
                    false => json!({"error": "This tool call is rejected."}),
                };
                let response = json!({"id": id, "name": "process_payment", "response": response});
                Some(json!({"functionResponse": response}))
            };
            let results: Vec<Value> = sent.iter().filter_map(result).collect();
            events(model(json!(results), json!([])) + &model(json!([{"text": "Done."}]), json!([])))
        }
        ("/run_sse", _) => events(fine()),
        (path, _) if path.ends_with("/sessions") => session(asked),
        _ => refused(404, "application/json", r#"{"detail":"Not PriorContents"}"#),
    }
}
