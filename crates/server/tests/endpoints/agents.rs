//! Several agents behind one bridge: who answers, who may not, and what becomes of a chat whose agent is gone.

use serde_json::{Value, json};

use crate::support::socket::Client;
use crate::support::{Bridge, JSON, asking, folded, refused, text_of, types};

const WEATHER: &str = r#"call get_weather {"location": "Tokyo"}"#;
const PAYMENT: &str = r#"call process_payment {"amount": 5, "recipient": "Hanako"}"#;

/// Two demos with different tools and rules.
const TWO: &str = r#"
[[agents]]
id = "weather"
name = "Weather desk"
kind = "demo"
tools = ["get_weather"]

[[agents]]
id = "bank"
kind = "demo"
tools = ["process_payment", "get_weather"]
approval_tools = ["get_weather"]
max_steps = 1
"#;

fn to(agent: impl Into<Value>, chat: &str, text: &str) -> Value {
    let mut request = asking(chat, text);
    request["agent"] = agent.into();
    request
}

async fn ask(bridge: &Bridge, path: &str, request: &Value) -> Vec<String> {
    let mut answer = bridge
        .open("POST", path, &[JSON], &request.to_string())
        .await;
    assert_eq!(answer.status, 200, "{request}");
    answer.events().await
}

async fn agent_of(bridge: &Bridge, chat: &str) -> Value {
    let shown = bridge.get(&format!("/api/chats/{chat}")).await.json();
    let listed = bridge.get("/api/chats").await.json();
    let rows = listed.as_array().unwrap();
    let row = rows.iter().find(|row| row["id"] == chat).unwrap();
    assert_eq!(row["agent"], shown["agent"], "{chat}");
    row["agent"].clone()
}

#[tokio::test]
async fn agents_are_listed_with_what_each_can_do() {
    let bridge = Bridge::configured(TWO);
    let all = bridge.get("/api/agents").await.json();
    let names = |of: &Value| -> Vec<Value> {
        let tools = of["tools"].as_array().unwrap();
        tools.iter().map(|tool| tool["name"].clone()).collect()
    };
    assert_eq!(all.as_array().unwrap().len(), 2);
    assert_eq!(all[0]["id"], "weather");
    assert_eq!(all[0]["name"], "Weather desk");
    assert_eq!(all[0]["default"], true);
    assert_eq!(names(&all[0]), ["get_weather"]);
    assert_eq!(all[1]["id"], "bank");
    assert_eq!(all[1]["default"], false);
    assert_eq!(names(&all[1]), ["get_weather", "process_payment"]);
    for (one, asks) in [(0, false), (1, true)] {
        assert_eq!(all[one]["tools"][0]["needsApproval"], asks, "{one}");
        assert_eq!(all[one]["kind"], "demo");
        assert_eq!(all[one]["status"], "ready");
        assert_eq!(all[one]["modalities"], json!(["text", "audio"]));
        assert!(all[one]["limitations"].is_array());
        let id = all[one]["id"].as_str().unwrap();
        let alone = bridge.get(&format!("/api/agents/{id}")).await.json();
        assert_eq!(alone, all[one]);
    }
    assert_eq!(bridge.get("/api/agent").await.json(), all[0]);
    let unknown = bridge.get("/api/agents/nobody").await;
    assert_eq!(
        (unknown.status, unknown.code()),
        (404, "unknown_agent".into())
    );
    // Of a single agent, too.
    let alone = Bridge::start();
    let all = alone.get("/api/agents").await.json();
    assert_eq!(all, json!([alone.get("/api/agent").await.json()]));
    assert_eq!(
        (&all[0]["id"], &all[0]["default"]),
        (&json!("demo"), &json!(true))
    );
}

#[tokio::test]
async fn a_chat_is_answered_by_its_agent_with_its_tools_and_rules() {
    let bridge = Bridge::configured(TWO);
    // The default, which needs no approval for this.
    let events = ask(&bridge, "/api/chat", &asking("a", WEATHER)).await;
    assert!(
        types(&events).contains(&"tool-output-available".to_owned()),
        "{events:?}"
    );
    // Another one, which does.
    let events = ask(&bridge, "/api/chat", &to("bank", "b", WEATHER)).await;
    assert!(
        types(&events).contains(&"tool-approval-request".to_owned()),
        "{events:?}"
    );
    // The same by its address; a slash behind it is as good.
    for (chat, path) in [
        ("c", "/api/agents/bank/chat"),
        ("d", "/api/agents/bank/chat/"),
    ] {
        let events = ask(&bridge, path, &asking(chat, PAYMENT)).await;
        assert!(
            types(&events).contains(&"tool-approval-request".to_owned()),
            "{events:?}"
        );
        let resumed = format!("{path}/{chat}/stream").replace("//", "/");
        assert_eq!(bridge.get(&resumed).await.status, 204);
    }
    // A tool that this agent does not have never runs.
    let events = ask(&bridge, "/api/chat", &to("weather", "e", PAYMENT)).await;
    let kinds = types(&events);
    assert!(
        !kinds.contains(&"tool-approval-request".to_owned()),
        "{events:?}"
    );
    for (chat, agent) in [
        ("a", "weather"),
        ("b", "bank"),
        ("c", "bank"),
        ("e", "weather"),
    ] {
        assert_eq!(agent_of(&bridge, chat).await, agent, "{chat}");
    }
}

