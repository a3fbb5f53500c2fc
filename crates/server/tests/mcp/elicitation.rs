//! What a server asks the user while its tool runs, and how far it says it is.

use adk_bridge_testkit::socket::Client;
use adk_bridge_testkit::{Bridge, folded};
use serde_json::{Value, json};

use crate::{bridge, calls, received, until, until_available};

/// Has tools called in a new chat. Returns the message when its turn has ended.
async fn asked(bridge: &Bridge, chat: &str, text: &str) -> Value {
    let mut answer = bridge.ask(chat, text).await;
    assert_eq!(answer.status, 200);
    folded(&answer.events().await)
}

/// The parts of all calls of this name.
fn parts(message: &Value, name: &str) -> Vec<Value> {
    let parts = message["parts"].as_array().unwrap().iter();
    let wanted = format!("tool-{name}");
    let parts = parts.filter(|part| part["type"] == wanted.as_str());
    parts.cloned().collect()
}

fn question(message: &Value) -> Value {
    let questions = parts(message, "adk_request_input");
    let mut open = questions
        .into_iter()
        .filter(|part| part["state"] == "input-available");
    open.next()
        .unwrap_or_else(|| panic!("no question: {message}"))
}

/// Posts the message with this in place of open questions, as a chat does.
async fn post(bridge: &Bridge, chat: &str, message: &Value, fields: &Value) -> (u16, Value) {
    let mut message = message.clone();
    for part in message["parts"].as_array_mut().unwrap() {
        if part["type"] == "tool-adk_request_input" && part["state"] == "input-available" {
            let part = part.as_object_mut().unwrap();
            part.extend(fields.as_object().unwrap().clone());
        }
    }
    let body = json!({"id": chat, "trigger": "submit-message", "messages": [message]});
    let answer = bridge.post("/api/chat", &body).await;
    match answer.status {
        200 => (200, bridge.settled_message(chat).await),
        status => (status, json!([answer.code(), answer.message()])),
    }
}

fn output(value: &Value) -> Value {
    json!({"state": "output-available", "output": value})
}

