//! Conversations, as they are sent.

use adk_bridge_agents::tool::ToolSpec;
use adk_bridge_protocol::history::contents;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::parse_messages;
use adk_bridge_testkit::stand_in::{StandIn, events};
use serde_json::{Value, json};

use crate::{agent, agent_with, start};

/// The body of the request for a conversation of UI messages.
async fn sent(instruction: Option<&str>, tools: &[ToolSpec], conversation: Value) -> Value {
    let stand_in = StandIn::start(|_| events("data: [DONE]\n\n")).await;
    let agent = agent_with(&stand_in, |settings| {
        settings.instruction = instruction.map(str::to_owned);
    });
    let messages = parse_messages(Json::from(conversation).raw()).unwrap();
    start(&agent, contents(&messages), tools).await.unwrap();
    stand_in.asked("/v1/chat/completions").pop().unwrap().body
}

fn user(parts: Value) -> Value {
    json!({"id": "u", "role": "user", "parts": parts})
}

fn assistant(parts: Value) -> Value {
    json!({"id": "a", "role": "assistant", "parts": parts})
}

fn text(text: &str) -> Value {
    json!({"type": "text", "text": text})
}

fn file(media_type: &str, data: &str) -> Value {
    json!({"type": "file", "mediaType": media_type, "url": format!("data:{media_type};base64,{data}")})
}

fn tool(id: &str, name: &str, input: Value, rest: Value) -> Value {
    let mut part = json!({"type": format!("tool-{name}"), "toolCallId": id, "input": input});
    for (key, value) in rest.as_object().unwrap() {
        part[key] = value.clone();
    }
    part
}

fn called(id: &str, name: &str, arguments: &str) -> Value {
    json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}})
}

fn result(id: &str, content: &Value) -> Value {
    json!({"role": "tool", "tool_call_id": id, "content": content.to_string()})
}