#[tokio::test]
async fn a_chat_keeps_its_agent() {
    let mut bridge = Bridge::configured(TWO);
    ask(&bridge, "/api/chat", &to("bank", "a", "say one")).await;
    for again in 0..2 {
        // Its own agent may be named or not.
        ask(&bridge, "/api/chat", &asking("a", "say two")).await;
        ask(&bridge, "/api/chat", &to("bank", "a", "say three")).await;
        ask(&bridge, "/api/chat", &to(Value::Null, "a", "say four")).await;
        for (path, request) in [
            ("/api/chat", to("weather", "a", "say five")),
            ("/api/agents/weather/chat", asking("a", "say five")),
            ("/api/agents/bank/chat", to("weather", "a", "say five")),
        ] {
            let other = bridge.post(path, &request).await;
            assert_eq!(
                (other.status, other.code()),
                (409, "other_agent".into()),
                "{path} {again}"
            );
            let said = other.message();
            assert!(said.contains("bank") && said.contains("weather"), "{said}");
        }
        assert_eq!(agent_of(&bridge, "a").await, "bank");
        bridge.kill_and_restart();
    }
    // A refused first message decides nothing.
    let mut empty = to("bank", "b", "");
    empty["messages"][0]["parts"] = json!([]);
    assert_eq!(bridge.post("/api/chat", &empty).await.status, 422);
    ask(&bridge, "/api/chat", &to("weather", "b", "say hi")).await;
    assert_eq!(agent_of(&bridge, "b").await, "weather");
}

#[tokio::test]
async fn what_names_no_agent_is_refused() {
    let bridge = Bridge::configured(TWO);
    let long = "a".repeat(201);
    for (agent, status, code) in [
        (json!("nobody"), 404, "unknown_agent"),
        (json!("WEATHER"), 404, "unknown_agent"),
        (json!("weather "), 404, "unknown_agent"),
        (json!("../bank"), 404, "unknown_agent"),
        (json!("bank\u{0}"), 404, "unknown_agent"),
        (json!("'; DROP TABLE chats; --"), 404, "unknown_agent"),
        (json!(""), 422, "bad_id"),
        (json!(long), 422, "bad_id"),
        (json!(7), 422, "wrong_type"),
        (json!(true), 422, "wrong_type"),
        (json!(["bank"]), 422, "wrong_type"),
        (json!({"id": "bank"}), 422, "wrong_type"),
    ] {
        let refused = bridge
            .post("/api/chat", &to(agent.clone(), "a", "say hi"))
            .await;
        assert_eq!(
            (refused.status, refused.code()),
            (status, code.into()),
            "{agent}"
        );
        assert!(!refused.message().is_empty());
    }
    for (path, status) in [
        ("/api/agents/nobody/chat".to_owned(), 404),
        ("/api/agents/%2e%2e/chat".to_owned(), 404),
        ("/api/agents/ba%6Ek%2F/chat".to_owned(), 404),
        ("/api/agents/%FF/chat".to_owned(), 400),
        (format!("/api/agents/{long}/chat"), 422),
    ] {
        let refused = bridge.post(&path, &asking("a", "say hi")).await;
        assert_eq!(refused.status, status, "{path}");
    }
    // Stock front ends show it to their users as it is.
    let refused = bridge
        .post("/api/agents/nobody/chat", &asking("a", "say hi"))
        .await;
    assert!(refused.is_in_words() && refused.message().contains("nobody"));
    // Nothing of this has begun a chat.
    assert_eq!(bridge.get("/api/chats").await.json(), json!([]));
}

