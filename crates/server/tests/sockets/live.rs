//! `/live`: turns, tool results, interruption, take-over, coming back, and the end of the server.

use std::process::Command;

use serde_json::{Value, json};

use crate::client::{Client, Said};
use crate::support::{Bridge, JSON, asking, folded, text_of, within};

const PAY: &str = "call process_payment {\"amount\": 5, \"recipient\": \"Hanako\"}";

fn types(chunks: &[Value]) -> Vec<&str> {
    let mut types: Vec<&str> = chunks
        .iter()
        .map(|chunk| chunk["type"].as_str().unwrap())
        .collect();
    types.dedup();
    types
}

/// The ids of the questions among these chunks: approval, call.
fn questions(chunks: &[Value]) -> Vec<(String, String)> {
    let id = |chunk: &Value, field: &str| chunk[field].as_str().unwrap().to_owned();
    chunks
        .iter()
        .filter(|chunk| chunk["type"] == "tool-approval-request")
        .map(|chunk| (id(chunk, "approvalId"), id(chunk, "toolCallId")))
        .collect()
}

async fn part(bridge: &Bridge, chat: &str, tool: &str) -> Value {
    let message = bridge.last_message(chat).await;
    let kind = format!("tool-{tool}");
    let mut parts = message["parts"].as_array().unwrap().iter();
    parts
        .find(|part| part["type"] == kind.as_str())
        .unwrap()
        .clone()
}

#[tokio::test]
async fn a_turn_is_what_http_would_carry() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    for (number, text) in ["say hello there", "call roll_dice {} then say rolled"]
        .iter()
        .enumerate()
    {
        client.say(text).await;
        let (turn, chunks) = client.turn().await;
        assert_eq!(turn, number + 1);
        let mut events: Vec<String> = chunks.iter().map(Value::to_string).collect();
        events.push("[DONE]".to_owned());
        assert_eq!(folded(&events), bridge.last_message("c").await);
    }
    let over_http = bridge.ask("http", "say hello there").await.events().await;
    let (_, over_live) = {
        let mut client = Client::open(&bridge, "/live?chat=live").await;
        client.say("say hello there").await;
        client.turn().await
    };
    let over_http: Vec<Value> = over_http[..over_http.len() - 1]
        .iter()
        .map(|event| serde_json::from_str(event).unwrap())
        .collect();
    assert_eq!(types(&over_live), types(&over_http));
}

#[tokio::test]
async fn a_connection_without_a_chat_is_given_one() {
    let bridge = Bridge::start();
    let mut ids = Vec::new();
    for _ in 0..2 {
        let mut client = Client::open(&bridge, "/live").await;
        let Said::Chunk(first) = client.said().await else {
            panic!("the first frame names the chat");
        };
        assert_eq!(
            (&first["type"], &first["transient"]),
            (&json!("data-chat"), &json!(true))
        );
        let id = first["data"]["id"].as_str().unwrap().to_owned();
        let message = json!({"role": "user", "parts": [{"type": "text", "text": "say here"}]});
        client
            .send(json!({"type": "message", "id": "made up", "messages": [message]}))
            .await;
        client.turn().await;
        assert_eq!(text_of(&bridge.last_message(&id).await), "here");
        ids.push(id);
    }
    assert_ne!(ids[0], ids[1]);
}

/// A case of a `tool_result`: what is asked, what is sent, and what becomes of the call.
struct Case {
    prompt: &'static str,
    tool: &'static str,
    by_approval: bool,
    frame: Value,
    state: &'static str,
    /// Whether a part of it is refused.
    error: Option<&'static str>,
}

