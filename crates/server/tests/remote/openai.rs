//! A bridge whose model stands behind chat completions: its tools, its questions, and answers that are none.

use serde_json::{Value, json};

use crate::stand_in::{ReceivedRequest, StandIn, events, refused};
use crate::support::{Bridge, JSON, folded, refused as not_started, text_of, types};

const KEY: &str = "a-key-of-a-model";

fn data(chunk: &Value) -> String {
    format!("data: {chunk}\n\n")
}

fn says(text: &str) -> String {
    let choice = json!({"index": 0, "delta": {"content": text}, "finish_reason": null});
    data(&json!({"choices": [choice]}))
}

fn ends(reason: &str) -> String {
    let choice = json!({"index": 0, "delta": {}, "finish_reason": reason});
    let usage = json!({"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5});
    data(&json!({"choices": [choice]}))
        + &data(&json!({"choices": [], "usage": usage}))
        + "data: [DONE]\n\n"
}

/// Calls, each with its arguments in two fragments, which come in turns.
fn calls(calls: &[(&str, &str)]) -> String {
    let fragment = |index: usize, function: Value, id: Value| {
        let call = json!({"index": index, "id": id, "type": "function", "function": function});
        data(
            &json!({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": null}]}),
        )
    };
    let halves = |args: &str| {
        let (first, second) = args.split_at(args.len() / 2);
        (first.to_owned(), second.to_owned())
    };
    let mut stream = String::new();
    for (index, (name, args)) in calls.iter().enumerate() {
        // The same ids in every answer, as some servers have them.
        let function = json!({"name": name, "arguments": halves(args).0});
        stream += &fragment(index, function, json!(format!("call_{index}")));
    }
    for (index, (_, args)) in calls.iter().enumerate() {
        stream += &fragment(index, json!({"arguments": halves(args).1}), Value::Null);
    }
    stream + &ends("tool_calls")
}

fn last(asked: &ReceivedRequest) -> Value {
    let messages = asked.body["messages"].as_array().unwrap();
    messages.last().unwrap().clone()
}

/// A model that pays and rolls dice when it is told to, and then reports what the last result was.
fn worker(asked: &ReceivedRequest) -> Vec<u8> {
    let last = last(asked);
    let said = last["content"].as_str().unwrap_or_default();
    let pay = (
        "process_payment",
        r#"{"amount": 5, "recipient": "Ann", "currency": "USD"}"#,
    );
    let roll = ("roll_dice", r#"{"count": 2}"#);
    events(match last["role"].as_str() {
        Some("tool") => says("so it is: ") + &says(said) + &ends("stop"),
        _ if said.contains("both") => says("Well.") + &calls(&[pay, roll]),
        _ if said.contains("door") => calls(&[("open_door", r#"{"door": "front"}"#)]),
        _ if said.contains("again") => calls(&[roll]),
        _ => says("fine") + &ends("stop"),
    })
}

/// A bridge before a server, without any key.
fn bridge(stand_in: &StandIn, more: &str) -> Bridge {
    let address = stand_in.address;
    Bridge::configured(&format!(
        "[agent]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"http://{address}/v1\"\ninstruction = \"Be brief.\"\n{more}"
    ))
}

const TOOLS: &str =
    "tools = [\"process_payment\", \"roll_dice\"]\n[[agent.client_tools]]\nname = \"open_door\"\n";

fn user(text: &str) -> Value {
    json!({"id": "u", "role": "user", "parts": [{"type": "text", "text": text}]})
}

async fn post(bridge: &Bridge, chat: &str, messages: &[Value]) -> Vec<String> {
    let body = json!({"id": chat, "messages": messages}).to_string();
    let mut answer = bridge.open("POST", "/api/chat", &[JSON], &body).await;
    answer.events().await
}

fn tool<'m>(message: &'m mut Value, name: &str) -> &'m mut Value {
    let kind = format!("tool-{name}");
    let mut parts = message["parts"].as_array_mut().unwrap().iter_mut();
    parts.find(|part| part["type"] == kind).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_human_decides_and_the_model_goes_on() {
    let stand_in = StandIn::start(worker).await;
    let bridge = bridge(&stand_in, TOOLS);
    for (chat, approved, word) in [
        ("yes", true, "transactionId"),
        ("no", false, "denied this call"),
    ] {
        let question = user("do both");
        let first = post(&bridge, chat, std::slice::from_ref(&question)).await;
        let kinds = types(&first);
        for kind in [
            "text-delta",
            "tool-input-start",
            "tool-input-delta",
            "tool-input-available",
            "tool-approval-request",
            "finish",
        ] {
            assert!(kinds.iter().any(|it| it == kind), "{kind}: {kinds:?}");
        }
        let mut message = folded(&first);
        // The dice needed nobody; each call has its own arguments, although their fragments came in turns.
        assert_eq!(tool(&mut message, "roll_dice")["state"], "output-available");
        assert_eq!(tool(&mut message, "roll_dice")["input"]["count"], 2);
        let asked = tool(&mut message, "process_payment");
        assert_eq!(
            (&asked["state"], &asked["input"]["recipient"]),
            (&json!("approval-requested"), &json!("Ann"))
        );
        asked["state"] = json!("approval-responded");
        asked["approval"]["approved"] = json!(approved);
        post(&bridge, chat, &[question, message]).await;
        let told = bridge.settled_message(chat).await;
        assert!(text_of(&told).contains("so it is: "), "{told}");
        assert_eq!(told["metadata"]["usage"]["totalTokens"], 10, "{told}");

        let sent = stand_in.asked("/v1/chat/completions").pop().unwrap().body;
        let messages = sent["messages"].as_array().unwrap();
        let roles: Vec<&str> = messages
            .iter()
            .filter_map(|it| it["role"].as_str())
            .collect();
        assert_eq!(roles, ["system", "user", "assistant", "tool", "tool"]);
        assert_eq!(messages[2]["content"], "Well.");
        let ids: Vec<&Value> = messages[3..].iter().map(|it| &it["tool_call_id"]).collect();
        assert_eq!(ids, ["call00001", "call00002"]);
        let results = format!("{}{}", messages[3]["content"], messages[4]["content"]);
        assert!(results.contains(word), "{results}");
        let audit = bridge
            .get(&format!("/api/audit?chat={chat}"))
            .await
            .json()
            .to_string();
        assert_eq!(
            audit.matches("tool.finished").count(),
            1 + usize::from(approved),
            "{audit}"
        );
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_front_end_runs_a_tool_of_its_own() {
    let stand_in = StandIn::start(worker).await;
    let bridge = bridge(&stand_in, TOOLS);
    let question = user("open the door");
    let mut message = folded(&post(&bridge, "c", std::slice::from_ref(&question)).await);
    let door = tool(&mut message, "open_door");
    assert_eq!(
        (&door["state"], &door["input"]),
        (&json!("input-available"), &json!({"door": "front"}))
    );
    door["state"] = json!("output-available");
    door["output"] = json!({"opened": true});
    post(&bridge, "c", &[question, message]).await;
    let told = bridge.settled_message("c").await;
    assert_eq!(text_of(&told), "so it is: {\"opened\":true}");
}

/// Every answer of this model has the same ids: each call of a reply is a call nevertheless, up to the last step.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn steps_are_limited_and_ids_may_repeat() {
    let stand_in = StandIn::start(|_| events(calls(&[("roll_dice", "{}")]))).await;
    let bridge = bridge(&stand_in, "max_steps = 3\ntools = [\"roll_dice\"]\n");
    let events = bridge.ask("c", "again").await.events().await;
    let message = bridge.settled_message("c").await;
    let rolled = message["parts"].as_array().unwrap().iter();
    let rolled = rolled
        .filter(|part| part["type"] == "tool-roll_dice")
        .count();
    assert_eq!((rolled, stand_in.asked("/v1").len()), (3, 3), "{events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_that_are_none_leave_a_chat_that_goes_on() {
    let big = "x".repeat(17 * 1024 * 1024);
    let endless = format!("data: {{\"choices\":[{{\"delta\":{{\"content\":\"{big}");
    let error = |status: u16, message: &str| {
        let error = json!({"error": {"message": message, "code": "x"}});
        refused(status, "application/json", &error.to_string())
    };
    let rows: Vec<(Vec<u8>, &str)> = vec![
        (error(400, "no such field"), "no such field"),
        (error(401, "who are you"), "refuses the API key"),
        (error(404, "no such model"), "set agent.model"),
        (
            refused(404, "text/html", "<html>"),
            "correct agent.base_url",
        ),
        (
            b"HTTP/1.1 307 Moved\r\nlocation: /elsewhere\r\ncontent-length: 0\r\n\r\n".to_vec(),
            "correct agent.base_url",
        ),
        (
            refused(200, "text/html", "<html>hi</html>"),
            "check agent.base_url",
        ),
        (events(""), "was cut off"),
        (events(says("")), "was cut off"),
        (events("data: {\n\n"), "cannot be parsed"),
        (events(b"data: \xff\n\n"), "cannot be parsed"),
        (events(&endless), "cannot be parsed"),
        (
            refused(
                200,
                "application/json",
                &format!("{{\"choices\":\"{big}\"}}"),
            ),
            "too long",
        ),
        (
            refused(
                200,
                "application/json",
                &format!("{{\"choices\":[{}]}}", "[],".repeat(200_000) + "0"),
            ),
            "too many values",
        ),
        (
            events(calls(&[("roll_dice", "{\"count\": two}")])),
            "not a JSON object",
        ),
        (events(calls(&[("no_such_tool", "{}")])), "no_such_tool"),
    ];
    let words: Vec<&str> = rows.iter().map(|(_, words)| *words).collect();
    let stand_in = StandIn::start(move |asked| {
        let last = last(asked);
        let text = last["content"].as_str().unwrap_or_default();
        let row: Option<usize> = text.parse().ok();
        row.map_or_else(
            || events(says("fine") + &ends("stop")),
            |row| rows[row].0.clone(),
        )
    })
    .await;
    let address = stand_in.address;
    let toml = format!(
        "[agent]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"http://{address}\"\napi_key_env = \"MODEL_KEY\"\ntools = [\"roll_dice\"]\n"
    );
    let bridge = Bridge::with(&toml, |command| {
        command
            .env("MODEL_KEY", KEY)
            .env("OPENAI_API_KEY", "another-key-of-openai");
    });
    for (row, words) in words.iter().enumerate() {
        let chat = format!("c{row}");
        let events = bridge.ask(&chat, &row.to_string()).await.events().await;
        assert!(events.concat().contains(words), "{words}: {events:?}");
        assert_eq!(events.last().unwrap(), "[DONE]");
        let next = bridge.ask(&chat, "go on").await.events().await;
        assert_eq!(text_of(&folded(&next)), "fine", "{words}");
    }
    assert!(stand_in.asked("/elsewhere").is_empty());
    let heads: Vec<String> = stand_in
        .asked("/")
        .into_iter()
        .map(|asked| asked.head)
        .collect();
    assert!(
        heads
            .iter()
            .all(|head| head.contains(KEY) && !head.contains("key-of-openai"))
    );
    let log = bridge.log();
    assert!(!log.contains("panicked") && !log.contains(KEY), "{log}");
}

/// A key that happens to be in the environment is not for everybody.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_key_is_sent_that_was_not_named() {
    let stand_in = StandIn::start(worker).await;
    let address = stand_in.address;
    let toml =
        format!("[agent]\nkind = \"openai\"\nmodel = \"m\"\nbase_url = \"http://{address}\"\n");
    let bridge = Bridge::with(&toml, |command| {
        command
            .env("OPENAI_API_KEY", KEY)
            .env("GEMINI_API_KEY", KEY);
    });
    assert_eq!(
        text_of(&folded(&bridge.ask("c", "hello").await.events().await)),
        "fine"
    );
    let head = stand_in.asked("/chat/completions").pop().unwrap().head;
    assert!(
        !head.contains("authorization") && !head.contains(KEY),
        "{head}"
    );

    let agent = bridge.get("/api/agent").await.json();
    assert_eq!(
        (&agent["kind"], &agent["model"]),
        (&json!("openai"), &json!("m"))
    );
    assert!(
        !agent["modalities"].to_string().contains("audio"),
        "{agent}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_missing_is_named_at_start() {
    for (toml, words) in [
        ("", "agent.model"),
        ("model = \"m\"\n", "OPENAI_API_KEY"),
        (
            "model = \"m\"\nbase_url = \"http://127.0.0.1:1\"\napi_key_env = \"NO_SUCH\"\n",
            "NO_SUCH",
        ),
    ] {
        let toml = format!("[agent]\nkind = \"openai\"\n{toml}");
        let said = not_started(&toml, |command| {
            command.env_remove("OPENAI_API_KEY");
        });
        assert!(said.contains(words), "{toml}: {said}");
    }
}