#[tokio::test]
async fn the_whole_request() {
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let tools = [
        ToolSpec::server("weather", "Tells the weather.", schema.clone()),
        ToolSpec::client("time", "", json!({"type": "object"})),
    ];
    let body = sent(
        Some("Be brief."),
        &tools,
        json!([user(json!([text("hi")]))]),
    )
    .await;
    let expected = json!({
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "tools": [
            {"type": "function", "function": {"name": "weather", "description": "Tells the weather.", "parameters": schema}},
            {"type": "function", "function": {"name": "time", "parameters": {"type": "object", "properties": {}}}},
        ],
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(body, expected);
}

#[tokio::test]
async fn it_is_said_whether_requests_may_be_stored() {
    for store in [Some(false), Some(true), None] {
        let stand_in = StandIn::start(|_| events("data: [DONE]\n\n")).await;
        let agent = agent_with(&stand_in, |settings| settings.store = store);
        start(&agent, Vec::new(), &[]).await.unwrap();
        let body = stand_in.asked("/").pop().unwrap().body;
        assert_eq!(body.get("store").and_then(Value::as_bool), store);
    }
}

#[tokio::test]
async fn conversations_become_messages() {
    let asked = || user(json!([text("hi")]));
    let hi = || json!({"role": "user", "content": "hi"});
    let denied = json!({"state": "output-denied", "approval": {"id": "p", "approved": false, "reason": "too much"}});
    let rows = [
        (
            "neighbours become one message",
            json!([
                user(json!([text("a"), text("b")])),
                user(json!([text("c")])),
                assistant(json!([text("d")])),
                assistant(json!([text("e")])),
                asked()
            ]),
            json!([{"role": "user", "content": "a\n\nb\n\nc"}, {"role": "assistant", "content": "d\n\ne"}, hi()]),
        ),
        (
            "files in the form that fits them",
            json!([user(json!([
                text("look"),
                file("image/png", "AQID"), file("audio/wav", "AQID"), file("audio/mpeg", "AQID"), file("application/pdf", "AQID"),
                file("text/csv;charset=utf-8", "YSxi"), file("image/svg+xml", "PHN2Zy8+"), file("application/json", "e30="),
                file("video/mp4", "AQID"), file("text/plain", "//79"),
                {"type": "file", "mediaType": "image/jpeg", "url": "https://example.org/a.jpg"},
            ]))]),
            json!([{"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}},
                {"type": "input_audio", "input_audio": {"data": "AQID", "format": "wav"}},
                {"type": "input_audio", "input_audio": {"data": "AQID", "format": "mp3"}},
                {"type": "file", "file": {"filename": "document.pdf", "file_data": "data:application/pdf;base64,AQID"}},
                {"type": "text", "text": "a,b"}, {"type": "text", "text": "<svg/>"}, {"type": "text", "text": "{}"},
                {"type": "text", "text": "[Here is a file of type video/mp4, which you cannot read. Say so if it matters.]"},
                {"type": "text", "text": "[Here is a file of type text/plain, which you cannot read. Say so if it matters.]"},
                {"type": "image_url", "image_url": {"url": "https://example.org/a.jpg"}},
            ]}]),
        ),
        (
            "calls, whatever became of them",
            json!([
                asked(),
                assistant(json!([
                    {"type": "step-start"}, text("Let me see."),
                    tool("x", "weather", json!({"city": "Rome"}), json!({"state": "output-available", "output": {"sky": "blue"}})),
                    tool("y", "time", json!({}), json!({"state": "output-available", "output": "noon"})),
                    tool("z", "pay", json!({"amount": 1}), denied),
                    tool("v", "pay", json!({"amount": 2}), json!({"state": "output-error", "errorText": "nobody approved it in time"})),
                    tool("w", "ask", json!({}), json!({"state": "input-available"})),
                    {"type": "step-start"}, text("Blue."),
                ]))
            ]),
            json!([
                hi(),
                {"role": "assistant", "content": "Let me see.", "tool_calls": [
                    called("call00001", "weather", "{\"city\":\"Rome\"}"), called("call00002", "time", "{}"),
                    called("call00003", "pay", "{\"amount\":1}"), called("call00004", "pay", "{\"amount\":2}"), called("call00005", "ask", "{}"),
                ]},
                result("call00001", &json!({"sky": "blue"})), result("call00002", &json!({"result": "noon"})),
                result("call00003", &json!({"error": "the user denied this call; it was not run", "reason": "too much"})),
                result("call00004", &json!({"error": "nobody approved it in time"})),
                result("call00005", &json!({"error": "this call was not answered; it was not run"})),
                {"role": "assistant", "content": "Blue."},
            ]),
        ),
        (
            "pictures of results follow them",
            json!([
                asked(),
                assistant(json!([
                    {"type": "step-start"},
                    tool("x", "draw", json!({}), json!({"state": "output-available", "output": {"drawn": true}})), file("image/png", "AQID"),
                    tool("y", "time", json!({}), json!({"state": "output-available", "output": {}})),
                ]))
            ]),
            json!([
                hi(),
                {"role": "assistant", "content": null, "tool_calls": [called("call00001", "draw", "{}"), called("call00002", "time", "{}")]},
                result("call00001", &json!({"drawn": true})), result("call00002", &json!({})),
                {"role": "user", "content": [{"type": "text", "text": "The files of the result of draw:"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}}]},
            ]),
        ),
        (
            "thoughts go back with the calls since the last question",
            json!([
                asked(),
                assistant(json!([
                    {"type": "step-start"}, {"type": "reasoning", "text": "old"},
                    tool("x", "time", json!({}), json!({"state": "output-available", "output": {}})),
                    {"type": "step-start"}, {"type": "reasoning", "text": "older"}, text("Noon."),
                ])),
                asked(),
                assistant(json!([
                    {"type": "step-start"}, {"type": "reasoning", "text": "new"},
                    tool("x", "time", json!({}), json!({"state": "output-available", "output": {}})),
                ]))
            ]),
            json!([
                hi(),
                {"role": "assistant", "content": null, "tool_calls": [called("call00001", "time", "{}")]}, result("call00001", &json!({})),
                {"role": "assistant", "content": "Noon."}, hi(),
                {"role": "assistant", "content": null, "reasoning_content": "new", "tool_calls": [called("call00002", "time", "{}")]},
                result("call00002", &json!({})),
            ]),
        ),
        (
            "a message of files alone, and one without anything",
            json!([
                user(json!([file("image/png", "AQID")])),
                assistant(json!([])),
                user(json!([]))
            ]),
            json!([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:image/png;base64,AQID"}}]}]),
        ),
    ];
    for (name, conversation, messages) in rows {
        let body = sent(None, &[], conversation).await;
        assert_eq!(body["messages"], messages, "{name}");
        assert!(body.get("tools").is_none());
    }
}

/// The name of thoughts is the server's own.
#[tokio::test]
async fn thoughts_go_back_under_the_name_that_they_came_with() {
    let answer = "data: {\"choices\":[{\"delta\":{\"reasoning\":\"Hm\",\"content\":\"fine\"},\"finish_reason\":\"stop\"}]}\n\n";
    let stand_in = StandIn::start(move |_| events(answer)).await;
    let agent = agent(&stand_in);
    assert!(crate::ask(&agent).await.1.is_ok());
    let conversation = json!([
        user(json!([text("hi")])),
        assistant(json!([
            {"type": "step-start"}, {"type": "reasoning", "text": "new"},
            tool("x", "time", json!({}), json!({"state": "output-available", "output": {}})),
        ]))
    ]);
    let messages = parse_messages(Json::from(conversation).raw()).unwrap();
    start(&agent, contents(&messages), &[]).await.unwrap();
    let asked = stand_in.asked("/").pop().unwrap();
    assert_eq!(asked.body["messages"][1]["reasoning"], "new");
    assert!(asked.body["messages"][1].get("reasoning_content").is_none());
}