#[tokio::test]
async fn a_tool_result_answers_by_call_or_by_confirmation() {
    let cases = [
        Case {
            prompt: PAY,
            tool: "process_payment",
            by_approval: false,
            frame: json!({"status": "approved"}),
            state: "output-available",
            error: None,
        },
        Case {
            prompt: PAY,
            tool: "process_payment",
            by_approval: true,
            frame: json!({"status": "approved"}),
            state: "output-available",
            error: None,
        },
        Case {
            prompt: PAY,
            tool: "process_payment",
            by_approval: true,
            frame: json!({"status": "rejected", "result": "too much"}),
            state: "output-denied",
            error: None,
        },
        Case {
            prompt: PAY,
            tool: "process_payment",
            by_approval: false,
            frame: json!({"status": "rejected"}),
            state: "output-denied",
            error: None,
        },
        Case {
            prompt: PAY,
            tool: "process_payment",
            by_approval: true,
            frame: json!({"result": {"confirmed": true}}),
            state: "output-available",
            error: None,
        },
        Case {
            prompt: PAY,
            tool: "process_payment",
            by_approval: true,
            frame: json!({"result": {"confirmed": false}}),
            state: "output-denied",
            error: None,
        },
        Case {
            prompt: PAY,
            tool: "process_payment",
            by_approval: false,
            frame: json!({"result": {"balance": 1_000_000}, "status": "approved"}),
            state: "output-available",
            error: Some("conflict"),
        },
        Case {
            prompt: "call take_photo {}",
            tool: "take_photo",
            by_approval: false,
            frame: json!({"result": {"at": "once"}, "status": "approved"}),
            state: "output-available",
            error: None,
        },
        Case {
            prompt: "call take_photo {}",
            tool: "take_photo",
            by_approval: true,
            frame: json!({"result": {"at": "once"}, "status": "approved"}),
            state: "output-available",
            error: None,
        },
        Case {
            prompt: "call take_photo {}",
            tool: "take_photo",
            by_approval: false,
            frame: json!({"status": "rejected"}),
            state: "output-denied",
            error: None,
        },
        Case {
            prompt: "call pick_color {}",
            tool: "pick_color",
            by_approval: false,
            frame: json!({"data": {"result": "red"}}),
            state: "output-available",
            error: None,
        },
        Case {
            prompt: "call pick_color {}",
            tool: "pick_color",
            by_approval: false,
            frame: json!({"status": "rejected"}),
            state: "output-error",
            error: None,
        },
    ];
    let bridge = Bridge::configured("[[agent.client_tools]]\nname = \"pick_color\"");
    for (number, case) in cases.iter().enumerate() {
        for dialect in ["native", "adk"] {
            let chat = format!("{dialect}-{number}");
            let mut client =
                Client::open(&bridge, &format!("/live?chat={chat}&dialect={dialect}")).await;
            client.say(&format!("{} then say over", case.prompt)).await;
            let (_, chunks) = client.turn().await;
            let call = part(&bridge, &chat, case.tool).await["toolCallId"].clone();
            let id = match questions(&chunks).first() {
                Some((approval, _)) if case.by_approval => json!(approval),
                _ => call,
            };
            let mut frame = case.frame.clone();
            frame["type"] = json!("tool_result");
            match frame.get_mut("data") {
                Some(data) => data["toolCallId"] = id,
                None => frame["toolCallId"] = id,
            }
            client.send(frame.clone()).await;
            let mut error = None;
            let mut chunks = Vec::new();
            loop {
                match client.said().await {
                    Said::Chunk(chunk) => chunks.push(chunk),
                    Said::Done => {}
                    Said::Control(control) if control["type"] == "error" => error = Some(control),
                    Said::Control(control) if control["type"] == "turn-end" => break,
                    Said::Control(_) => {}
                }
            }
            assert_eq!(chunks.last().unwrap()["type"], "finish", "{chat} {frame}");
            if case.error.is_some() && error.is_none() {
                error = Some(client.control().await);
            }
            let code = error.as_ref().map(|error| error["code"].as_str().unwrap());
            assert_eq!(code, case.error, "{chat} {frame}");
            let part = part(&bridge, &chat, case.tool).await;
            assert_eq!(part["state"], case.state, "{chat} {frame} {part}");
            assert_ne!(part["output"]["balance"], 1_000_000);
            // A second answer changes nothing and begins no turn.
            client.send(frame).await;
            client.say("say next").await;
            let next = loop {
                let control = client.control().await;
                if control["type"] != "error" {
                    break control;
                }
            };
            assert_eq!(next["type"], "turn-start");
            let (mut said, mut done) = (String::new(), false);
            while !done {
                match client.said().await {
                    Said::Chunk(chunk) => said += chunk["delta"].as_str().unwrap_or_default(),
                    Said::Done => done = true,
                    Said::Control(control) => panic!("{control}"),
                }
            }
            assert_eq!(said, "next");
        }
    }
}

