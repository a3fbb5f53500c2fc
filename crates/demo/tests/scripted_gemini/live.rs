//! The live part on the wire: binary frames, and what it refuses.

use futures_util::{SinkExt, StreamExt};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use super::*;

const PATH: &str = "/ws/google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent";
const LIVE_MODEL: &str = "models/gemini-live-2.5-flash";

type Socket = WebSocketStream<MaybeTlsStream<tokio::net::TcpStream>>;

async fn connect(server: &Server, path: &str) -> Result<Socket, Error> {
    let url = format!("{}{path}", server.url.replace("http", "ws"));
    connect_async(url).await.map(|(socket, _)| socket)
}

/// Sends these messages and returns everything that comes until the connection is closed, or until the turn is over.
async fn exchange(server: &Server, messages: &[Value]) -> (Vec<Value>, Option<(u16, String)>) {
    let mut socket = connect(server, &format!("{PATH}?key=key")).await.unwrap();
    for message in messages {
        socket
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
    }
    let mut received: Vec<Value> = Vec::new();
    loop {
        let next = tokio::time::timeout(Duration::from_secs(10), socket.next()).await;
        match next
            .unwrap_or_else(|_| panic!("neither an answer nor a close"))
            .unwrap()
            .unwrap()
        {
            Message::Binary(json) => {
                received.push(serde_json::from_slice(&json).unwrap());
                if received.last().unwrap()["serverContent"]["turnComplete"] == true {
                    return (received, None);
                }
            }
            Message::Close(frame) => {
                let frame = frame.unwrap();
                return (
                    received,
                    Some((frame.code.into(), frame.reason.to_string())),
                );
            }
            other => panic!("not JSON in a binary frame: {other:?}"),
        }
    }
}

fn setup(more: &Value) -> Value {
    let mut setup =
        json!({"model": LIVE_MODEL, "generationConfig": {"responseModalities": ["TEXT"]}});
    for (key, value) in more.as_object().unwrap() {
        setup[key] = value.clone();
    }
    json!({ "setup": setup })
}

/// The setup of a model that speaks.
fn spoken(model: &str, more: &Value) -> Value {
    let mut changed =
        json!({"model": model, "generationConfig": {"responseModalities": ["AUDIO"]}});
    for (key, value) in more.as_object().unwrap() {
        changed[key] = value.clone();
    }
    setup(&changed)
}

fn declaring(behavior: &str) -> Value {
    json!([{"functionDeclarations": [{"name": "a", "behavior": behavior}]}])
}

const SECOND: &str = "models/gemini-live-2.5-flash";
const EARLY_THIRD: &str = "models/gemini-3.1-flash-live-preview";
const THIRD: &str = "models/gemini-3.8-live";
const THINKING: &str = "models/gemini-3.8-live-extended-thinking";

/// A setup that the model takes, whatever its generation.
fn opening(model: &str, more: &Value) -> Value {
    let thinks =
        json!({"responseModalities": ["AUDIO"], "thinkingConfig": {"thinkingLevel": "LOW"}});
    let mut setup = spoken(model, more);
    if model == THINKING && more.get("generationConfig").is_none() {
        setup["setup"]["generationConfig"] = thinks;
    }
    setup
}