#[tokio::test]
async fn a_question_is_a_form_whose_answer_reaches_the_tool() {
    let (bridge, records) = bridge("all", "").await;
    let first = asked(&bridge, "chat", r#"call mine__ask {"times":2}"#).await;
    let running = &parts(&first, "mine__ask")[0];
    // Stock predicates send the answer only if every call of the step has an output.
    assert_eq!(running["output"], json!({"pending": true}));
    let asks = question(&first);
    assert_eq!(asks["input"]["server"], "mine");
    assert_eq!(asks["input"]["message"], "How many? (2)");
    assert_eq!(asks["input"]["functionCallId"], running["toolCallId"]);
    assert_eq!(asks["input"]["response_schema"]["required"][0], "guests");

    // What does not fit is refused, and the question stays open.
    for (bad, said) in [
        (json!({}), "\"guests\" is missing"),
        (json!({"guests": 12}), "\"guests\" must be at most 9"),
        (json!("yes"), "must be an object"),
    ] {
        let (status, refusal) = post(&bridge, "chat", &first, &output(&bad)).await;
        assert_eq!((status, &refusal[0]), (422, &json!("bad_value")));
        assert!(refusal[1].as_str().unwrap().contains(said), "{refusal}");
    }
    let call_id = asks["toolCallId"].as_str().unwrap();
    let body = json!({"toolCallId": call_id, "output": {"guests": 0}});
    let refused = bridge.post("/api/chat/chat/tool-output", &body).await;
    assert_eq!(refused.status, 422, "{}", refused.message());

    let (status, second) = post(&bridge, "chat", &first, &output(&json!({"guests": 3}))).await;
    assert_eq!(status, 200, "{second}");
    assert_eq!(question(&second)["input"]["message"], "How many? (1)");
    let (_, third) = post(
        &bridge,
        "chat",
        &second,
        &output(&json!({"guests": 4, "vegan": true})),
    )
    .await;
    assert_eq!(
        parts(&third, "mine__ask")[0]["output"],
        json!({"action": "accept", "content": {"guests": 4, "vegan": true}})
    );
    assert_eq!(
        third["parts"].as_array().unwrap().last().unwrap()["type"],
        "text"
    );
    assert_eq!(calls(records.path(), "ask"), 1);
    let told = received(&records);
    let initialized = told.iter().find(|sent| sent["method"] == "initialize");
    let can = &initialized.unwrap()["params"]["capabilities"];
    assert_eq!(*can, json!({"elicitation": {"form": {}}}));
}

/// Saying no, writing on, stopping and letting the time pass: the tool learns it, ends by itself, and its outcome is kept. The
/// time in which the user is asked is not the tool's: it is longer than the tool may take.
#[tokio::test]
async fn what_is_not_accepted_is_declined_or_cancelled() {
    let limits = "[tools]\ntimeout = \"700ms\"\n[approval]\ntimeout = \"1s\"";
    let (bridge, records) = bridge("all", limits).await;
    for (chat, action, question_says) in [
        (
            "expired",
            "cancel",
            "expired: the question was not answered in time",
        ),
        ("declined", "decline", "no, thanks"),
        (
            "stopped",
            "cancel",
            "not answered: the user stopped the answer",
        ),
        (
            "went-on",
            "cancel",
            "not answered: the conversation went on without an answer",
        ),
    ] {
        let message = asked(&bridge, chat, "call mine__ask").await;
        let id = message["id"].clone();
        match chat {
            "declined" => {
                let error = json!({"state": "output-error", "errorText": "no, thanks"});
                assert_eq!(post(&bridge, chat, &message, &error).await.0, 200);
            }
            "stopped" => {
                let path = format!("/api/chat/{chat}/stop");
                assert_eq!(bridge.post(&path, &json!({})).await.status, 204);
            }
            "went-on" => drop(asked(&bridge, chat, "say something else").await),
            _ => {}
        }
        until(|| async {
            let stored = bridge.get(&format!("/api/chats/{chat}")).await.json();
            let messages = stored["messages"].as_array().unwrap().clone();
            let message = messages.iter().find(|message| message["id"] == id);
            let Some(message) = message else { return false };
            let outcome = parts(message, "mine__ask")[0].clone();
            if outcome["output"]["pending"] == true {
                return false;
            }
            assert_eq!(
                outcome["output"],
                json!({"action": action}),
                "{chat}: {outcome}"
            );
            let closed = &parts(message, "adk_request_input")[0];
            assert_eq!(closed["errorText"], question_says, "{chat}");
            true
        })
        .await;
    }
    assert_eq!(calls(records.path(), "ask"), 4);
}

#[tokio::test]
async fn a_restart_closes_the_question_and_does_not_run_the_tool_again() {
    let (mut bridge, records) = bridge("all", "").await;
    let before = asked(&bridge, "chat", "call mine__ask").await;
    bridge.kill_and_restart();
    until_available(&bridge).await;
    let (status, _) = post(&bridge, "chat", &before, &output(&json!({"guests": 3}))).await;
    assert_eq!(status, 200);
    let after = bridge.settled_message("chat").await;
    let said = |part: &Value| part["errorText"].as_str().unwrap_or_default().to_owned();
    let tool = said(&parts(&after, "mine__ask")[0]);
    assert!(tool.contains("the outcome is unknown"), "{after}");
    let question = said(&parts(&after, "adk_request_input")[0]);
    assert!(question.contains("the server restarted"), "{after}");
    assert_eq!(calls(records.path(), "ask"), 1);
}

/// Two calls of one chat ask at once, and each gets its answer. Over standard input and output nothing says whom a server
/// means, so a call of another chat at the same time has nobody asked.
#[tokio::test]
async fn two_questions_at_once_are_of_one_chat() {
    let (bridge, _records) = bridge("all", "").await;
    let message = asked(&bridge, "chat", "call mine__ask && call mine__ask").await;
    let message = match parts(&message, "adk_request_input").len() {
        2 => message,
        // The second has come after the turn had ended.
        _ => {
            until(|| async {
                let stored = bridge.last_message("chat").await;
                parts(&stored, "adk_request_input").len() == 2
            })
            .await;
            bridge.last_message("chat").await
        }
    };
    let other = asked(&bridge, "other", "call mine__ask").await;
    assert_eq!(
        parts(&other, "mine__ask")[0]["output"],
        json!({"action": "cancel"})
    );
    assert!(parts(&other, "adk_request_input").is_empty());
    assert!(bridge.log().contains("nobody was asked"));
    let (_, settled) = post(&bridge, "chat", &message, &output(&json!({"guests": 2}))).await;
    for part in parts(&settled, "mine__ask") {
        assert_eq!(part["output"]["content"]["guests"], 2, "{settled}");
    }
}

#[tokio::test]
async fn a_live_client_is_asked_and_answers_with_a_frame() {
    let (bridge, _records) = bridge("all", "").await;
    let mut client = Client::open(&bridge, "/live?chat=chat").await;
    client.say("call mine__ask").await;
    let (_, chunks) = client.turn().await;
    let is_question = |chunk: &&Value| {
        chunk["type"] == "tool-input-available" && chunk["toolName"] == "adk_request_input"
    };
    let call = chunks.iter().find(is_question).unwrap()["toolCallId"].clone();
    let frame = |guests: u8| json!({"type": "tool_result", "toolCallId": call, "result": {"guests": guests}});
    client.send(frame(0)).await;
    let refused = client.control().await;
    assert!(
        refused.to_string().contains("must be at least 1"),
        "{refused}"
    );
    client.send(frame(5)).await;
    let (_, chunks) = client.turn().await;
    let accepted = json!({"action": "accept", "content": {"guests": 5}});
    assert!(
        chunks.iter().any(|chunk| chunk["output"] == accepted),
        "{chunks:?}"
    );
}

#[tokio::test]
async fn progress_is_shown_while_the_tool_runs_and_not_kept() {
    let (bridge, _records) = bridge("all", "").await;
    let mut answer = bridge.ask("chat", "call mine__dawdle").await;
    let events = answer.events_until("data-tool-progress").await;
    let call = events
        .iter()
        .find(|event| event.contains("tool-input-available"));
    let call: Value = serde_json::from_str(call.unwrap()).unwrap();
    let told: Value = serde_json::from_str(events.last().unwrap()).unwrap();
    let expected = json!({
        "type": "data-tool-progress", "transient": true,
        "data": {"toolCallId": call["toolCallId"], "progress": 1.5, "total": 4.0, "message": "reading"},
    });
    assert_eq!(told, expected);
    // 20,000 notifications are some chunks, none of which is kept.
    let mut answer = bridge.ask("flood", "call mine__flood").await;
    let events = answer.events().await;
    let told = events
        .iter()
        .filter(|event| event.contains("data-tool-progress"));
    assert!(told.count() < 200);
    let stored = bridge.last_message("flood").await;
    assert!(!stored.to_string().contains("data-tool-progress"));
}