#[tokio::test]
async fn approvals_in_parallel_are_answered_one_by_one_and_audited() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client
        .say(&format!(
            "{PAY} && call search_database {{\"query\": \"x\"}} then say all done"
        ))
        .await;
    let (_, chunks) = client.turn().await;
    let asked = questions(&chunks);
    assert_eq!(asked.len(), 2);
    client
        .send(json!({"type": "tool_result", "toolCallId": asked[1].1, "status": "rejected"}))
        .await;
    client.turn().await;
    client
        .send(json!({"type": "tool_result", "toolCallId": asked[0].1, "status": "approved"}))
        .await;
    let (_, chunks) = client.turn().await;
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["delta"].as_str())
        .collect();
    assert_eq!(text, "all done");
    assert_eq!(
        part(&bridge, "c", "search_database").await["state"],
        "output-denied"
    );
    assert_eq!(
        part(&bridge, "c", "process_payment").await["state"],
        "output-available"
    );
    let audit = bridge.get("/api/audit?chat=c").await.json();
    let rows = audit.as_array().unwrap();
    assert!(rows.len() >= 6, "{audit}");
    let connection = &rows[0]["connectionId"];
    assert_eq!(connection.as_str().unwrap().len(), 36);
    for row in rows {
        assert_eq!(
            (&row["transport"], &row["connectionId"]),
            (&json!("live"), connection),
            "{row}"
        );
    }
    assert!(bridge.log().contains(connection.as_str().unwrap()));
}