/// What each generation takes of what others refuse.
#[tokio::test]
async fn generations_refuse_what_others_take() {
    let server = Server::start().await;
    let config = |more: Value| json!({ "generationConfig": more });
    let thinks =
        |more: Value| config(json!({"responseModalities": ["AUDIO"], "thinkingConfig": more}));
    let asks = || json!({"realtimeInput": {"text": "say hi"}});
    // Whatever follows comes before it has ended.
    let asks_slowly = || json!({"realtimeInput": {"text": "slow 40"}});
    let content = || json!({"clientContent": {"turns": [user("say hi")], "turnComplete": true}});
    let history = || json!({"historyConfig": {"initialHistoryInClientContent": true}});
    let tools = |behavior: &str| json!({ "tools": declaring(behavior) });
    let update = || json!({"contextUpdate": {"tools": {"tools": [{"functionDeclarations": [{"name": "b"}]}]}}});
    let plain = || json!({});
    let all = [SECOND, EARLY_THIRD, THIRD, THINKING];
    // A setup, what follows it, and the models that take both; the others close with 1007.
    let cases: Vec<(Value, Vec<Value>, &[&str])> = vec![
        (plain(), vec![asks()], &all),
        (plain(), vec![content()], &[SECOND, THIRD, THINKING]),
        (history(), vec![content(), asks()], &all),
        (
            history(),
            vec![content(), asks_slowly(), content()],
            &[SECOND, THIRD, THINKING],
        ),
        (
            config(json!({"responseModalities": ["TEXT"]})),
            vec![asks()],
            &[SECOND],
        ),
        (
            thinks(json!({"thinkingLevel": "HIGH"})),
            vec![asks()],
            &[THINKING],
        ),
        (
            thinks(json!({"thinkingBudget": 100})),
            vec![asks()],
            &[THINKING],
        ),
        (
            thinks(json!({"thinkingLevel": "MINIMAL"})),
            vec![asks()],
            &[],
        ),
        (
            thinks(json!({"thinkingLevel": "LOW", "thinkingBudget": 1})),
            vec![asks()],
            &[],
        ),
        (
            config(json!({"responseModalities": ["AUDIO"], "enableAffectiveDialog": true})),
            vec![asks()],
            &[SECOND],
        ),
        (
            json!({"proactivity": {"proactiveAudio": false}}),
            vec![asks()],
            &[SECOND],
        ),
        (
            json!({"proactivity": {"proactiveAudio": true}}),
            vec![asks()],
            &[SECOND, THIRD, THINKING],
        ),
        (
            tools("BLOCKING"),
            vec![asks()],
            &[SECOND, EARLY_THIRD, THIRD],
        ),
        (
            tools("NON_BLOCKING"),
            vec![asks()],
            &[SECOND, THIRD, THINKING],
        ),
        (plain(), vec![update(), asks()], &[THIRD, THINKING]),
        (json!({"labels": {"a": "b"}}), vec![asks()], &all),
    ];
    for (more, then, takers) in cases {
        for model in all {
            let mut messages = vec![opening(model, &more)];
            messages.extend(then.clone());
            let (_, closed) = exchange(&server, &messages).await;
            let code = closed.map(|(code, _)| code);
            // Without a setting for thinking, that model takes nothing.
            let lacks_level = model == THINKING
                && messages[0]["setup"]["generationConfig"]["thinkingConfig"].is_null();
            let expected = match takers.contains(&model) && !lacks_level {
                true => None,
                false => Some(1007),
            };
            assert_eq!(code, expected, "{model}: {messages:?}");
        }
    }
}

/// Sends messages, each when the one before it has led to what it waits for.
async fn step(socket: &mut Socket, message: &Value, until: impl Fn(&Value) -> bool) -> Vec<Value> {
    socket
        .send(Message::text(message.to_string()))
        .await
        .unwrap();
    let mut received = Vec::new();
    while !received.last().is_some_and(&until) {
        let next = tokio::time::timeout(Duration::from_secs(10), socket.next()).await;
        let Ok(Some(Ok(Message::Binary(json)))) = next else {
            panic!("{next:?} after {received:?}");
        };
        received.push(serde_json::from_slice(&json).unwrap());
    }
    received
}

