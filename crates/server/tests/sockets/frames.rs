//! Frames that cannot be understood: one `error` each, and the connection lives.

use adk_bridge_protocol::base64;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, TestRunner};
use serde_json::{Value, json};

use crate::client::{BINARY, Client, FIN, TEXT};
use crate::support::Bridge;

#[tokio::test]
async fn each_bad_frame_gets_its_own_error() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=frames").await;
    let user = json!([{"role": "user", "parts": [{"type": "text", "text": "say hi"}]}]);
    let odd = base64::encode(&[1, 2, 3]);
    let cases = [
        ("", "bad_json"),
        ("{", "bad_json"),
        ("[]", "bad_json"),
        ("null", "bad_json"),
        ("{}", "missing_field"),
        (r#"{"type":7}"#, "wrong_type"),
        (r#"{"type":"mesage"}"#, "unknown_frame"),
        (r#"{"type":"pong"}"#, "unknown_frame"),
        (r#"{"type":"message"}"#, "missing_field"),
        (r#"{"type":"message","messages":{}}"#, "wrong_type"),
        (r#"{"type":"message","messages":[]}"#, "missing_field"),
        (r#"{"type":"message","messages":[{}]}"#, "bad_message"),
        (
            r#"{"type":"message","data":{"messages":[{"role":"user","parts":[]}]}}"#,
            "bad_message",
        ),
        (
            r#"{"type":"message","trigger":"x","messages":[]}"#,
            "bad_value",
        ),
        (r#"{"type":"tool_result"}"#, "missing_field"),
        (
            r#"{"type":"tool_result","toolCallId":"c"}"#,
            "missing_field",
        ),
        (
            r#"{"type":"tool_result","toolCallId":"c","result":1}"#,
            "not_found",
        ),
        (r#"{"type":"audio_control","action":"pause"}"#, "bad_value"),
        (r#"{"type":"audio_chunk","chunk":"!"}"#, "bad_base64"),
        (
            r#"{"type":"audio_chunk","chunk":"","sampleRate":44100}"#,
            "bad_audio_format",
        ),
        (
            r#"{"type":"video_frame","data":"AAAA","mediaType":"text/html"}"#,
            "bad_value",
        ),
        (r#"{"type":"modality","modality":"smell"}"#, "bad_value"),
        (r#"{"type":"audio_config","wire":"pigeon"}"#, "bad_value"),
    ];
    let mut cases: Vec<(String, &str)> = cases
        .iter()
        .map(|(text, code)| ((*text).to_owned(), *code))
        .collect();
    cases.extend([
        (
            json!({"type": "audio_chunk", "chunk": odd}).to_string(),
            "bad_audio_format",
        ),
        (
            json!({"type": "message", "id": "another", "messages": user}).to_string(),
            "wrong_chat",
        ),
        (
            json!({"type": "message", "dialect": "klingon", "messages": user}).to_string(),
            "bad_dialect",
        ),
        (
            json!({"type": "message", "messages": [{"role": "assistant", "id": "m", "parts": []}]})
                .to_string(),
            "not_found",
        ),
        ("[".repeat(100_000), "bad_json"),
        ("[".repeat(200_000), "too_many_values"),
    ]);
    for (text, code) in &cases {
        client.text(text).await;
        let error = client.control().await;
        assert_eq!(
            (&error["type"], &error["code"]),
            (&json!("error"), &json!(code)),
            "{text:.80}"
        );
        assert!(error["message"].as_str().unwrap().len() > 10);
    }
    for (bytes, code) in [
        (&[1_u8, 0, 0][..], "bad_binary"),
        (&[9, 0, 0, 0, 0, 0, 0, 0], "unknown_frame"),
        (&[1, 0xf0, 0, 0, 0, 0, 0, 0], "unknown_frame"),
        (&[2, 0, 0, 0, 0, 0, 0, 0, 1, 2], "unknown_frame"),
        (&[1, 0, 0, 0, 0, 0, 0, 0, 1], "bad_audio_format"),
    ] {
        client.frame(FIN | BINARY, bytes).await;
        assert_eq!(client.control().await["code"], code, "{bytes:?}");
    }
    // Without effect, and without an answer.
    for frame in [
        json!({"type": "interrupt"}),
        json!({"type": "audio_config", "data": {"wire": "binary"}}),
    ] {
        client.send(frame).await;
    }
    client.check_alive().await;
    let chats = bridge.get("/api/chats").await.json();
    assert_eq!(chats, json!([]), "nothing came of all that");
    client.say("say hi").await;
    client.turn().await;
}

#[tokio::test]
async fn a_refused_message_is_named_by_its_request() {
    let bridge = Bridge::start();
    let mut client = Client::open(&bridge, "/live?chat=named").await;
    let user = json!([{"role": "user", "parts": [{"type": "text", "text": "say hi"}]}]);
    let lost = json!([{"role": "assistant", "id": "m", "parts": []}]);
    let cases = [
        // At the frame, at the endpoint, in the chat.
        (json!({"requestId": "r1"}), json!("r1")),
        (json!({"data": {"requestId": "r2"}}), json!("r2")),
        (
            json!({"requestId": "r3", "id": "another", "messages": user}),
            json!("r3"),
        ),
        (json!({"requestId": "r4", "messages": lost}), json!("r4")),
        (
            json!({"data": {"requestId": "r5", "messages": lost}}),
            json!("r5"),
        ),
        (json!({"messages": lost}), Value::Null),
        (json!({"requestId": 7, "messages": lost}), Value::Null),
    ];
    for (mut frame, id) in cases {
        frame["type"] = json!("message");
        client.send(frame.clone()).await;
        let error = client.control().await;
        assert_eq!(
            (&error["type"], &error["requestId"]),
            (&json!("error"), &id),
            "{frame}"
        );
    }
    client.say("say hi").await;
    client.turn().await;
}

#[tokio::test]
async fn anything_at_all_gets_an_answer_and_harms_nobody() {
    let bridge = Bridge::start();
    let mut other = Client::open(&bridge, "/live?chat=other").await;
    let mut endpoints = [
        Client::open(&bridge, "/live?chat=any").await,
        Client::open(&bridge, "/api/chat/ws").await,
    ];
    let words = "[\"{}:,\\[\\]a-z_ 0-9]|type|message|send|resume|abort|requestId|data|tool_result|ä|\\\\u0000";
    let text = proptest::collection::vec(words, 0..24).prop_map(|words| words.concat());
    let frame = prop_oneof![
        text.prop_map(|text| (TEXT, text.into_bytes())),
        any_object().prop_map(|value| (TEXT, value.to_string().into_bytes())),
        proptest::collection::vec(any::<u8>(), 0..40).prop_map(|bytes| (BINARY, bytes)),
    ];
    let mut runner = TestRunner::new(Config::default());
    for _ in 0..300 {
        let (kind, bytes) = frame.new_tree(&mut runner).unwrap().current();
        endpoints[0].frame(FIN | kind, &bytes).await;
        endpoints[1].frame(FIN | kind, &bytes).await;
    }
    // Whatever was said, both still listen.
    endpoints[0]
        .send(json!({"type": "ping", "timestamp": "end"}))
        .await;
    loop {
        let answer = endpoints[0].control().await;
        match answer["type"].as_str().unwrap() {
            "pong" if answer["timestamp"] == "end" => break,
            "pong" | "error" => {}
            other => panic!("{other}"),
        }
    }
    endpoints[1]
        .send(json!({"type": "resume", "requestId": "end", "id": "nothing"}))
        .await;
    loop {
        let answer = endpoints[1].json().await;
        if answer["requestId"] == "end" {
            assert_eq!(answer["type"], "no-active");
            break;
        }
        assert!(
            matches!(answer["type"].as_str(), Some("error" | "no-active")),
            "{answer}"
        );
    }
    other.check_alive().await;
    assert!(!bridge.log().contains("panicked"), "{}", bridge.log());
}

fn any_object() -> impl Strategy<Value = Value> {
    const TYPES: [&str; 8] = [
        "message",
        "tool_result",
        "audio_chunk",
        "video_frame",
        "send",
        "resume",
        "abort",
        "x",
    ];
    let value = prop_oneof![
        Just(Value::Null),
        Just(json!([])),
        Just(json!({})),
        Just(json!([{"role": "user"}])),
        "[a-z]{0,5}".prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
    ];
    const FIELDS: [&str; 8] = [
        "messages",
        "id",
        "requestId",
        "toolCallId",
        "result",
        "chunk",
        "data",
        "body",
    ];
    let field = (proptest::sample::select(&FIELDS[..]), value);
    (
        proptest::sample::select(&TYPES[..]),
        proptest::collection::vec(field, 0..5),
    )
        .prop_map(|(kind, fields)| {
            let mut object = json!({"type": kind});
            for (name, value) in fields {
                object[name] = value;
            }
            object
        })
}

/// Understood, but there is nobody to be spoken with.
#[tokio::test]
async fn an_agent_that_cannot_be_reached_says_so() {
    let bridge = Bridge::configured(
        "[agent]\nkind = \"adk\"\napp = \"deaf\"\nbase_url = \"http://127.0.0.1:9\"\n",
    );
    let mut client = Client::open(&bridge, "/live?chat=deaf").await;
    client
        .send(json!({"type": "audio_chunk", "chunk": "AAA="}))
        .await;
    let refusal = client.control().await;
    assert_eq!(refusal["code"], "unavailable", "{refusal}");
    let message = refusal["message"].as_str().unwrap();
    assert!(message.contains("cannot be reached"), "{message}");
    // Where it is, is the operator's affair.
    assert!(!message.contains("127.0.0.1"), "{message}");
    assert!(bridge.log().contains("127.0.0.1:9"), "{}", bridge.log());
    client.check_alive().await;
}

/// What fits into half a minute may come at once; who goes on so is closed, and nobody else is.
#[tokio::test]
async fn more_than_anybody_can_say_closes_the_connection() {
    let bridge = Bridge::configured(
        "[live]\nmax_audio_bytes_per_second = 32000\nmax_video_bytes_per_second = 200000\n",
    );
    let mut other = Client::open(&bridge, "/live?chat=other").await;
    for (kind, bytes, free) in [(1, 320_000, 3), (3, 2_000_000, 3)] {
        let mut client = Client::open(&bridge, &format!("/live?chat=fast{kind}")).await;
        let mut frame = vec![kind, 0, 0, 0, 0, 0, 0, 0];
        frame.resize(frame.len() + bytes, 0);
        for _ in 0..free {
            assert!(client.frame(FIN | BINARY, &frame).await);
        }
        client.check_alive().await;
        // The bucket holds as much as ten seconds bring; so many frames come sooner on any machine.
        for _ in 0..20 {
            client.frame(FIN | BINARY, &frame).await;
        }
        let refusal = client.control().await;
        assert_eq!(refusal["code"], "too_much", "{refusal}");
        assert_eq!(client.closed().await.0, 4429);
        other.check_alive().await;
    }
}