#[tokio::test]
async fn an_interruption_ends_the_turn_and_a_message_takes_its_place() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    for (number, frame) in [
        json!({"type": "interrupt", "reason": "enough"}),
        json!({"type": "message", "messages": asking("c", "say instead")["messages"]}),
    ]
    .into_iter()
    .enumerate()
    {
        client.say("slow 10000").await;
        while !matches!(client.said().await, Said::Chunk(chunk) if chunk["delta"] == "word1 ") {}
        client.send(frame).await;
        let (mut interrupted, mut last) = (false, Value::Null);
        loop {
            match client.said().await {
                Said::Control(control) if control["type"] == "interrupted" => interrupted = true,
                Said::Control(control) if control["type"] == "turn-end" => break,
                Said::Chunk(chunk) => last = chunk,
                _ => {}
            }
        }
        assert_eq!(last["type"], "abort");
        assert_eq!(interrupted, number == 0);
        if number == 1 {
            let (_, chunks) = client.turn().await;
            assert!(
                chunks.iter().any(|chunk| chunk["delta"] == "instead"),
                "{chunks:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_second_connection_takes_over_and_carries_on() {
    let bridge = Bridge::start();
    let mut first = Client::open(&bridge, "/live?chat=c").await;
    first.say("slow 40").await;
    while !matches!(first.said().await, Said::Chunk(chunk) if chunk["delta"] == "word1 ") {}
    let mut second = Client::open(&bridge, "/live?chat=c").await;
    assert_eq!(first.closed().await.0, 4409);
    let (_, chunks) = second.turn().await;
    let mut events: Vec<String> = chunks.iter().map(Value::to_string).collect();
    events.push("[DONE]".to_owned());
    assert_eq!(
        folded(&events),
        bridge.last_message("c").await,
        "from its first chunk on"
    );
    second.say("say mine now").await;
    second.turn().await;
}

#[tokio::test]
async fn a_returning_client_gets_what_it_missed_and_what_waits() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    // Nothing was missed: nothing comes.
    client.say("say hello").await;
    client.turn().await;
    client.leave().await;
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client.check_alive().await;
    // The end of a turn was missed.
    client
        .say(&format!("slow 20 then {PAY} then say paid"))
        .await;
    while !matches!(client.said().await, Said::Chunk(chunk) if chunk["delta"] == "word1 ") {}
    drop(client);
    bridge.settled_message("c").await;
    let settled = async {
        loop {
            let part = part(&bridge, "c", "process_payment").await;
            if part["state"] == "approval-requested" {
                return;
            }
        }
    };
    within(settled).await;
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    let chunks = client.chunks().await;
    assert_eq!(chunks[0]["type"], "start");
    let asked = questions(&chunks);
    assert_eq!(asked.len(), 1, "{chunks:?}");
    client.check_alive().await;
    client
        .send(json!({"type": "tool_result", "toolCallId": asked[0].0, "status": "approved"}))
        .await;
    let (_, chunks) = client.turn().await;
    assert_eq!(chunks[0]["type"], "start");
    assert!(
        types(&chunks).contains(&"tool-output-available"),
        "{chunks:?}"
    );
    assert_eq!(
        part(&bridge, "c", "process_payment").await["state"],
        "output-available"
    );
}

#[tokio::test]
async fn a_turn_that_time_begins_reaches_who_is_there() {
    let bridge = Bridge::configured("[approval]\ntimeout = \"400ms\"");
    for dialect in ["native", "adk"] {
        let chat = format!("c-{dialect}");
        let mut client =
            Client::open(&bridge, &format!("/live?chat={chat}&dialect={dialect}")).await;
        client.say(&format!("{PAY} then say too late")).await;
        let (_, mut chunks) = client.turn().await;
        assert_eq!(questions(&chunks).len(), 1);
        let (turn, more) = client.turn().await;
        assert_eq!(turn, 2);
        let text: String = more
            .iter()
            .filter_map(|chunk| chunk["delta"].as_str())
            .collect();
        assert_eq!(text, "too late");
        // Both together are the message: nothing came twice.
        chunks.extend(more);
        let mut events: Vec<String> = chunks.iter().map(Value::to_string).collect();
        events.push("[DONE]".to_owned());
        let stored = bridge
            .get(&format!("/api/chats/{chat}?dialect={dialect}"))
            .await
            .json();
        let stored = stored["messages"]
            .as_array()
            .unwrap()
            .last()
            .unwrap()
            .clone();
        let kinds = |message: &Value| -> Vec<Value> {
            let parts = message["parts"].as_array().unwrap().iter();
            parts
                .map(|part| json!([part["type"], part["state"]]))
                .collect()
        };
        assert_eq!(kinds(&folded(&events)), kinds(&stored));
    }
}

/// Every refused answer is a row of the audit, which stays forever: on a socket, too, there are only so many a minute.
#[tokio::test]
async fn a_flood_of_wrong_answers_leaves_few_rows() {
    const LIMIT: usize = 30;
    let bridge = Bridge::configured(&format!("[limits]\nrefused_answers_per_minute = {LIMIT}\n"));
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client
        .say(r#"call process_payment {"amount":5,"recipient":"x"} then say done"#)
        .await;
    let (_, chunks) = client.turn().await;
    let (approval, call) = questions(&chunks).remove(0);
    let decide =
        |status: &str| json!({"type": "tool_result", "toolCallId": approval, "status": status});
    client.send(decide("rejected")).await;
    client.turn().await;
    let output = json!({"toolCallId": call, "output": 1});
    let answers = || async { bridge.post("/api/chat/c/tool-output", &output).await };
    let mut last = Value::Null;
    for _ in 0..3 * LIMIT {
        client.send(decide("approved")).await;
        last = client.control().await;
        assert_eq!(last["type"], "error", "{last}");
    }
    let message = last["message"].as_str().unwrap();
    assert!(
        message.contains("limits.refused_answers_per_minute"),
        "{message}"
    );
    assert_eq!(answers().await.status, 429);
    let rows = bridge.get("/api/audit?chat=c").await.json();
    let rows = rows.as_array().unwrap().iter();
    let refused = rows.filter(|row| row["kind"] == "answer.refused").count();
    // Some are forgotten while they come.
    assert!((LIMIT..2 * LIMIT).contains(&refused), "{refused} rows");
    // A page that has looped can be used again soon.
    let response = answers().await;
    let wait: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!(wait <= 61, "{wait} s");
}

/// A connection has one stream at a time. A second post without news must not end the hold of the first.
#[tokio::test]
async fn two_posts_without_news_do_not_end_each_other() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client.say("say ok").await;
    client.turn().await;
    let chat = bridge.get("/api/chats/c").await.json();
    let again = json!({"type": "message", "messages": chat["messages"]});
    client.send(again.clone()).await;
    assert_eq!(client.control().await["type"], "turn-start");
    client.send(again).await;
    let mut controls = Vec::new();
    while controls.len() < 2 {
        if let Said::Control(control) = client.said().await {
            controls.push(control);
        }
    }
    assert_eq!(controls[0]["type"], "error", "{controls:?}");
    assert_eq!(controls[0]["code"], "too_many", "{controls:?}");
    assert_eq!(controls[1]["type"], "turn-end", "{controls:?}");
}

/// The output of an approved client tool over another endpoint continues the turn that is held open here.
#[tokio::test]
async fn endpoints_work_together() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client.say("call take_photo {} then say nice").await;
    let (_, chunks) = client.turn().await;
    let (approval, call) = questions(&chunks).remove(0);
    client
        .send(json!({"type": "tool_result", "toolCallId": approval, "status": "approved"}))
        .await;
    assert_eq!(client.control().await["type"], "turn-start");
    assert!(matches!(client.said().await, Said::Chunk(chunk) if chunk["type"] == "start"));
    client.check_alive().await;
    let output = json!({"toolCallId": call, "output": {"photo": 1}});
    assert_eq!(
        bridge.post("/api/chat/c/tool-output", &output).await.status,
        204
    );
    let chunks = client.chunks().await;
    assert!(
        chunks.iter().any(|chunk| chunk["delta"] == "nice"),
        "{chunks:?}"
    );
    // A turn of HTTP's is HTTP's.
    let asked = asking("c", "say over http").to_string();
    let response = bridge.send("POST", "/api/chat", &[JSON], asked).await;
    assert_eq!(response.status, 200);
    assert_eq!(client.control().await["type"], "turn-end");
    client.check_alive().await;
    // A chat that is deleted takes its connection along.
    assert_eq!(
        bridge.send("DELETE", "/api/chats/c", &[], "").await.status,
        204
    );
    assert_eq!(client.closed().await.0, 4404);
}