/// Calls whose results the model does not wait for.
#[tokio::test]
async fn calls_in_the_background() {
    let server = Server::start().await;
    let complete = |message: &Value| message["serverContent"]["turnComplete"] == true;
    let transcribed = |messages: &[Value]| -> String {
        let texts = messages.iter();
        let texts =
            texts.filter_map(|it| it["serverContent"]["outputTranscription"]["text"].as_str());
        texts.collect()
    };
    let asks = |text: &str| json!({"realtimeInput": {"text": text}});
    for (model, scheduling) in [
        (THIRD, Value::Null),
        (THIRD, json!("INTERRUPT")),
        (THINKING, Value::Null),
    ] {
        let mut socket = connect(&server, &format!("{PATH}?key=key")).await.unwrap();
        let more = json!({"tools": [{"functionDeclarations": [{"name": "get_location"}]}], "outputAudioTranscription": {}});
        step(&mut socket, &opening(model, &more), |it| {
            it["setupComplete"].is_object()
        })
        .await;
        let called = step(&mut socket, &asks("call get_location"), complete).await;
        let id = &called[0]["toolCall"]["functionCalls"][0]["id"];
        assert_eq!(transcribed(&called), "One moment. ", "it goes on speaking");
        let status = |messages: &[Value]| {
            let last = messages.last().unwrap();
            last["serverContent"]["interactionStatus"].clone()
        };
        assert_eq!(status(&called), "IN_PROGRESS");
        // The conversation goes on, and nobody cancels the call.
        let meanwhile = step(&mut socket, &asks("say meanwhile"), complete).await;
        assert_eq!(transcribed(&meanwhile), "meanwhile");
        assert_eq!(status(&meanwhile), "IN_PROGRESS");
        let mut response = json!({"id": id, "name": "get_location", "response": {"city": "Rome"}});
        if !scheduling.is_null() {
            response["scheduling"] = scheduling;
        }
        let response = json!({"toolResponse": {"functionResponses": [response]}});
        let answered = step(&mut socket, &response, complete).await;
        assert_eq!(transcribed(&answered), "You are in Rome.");
        assert_eq!(status(&answered), "IDLE");
    }
}

/// A result that comes while the model speaks is answered after that, at once, or not at all.
#[tokio::test]
async fn results_in_the_background_wait_for_the_model() {
    let server = Server::start().await;
    let more = json!({"tools": [{"functionDeclarations": [{"name": "get_location"}]}], "outputAudioTranscription": {}});
    for (scheduling, statuses) in [
        (Value::Null, vec!["IN_PROGRESS", "IDLE"]),
        (json!("INTERRUPT"), vec!["IN_PROGRESS", "IDLE"]),
        (json!("SILENT"), vec!["IDLE"]),
    ] {
        let mut socket = connect(&server, &format!("{PATH}?key=key")).await.unwrap();
        step(&mut socket, &opening(THIRD, &more), |it| {
            it["setupComplete"].is_object()
        })
        .await;
        let asks = |text: &str| json!({"realtimeInput": {"text": text}});
        let complete = |message: &Value| message["serverContent"]["turnComplete"] == true;
        let called = step(&mut socket, &asks("call get_location"), complete).await;
        let id = &called[0]["toolCall"]["functionCalls"][0]["id"];
        let speaks = |message: &Value| message["serverContent"]["modelTurn"].is_object();
        step(&mut socket, &asks("slow 5"), speaks).await;
        let mut response = json!({"id": id, "name": "get_location", "response": {"city": "Rome"}});
        if !scheduling.is_null() {
            response["scheduling"] = scheduling.clone();
        }
        let response = json!({"toolResponse": {"functionResponses": [response]}});
        let idle = |message: &Value| message["serverContent"]["interactionStatus"] == "IDLE";
        let received = step(&mut socket, &response, idle).await;
        let found: Vec<&str> = received
            .iter()
            .filter_map(|it| it["serverContent"]["interactionStatus"].as_str())
            .collect();
        assert_eq!(found, statuses, "{scheduling}");
        let interrupted = |it: &Value| it["serverContent"]["interrupted"] == true;
        assert_eq!(
            received.iter().any(interrupted),
            scheduling == "INTERRUPT",
            "{scheduling}"
        );
    }
}

/// One message may hold both sound and words, and speech is transcribed at once.
#[tokio::test]
async fn the_third_generation_says_it_in_one_message() {
    let server = Server::start().await;
    let more = json!({"outputAudioTranscription": {}});
    let asks = json!({"realtimeInput": {"text": "say hi"}});
    for (model, together) in [(SECOND, false), (EARLY_THIRD, true), (THIRD, true)] {
        let (received, _) = exchange(&server, &[opening(model, &more), asks.clone()]).await;
        let both = received
            .iter()
            .map(|it| &it["serverContent"])
            .any(|it| it["modelTurn"].is_object() && it["outputTranscription"].is_object());
        assert_eq!(both, together, "{model}");
    }
}

