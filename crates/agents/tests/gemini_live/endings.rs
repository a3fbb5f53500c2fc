//! How connections end, and why some never begin.

use adk_bridge_agents::error::AgentErrorKind;
use adk_bridge_agents::live::NO_CODE;
use futures_util::SinkExt;
use tokio_tungstenite::tungstenite::Message;

use super::*;

#[tokio::test]
async fn a_connection_tells_how_it_ends() {
    let server = Server::start().await;
    for (words, expected) in [
        ("close 1011", "closed: 1011"),
        ("close 1007", "closed: 1007"),
        ("http 503", "closed: 1011"),
        ("drop", "closed: 1006"),
        ("say half then cut", "closed: 1006"),
    ] {
        let mut talk = server.open(MODEL, &setup(Modality::Audio, &[])).await;
        talk.send(LiveInput::Text(words)).await;
        let lines = talk.until("closed").await;
        let last = lines.last().unwrap();
        assert!(last.starts_with(expected), "{words}: {lines:?}");
    }
}

#[tokio::test]
async fn a_connection_is_warned_before_its_limit() {
    let server = Server::with(Options {
        live_limit: Duration::from_millis(400),
        ..Options::default()
    })
    .await;
    let mut talk = server.open(MODEL, &setup(Modality::Text, &[])).await;
    let lines = talk.until("closed").await;
    assert!(lines[0].starts_with("go away: "), "{lines:?}");
    assert!(lines[1].starts_with("closed: 1011"), "{lines:?}");
}

#[tokio::test]
async fn a_warning_comes_with_its_time() {
    let server = Server::start().await;
    let mut talk = server.open(MODEL, &setup(Modality::Text, &[])).await;
    talk.send(LiveInput::Text("go away 1s then say bye")).await;
    assert_eq!(
        talk.until("complete").await,
        ["go away: 1s", "wrote: bye", "complete"]
    );
    let lines = talk.until("closed").await;
    assert!(lines[0].starts_with("closed: 1011"), "{lines:?}");
}

#[tokio::test]
async fn a_failure_on_demand_does_not_repeat_on_the_next_connection() {
    let server = Server::start().await;
    let wish = "close 1011 once then say at last";
    let mut talk = server.open(MODEL, &setup(Modality::Text, &[])).await;
    talk.send(LiveInput::Text(wish)).await;
    talk.until("closed").await;
    let again = LiveSetup {
        contents: vec![user(wish)],
        answer: true,
        ..setup(Modality::Text, &[])
    };
    let mut talk = server.open(MODEL, &again).await;
    assert_eq!(talk.until("complete").await, ["wrote: at last", "complete"]);
}

#[tokio::test]
async fn refusals_have_their_code_and_reason() {
    let server = Server::with(Options {
        keys: vec!["key".into()],
        ..Options::default()
    })
    .await;
    let plain = setup(Modality::Text, &[]);
    let unknown = LiveSetup {
        handle: Some("unknown"),
        ..setup(Modality::Text, &[])
    };
    let mut other_key = settings(&server.url, MODEL);
    other_key.api_key = "other".into();
    let cases = [
        (
            settings(&server.url, "nonsense"),
            &plain,
            Some(1008),
            AgentErrorKind::Rejected,
            "\"nonsense\" is unknown or has been retired: models/nonsense",
        ),
        (
            settings(&server.url, "gemini-2.5-flash-native-audio-preview-12-2025"),
            &plain,
            Some(1008),
            AgentErrorKind::Rejected,
            "set agent.live_model",
        ),
        (
            settings(&server.url, MODEL),
            &unknown,
            Some(1008),
            AgentErrorKind::Rejected,
            "session not found",
        ),
        (
            other_key,
            &plain,
            Some(1007),
            AgentErrorKind::Unauthorized,
            "API key not valid",
        ),
        (
            settings("http://127.0.0.1:1", MODEL),
            &plain,
            None,
            AgentErrorKind::Unreachable,
            "cannot be reached",
        ),
        // TLS that meets none: an error, as everything else.
        (
            settings(&server.url.replace("http", "https"), MODEL),
            &plain,
            None,
            AgentErrorKind::Unreachable,
            "cannot be reached",
        ),
    ];
    for (settings, setup, code, kind, reason) in cases {
        let error = GeminiLive::new(settings).open(setup).await.unwrap_err();
        assert_eq!(error.code, code, "{error:?}");
        assert_eq!(error.error.kind(), kind, "{error:?}");
        assert!(error.error.message().contains(reason), "{error:?}");
    }
}

/// A server that sends the given messages and then nothing more.
pub(super) async fn still(messages: Vec<&'static str>) -> (String, tokio::task::JoinHandle<()>) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let task = tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        for message in messages {
            socket.send(Message::text(message)).await.unwrap();
        }
        std::future::pending::<()>().await;
    });
    (url, task)
}

#[tokio::test]
async fn a_dead_line_is_noticed() {
    let (url, task) = still(vec![r#"{"setupComplete":{}}"#]).await;
    let live = GeminiLive::new(settings(&url, MODEL));
    let mut connection = live.open(&setup(Modality::Text, &[])).await.unwrap();
    tokio::time::pause();
    let read = connection.read().await;
    assert!(
        matches!(read, Read::Closed { code: NO_CODE, .. }),
        "{read:?}"
    );
    task.abort();
}

#[tokio::test]
async fn what_cannot_be_read_is_an_error() {
    let messages = vec![r#"{"setupComplete":{}}"#, "{", r#"{"news":1}"#];
    let (url, task) = still(messages).await;
    let live = GeminiLive::new(settings(&url, MODEL));
    let mut connection = live.open(&setup(Modality::Text, &[])).await.unwrap();
    let mut read = async || match connection.read().await {
        Read::Message(message) => connection.events(&message, &mut |_| {}).is_ok(),
        other => panic!("{other:?}"),
    };
    assert!(!read().await);
    assert!(read().await, "what is unknown is passed over");
    task.abort();
}