#[tokio::test]
async fn a_server_that_stops_says_when_to_come_back() {
    let bridge = Bridge::start();
    let mut talking = Client::open(&bridge, "/live?chat=talking").await;
    talking.say("slow 10000").await;
    while !matches!(talking.said().await, Said::Chunk(chunk) if chunk["delta"] == "word1 ") {}
    let mut idle = Client::open(&bridge, "/live?chat=idle").await;
    idle.check_alive().await;
    let mut stock = Client::open(&bridge, "/api/chat/ws").await;
    stock
        .send(json!({"type": "resume", "requestId": "r", "id": "none"}))
        .await;
    assert_eq!(stock.json().await["type"], "no-active");
    let stop = Command::new("kill")
        .arg("-TERM")
        .arg(bridge.process().to_string())
        .status();
    assert!(stop.unwrap().success());
    let mut last = Value::Null;
    loop {
        match talking.said().await {
            Said::Chunk(chunk) => last = chunk,
            Said::Control(control) if control["type"] == "reconnect" => {
                let after = control["afterMs"].as_u64().unwrap();
                assert!((500..2000).contains(&after), "{after}");
                break;
            }
            _ => {}
        }
    }
    assert_eq!(last["type"], "error", "{last}");
    assert_eq!(idle.control().await["type"], "reconnect");
    for client in [&mut talking, &mut idle, &mut stock] {
        assert_eq!(client.closed().await.0, 1001);
    }
}

#[tokio::test]
async fn a_bridge_that_was_killed_goes_on_with_history_and_questions() {
    let mut bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client.say("say hello").await;
    client.turn().await;
    client.say(&format!("{PAY} then say paid")).await;
    client.turn().await;
    bridge.kill_and_restart();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    let chunks = client.chunks().await;
    let asked = questions(&chunks);
    assert_eq!(asked.len(), 1, "{chunks:?}");
    client
        .send(json!({"type": "tool_result", "toolCallId": asked[0].1, "status": "approved"}))
        .await;
    let (_, chunks) = client.turn().await;
    let text: String = chunks
        .iter()
        .filter_map(|chunk| chunk["delta"].as_str())
        .collect();
    assert_eq!(text, "paid");
    // In the middle of an answer: its beginning is kept, and the chat goes on.
    client.say("slow 10000").await;
    while !matches!(client.said().await, Said::Chunk(chunk) if chunk["delta"] == "word1 ") {}
    bridge.kill_and_restart();
    let mut client = Client::open(&bridge, "/live?chat=c").await;
    client.say("say back").await;
    let chunks = loop {
        let chunks = client.chunks().await;
        if chunks.iter().any(|chunk| chunk["delta"] == "back") {
            break chunks;
        }
    };
    assert_eq!(chunks.last().unwrap()["type"], "finish");
    let messages = bridge.get("/api/chats/c").await.json()["messages"]
        .as_array()
        .unwrap()
        .len();
    assert_eq!(messages, 8);
}