#[tokio::test]
async fn a_turn_in_frames() {
    let server = Server::start().await;
    let resumption = json!({"sessionResumption": {}});
    let content =
        json!({"client_content": {"turns": [user("say one two")], "turn_complete": true}});
    let (received, closed) = exchange(&server, &[setup(&resumption), content]).await;
    assert_eq!(closed, None);
    let text = |text: &str| json!({"serverContent": {"modelTurn": {"role": "model", "parts": [{"text": text}]}}});
    assert_eq!(received[0], json!({"setupComplete": {}}));
    assert_eq!(received[1]["sessionResumptionUpdate"]["resumable"], true);
    assert_eq!(
        received[2..5],
        [
            text("one "),
            text("two"),
            json!({"serverContent": {"generationComplete": true}})
        ]
    );
    assert_eq!(received[5]["usageMetadata"]["responseTokenCount"], 2);
}

#[tokio::test]
async fn wrong_messages_close_the_connection() {
    let server = Server::start().await;
    let plain = || setup(&json!({}));
    let third = || spoken("models/gemini-3.8-live", &json!({}));
    let audio = |mime: &str, data: &str| json!({"realtimeInput": {"audio": {"mimeType": mime, "data": data}}});
    let declared =
        || setup(&json!({"tools": [{"functionDeclarations": [{"name": "a"}, {"name": "b"}]}]}));
    let asks = |text: &str| json!({"realtimeInput": {"text": text}});
    let cases = [
        (vec![asks("hi")], 1007, "setup must be the first"),
        (vec![plain(), plain()], 1007, "setup must be sent once"),
        (
            vec![json!({"setup": {"model": LIVE_MODEL, "modle": 1}})],
            1007,
            "Unknown name \"modle\"",
        ),
        (vec![json!({"setup": {}})], 1008, "is not found"),
        (
            vec![setup(&json!({"model": "gemini-live-2.5-flash"}))],
            1008,
            "is not found",
        ),
        (
            vec![setup(
                &json!({"generationConfig": {"responseModalities": ["TEXT", "AUDIO"]}}),
            )],
            1007,
            "one response modality",
        ),
        (
            vec![spoken(
                "models/gemini-3.8-live-extended-thinking",
                &json!({}),
            )],
            1007,
            "Exactly one of thinking_level",
        ),
        (
            vec![setup(
                &json!({"generationConfig": {"responseModalities": ["AUDIO"], "thinkingConfig": {"thinkingLevel": "HIGH"}}}),
            )],
            1007,
            "Thinking config is not supported",
        ),
        (vec![plain(), json!({})], 1007, "invalid argument"),
        (
            vec![plain(), json!({"clientContent": {}, "realtimeInput": {}})],
            1007,
            "invalid argument",
        ),
        (vec![plain(), json!("hello")], 1007, "Invalid value"),
        (
            vec![plain(), audio("audio/pcm;rate=16000", "AA==")],
            1007,
            "Request contains an invalid argument",
        ),
        (vec![plain(), audio("audio/pcm", "!")], 1007, "Base64"),
        (
            vec![plain(), audio("audio/mp3", "AAAA")],
            1007,
            "Unsupported mime type",
        ),
        (
            vec![plain(), json!({"realtimeInput": {"activityStart": {}}})],
            1007,
            "Explicit activity control is not supported",
        ),
        (
            vec![
                third(),
                json!({"realtimeInput": {"mediaChunks": [{"mimeType": "audio/pcm", "data": ""}]}}),
            ],
            1007,
            "media_chunks is deprecated",
        ),
        (
            vec![
                plain(),
                json!({"toolResponse": {"functionResponses": [{"id": "x", "name": "a", "response": {}}]}}),
            ],
            1008,
            "was not found",
        ),
        (
            vec![
                plain(),
                json!({"clientContent": {"turns": [{"role": "model", "parts": [{"text": "hi"}]}], "turnComplete": true}}),
            ],
            1007,
            "end with a user role",
        ),
    ];
    for (messages, code, reason) in cases {
        let (_, closed) = exchange(&server, &messages).await;
        let (found, said) = closed.unwrap_or_else(|| panic!("{messages:?} was taken"));
        assert_eq!(found, code, "{messages:?}: {said}");
        assert!(said.contains(reason), "{messages:?}: {said}");
    }
    // Two calls want two results, and at once.
    let mut socket = connect(&server, &format!("{PATH}?key=key")).await.unwrap();
    for message in [declared(), asks("call a && call b")] {
        socket
            .send(Message::text(message.to_string()))
            .await
            .unwrap();
    }
    let id = loop {
        let Message::Binary(json) = socket.next().await.unwrap().unwrap() else {
            panic!("closed");
        };
        let message: Value = serde_json::from_slice(&json).unwrap();
        if let Some(id) = message["toolCall"]["functionCalls"][0]["id"].as_str() {
            break id.to_owned();
        }
    };
    let one =
        json!({"toolResponse": {"functionResponses": [{"id": id, "name": "a", "response": {}}]}});
    socket.send(Message::text(one.to_string())).await.unwrap();
    let closed = loop {
        if let Message::Close(frame) = socket.next().await.unwrap().unwrap() {
            break frame.unwrap();
        }
    };
    assert_eq!(u16::from(closed.code), 1007);
    assert!(closed.reason.contains("number of function responses"));
}

