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
    let third = || setup(&json!({"model": "models/gemini-3.8-live"}));
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
            vec![setup(
                &json!({"model": "models/gemini-3.8-live-extended-thinking"}),
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