#[tokio::test]
async fn sockets_name_their_agent_too() {
    let bridge = Bridge::configured(TWO);
    let (head, _) = Client::try_open(&bridge, "/live?chat=x&agent=", &[]).await;
    assert!(head.starts_with("HTTP/1.1 422"), "{head}");
    let mut nobody = Client::open(&bridge, "/live?chat=x&agent=nobody").await;
    nobody.say("say hi").await;
    assert_eq!(nobody.control().await["code"], "unknown_agent");
    let mut live = Client::open(&bridge, "/live?chat=live&agent=bank").await;
    live.say("say hi").await;
    live.turn().await;
    assert_eq!(agent_of(&bridge, "live").await, "bank");
    // Another connection for another agent may read along, and is refused what it asks for.
    let mut other = Client::open(&bridge, "/live?chat=live&agent=weather").await;
    other.say("say hi").await;
    assert_eq!(other.control().await["code"], "other_agent");
    let message = |text: &str, agent: &str| {
        let parts = json!([{"type": "text", "text": text}]);
        json!({"type": "message", "agent": agent, "messages": [{"role": "user", "parts": parts}]})
    };
    let mut named = Client::open(&bridge, "/live?chat=named").await;
    named.send(message("say hi", "nobody")).await;
    assert_eq!(named.control().await["code"], "unknown_agent");
    named.send(message("say hi", "bank")).await;
    named.turn().await;
    assert_eq!(agent_of(&bridge, "named").await, "bank");

    let send = |request: &str, chat: &str, body: Value| {
        json!({
            "type": "send", "requestId": request, "id": chat, "trigger": "submit-message",
            "messages": [{"id": "u", "role": "user", "parts": [{"type": "text", "text": "say hi"}]}],
            "headers": {}, "body": body,
        })
    };
    for (path, chat, body, ends) in [
        ("/api/chat/ws", "ws-1", json!({"agent": "bank"}), "end"),
        ("/api/agents/bank/chat/ws", "ws-2", json!({}), "end"),
        ("/api/agents/bank/chat", "ws-3", json!({}), "end"),
        ("/api/chat/ws", "ws-4", json!({"agent": "nobody"}), "error"),
        ("/api/chat/ws", "ws-4", json!({"agent": 7}), "error"),
        ("/api/chat/ws", "ws-1", json!({"agent": "weather"}), "error"),
        ("/api/agents/weather/chat/ws", "ws-1", json!({}), "error"),
    ] {
        let mut client = Client::open(&bridge, path).await;
        client.send(send("r", chat, body.clone())).await;
        let last = loop {
            let frame = client.json().await;
            if !["start", "chunk"].contains(&frame["type"].as_str().unwrap()) {
                break frame;
            }
        };
        assert_eq!(last["type"], ends, "{path} {chat} {body}: {last}");
        if ends == "end" {
            assert_eq!(agent_of(&bridge, chat).await, "bank", "{path}");
        }
    }
}

/// An agent that is removed leaves its chats behind: they are read, and go on when it is there again.
#[tokio::test]
async fn a_chat_outlives_its_agent() {
    let mut bridge = Bridge::configured(TWO);
    ask(&bridge, "/api/chat", &to("bank", "a", PAYMENT)).await;
    ask(&bridge, "/api/chat", &to("bank", "done", "say hi")).await;
    ask(&bridge, "/api/chat", &to("weather", "b", "say hi")).await;
    let question = bridge.last_message("a").await;
    let file = bridge.directory.path().join("test.toml");
    let (only, _) = TWO.rsplit_once("[[agents]]").unwrap();
    std::fs::write(&file, only).unwrap();
    bridge.kill_and_restart();
    assert_eq!(bridge.last_message("a").await, question);
    assert_eq!(agent_of(&bridge, "a").await, "bank");
    for request in [
        asking("a", "say hi"),
        asking("done", "say hi"),
        to("bank", "done", "say hi"),
    ] {
        let gone = bridge.post("/api/chat", &request).await;
        assert_eq!(
            (gone.status, gone.code()),
            (410, "agent_gone".into()),
            "{request}"
        );
        assert!(gone.message().contains("bank"));
    }
    let other = bridge
        .post("/api/chat", &to("weather", "done", "say hi"))
        .await;
    assert_eq!((other.status, other.code()), (410, "agent_gone".into()));
    let mut live = Client::open(&bridge, "/live?chat=a").await;
    live.say("say hi").await;
    assert_eq!(live.control().await["code"], "agent_gone");
    // Nobody else has answered the question, or runs its tool.
    let mut answered = question.clone();
    answered["parts"]
        .as_array_mut()
        .unwrap()
        .iter_mut()
        .for_each(|part| {
            if part.get("approval").is_some() {
                part["state"] = json!("approval-responded");
                part["approval"]["approved"] = json!(true);
            }
        });
    let approve = json!({"id": "a", "messages": [answered]});
    assert_eq!(
        bridge.post("/api/chat", &approve).await.code(),
        "agent_gone"
    );
    assert_eq!(bridge.last_message("a").await, question);
    ask(&bridge, "/api/chat", &asking("b", "say still here")).await;

    // It is back, and the question with it.
    std::fs::write(&file, TWO).unwrap();
    bridge.kill_and_restart();
    let events = ask(&bridge, "/api/chat", &approve).await;
    assert!(
        types(&events).contains(&"tool-output-available".to_owned()),
        "{events:?}"
    );

    // A chat whose agent is gone can be stopped and deleted.
    ask(&bridge, "/api/chat", &to("bank", "c", PAYMENT)).await;
    std::fs::write(&file, only).unwrap();
    bridge.kill_and_restart();
    let stopped = bridge.send("POST", "/api/chat/c/stop", &[], "").await;
    assert_eq!(stopped.status, 204);
    for chat in ["a", "c"] {
        let path = format!("/api/chats/{chat}");
        assert_eq!(bridge.send("DELETE", &path, &[], "").await.status, 204);
        assert_eq!(bridge.get(&path).await.status, 404);
    }
}