#[tokio::test]
async fn strangers_and_other_paths() {
    let server = Server::start().await;
    for version in ["v1", "v1beta", "v1alpha"] {
        let path = PATH.replace("v1beta", version);
        assert!(connect(&server, &format!("{path}?key=key")).await.is_ok());
    }
    let mut socket = connect(&server, PATH).await.unwrap();
    let Message::Close(Some(frame)) = socket.next().await.unwrap().unwrap() else {
        panic!("let in");
    };
    assert!(frame.reason.contains("unregistered callers"));
    for path in [
        "/ws/google.ai.generativelanguage.v2.GenerativeService.BidiGenerateContent?key=key",
        "/ws/other?key=key",
    ] {
        let Err(Error::Http(refusal)) = connect(&server, path).await else {
            panic!("{path} was found");
        };
        assert_eq!(refusal.status(), 404);
    }
    let plain = server
        .http
        .get(format!("{}{PATH}?key=key", server.url))
        .send()
        .await
        .unwrap();
    assert!(plain.status().is_client_error());
}

/// Bytes that are no JSON, and JSON that is no message, harm nobody else.
#[tokio::test]
async fn nonsense_closes_its_own_connection_only() {
    let server = Server::start().await;
    let mut healthy = connect(&server, &format!("{PATH}?key=key")).await.unwrap();
    healthy
        .send(Message::text(setup(&json!({})).to_string()))
        .await
        .unwrap();
    healthy.next().await.unwrap().unwrap();
    for nonsense in [&b"\xff\xfe"[..], b"{", b"[]", b"null", b""] {
        let mut socket = connect(&server, &format!("{PATH}?key=key")).await.unwrap();
        socket
            .send(Message::binary(nonsense.to_vec()))
            .await
            .unwrap();
        let Message::Close(Some(frame)) = socket.next().await.unwrap().unwrap() else {
            panic!("{nonsense:?} was taken");
        };
        assert_eq!(u16::from(frame.code), 1007, "{nonsense:?}");
    }
    let asks = json!({"realtimeInput": {"text": "say fine"}}).to_string();
    healthy.send(Message::text(asks)).await.unwrap();
    let Message::Binary(json) = healthy.next().await.unwrap().unwrap() else {
        panic!("closed");
    };
    assert!(String::from_utf8_lossy(&json).contains("fine"));
}