/// A reply that a crash interrupts goes on with the agent of its chat, and not with the default.
#[tokio::test]
async fn a_restart_goes_on_with_the_agent_of_the_chat() {
    let mut bridge = Bridge::configured(TWO);
    ask(&bridge, "/api/chat", &to("bank", "a", WEATHER)).await;
    bridge.kill_and_restart();
    // The default would not have asked, and would run it now.
    let waits = bridge.last_message("a").await;
    let asked = waits["parts"].as_array().unwrap();
    assert!(
        asked
            .iter()
            .any(|part| part["state"] == "approval-requested"),
        "{waits}"
    );
    let mut answer = bridge.ask("b", "slow 5 then say done").await;
    answer.event().await.unwrap();
    drop(answer);
    let slow = to("bank", "c", "slow 5 then say done");
    let mut answer = bridge
        .open("POST", "/api/chat", &[JSON], &slow.to_string())
        .await;
    answer.event().await.unwrap();
    drop(answer);
    bridge.kill_and_restart();
    for (chat, agent) in [("b", "weather"), ("c", "bank")] {
        bridge.settled_message(chat).await;
        assert_eq!(agent_of(&bridge, chat).await, agent);
        let events = ask(&bridge, "/api/chat", &to(agent, chat, "say again")).await;
        assert_eq!(text_of(&folded(&events)), "again");
    }
}

#[tokio::test]
async fn bad_agents_are_refused_at_start_by_name() {
    let two = |more: &str| format!("{TWO}\n[[agents]]\n{more}");
    for (toml, words) in [
        (two("id = \"bank\""), vec!["two agents", "\"bank\""]),
        (
            two("id = \"x\"\nkind = \"oracle\""),
            vec!["\"x\"", "oracle", "demo"],
        ),
        (two("id = \"a b\""), vec!["\"a b\"", "URL"]),
        (two("kind = \"demo\""), vec!["id:"]),
        (
            two("id = \"x\"\ntools = [\"fly\"]"),
            vec!["\"x\"", "tools", "fly"],
        ),
        (
            two("id = \"x\"\napproval_tools = [\"fly\"]"),
            vec!["\"x\"", "fly"],
        ),
        (two("id = \"x\"\nkind = \"adk\""), vec!["\"x\"", "app:"]),
        (
            two("id = \"x\"\nkind = \"gemini\"\napi_key_env = \"NO_SUCH\""),
            vec!["\"x\"", "api_key_env"],
        ),
        (
            format!("[agent]\nkind = \"demo\"\n{TWO}"),
            vec!["[agent]", "[[agents]]"],
        ),
        (
            format!("{TWO}\n[approval]\ntools = [\"fly\"]"),
            vec!["approval.tools", "fly"],
        ),
    ] {
        let said = refused(&toml, |_| {});
        for word in words {
            assert!(said.contains(word), "{word}: {said}");
        }
    }
    for change in [
        ("ADK_BRIDGE__AGENT__KIND", "demo"),
        ("ADK_BRIDGE__AGENT__MODEL", "x"),
    ] {
        let said = refused(TWO, |command| {
            command.env(change.0, change.1);
        });
        assert!(said.contains("ADK_BRIDGE__AGENT__"), "{said}");
    }
    let said = refused(TWO, |command| {
        command.args(["--agent", "demo"]);
    });
    assert!(said.contains("--agent"), "{said}");
    // A tool that one of them has is a tool that may need approval.
    Bridge::configured(&format!("{TWO}\n[approval]\ntools = [\"process_payment\"]"));
}
