//! Bodies and frames that do not end, and requests with very many files.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::client::{BINARY, Client, FIN, TEXT, masked};
use crate::rig::{ALICE, MB, Rig, message, text};
use crate::support::{Bridge, JSON, within};

/// How much of a body or a message has come when it goes no further: nearly all of the largest.
const UNFINISHED: usize = 31 * MB;

/// One fits, and a second does not.
const ONE_FITS: &str = "unfinished_bytes_per_user = 40000000";

#[tokio::test]
async fn bodies_that_do_not_end_are_bounded() {
    let mut rig = Rig::start(ONE_FITS).await;
    let piece = vec![b' '; MB];
    let length = (UNFINISHED + 1).to_string();
    let paths = [
        "/api/chat",
        "/api/chat",
        "/api/files?chat=c",
        "/api/chat/c/tool-output",
    ];
    let mut begun = Vec::new();
    for path in paths {
        let headers = [JSON, ALICE, ("content-length", length.as_str())];
        let mut connection = rig.begin("POST", path, &headers).await;
        for _ in 0..UNFINISHED / MB {
            assert!(connection.write(&piece).await);
        }
        begun.push(connection);
    }
    rig.serves_bob().await;
    assert!(rig.peak() < 90 * MB, "{} MB", rig.peak() / MB);
    // The others were displaced by the first, and get an error.
    for mut connection in begun.drain(1..) {
        assert!(connection.write(b" ").await);
        let answer = connection.answer("POST").await.whole().await;
        assert_eq!((answer.status, answer.code().as_str()), (429, "too_many"));
        assert!(
            answer
                .message()
                .contains("limits.unfinished_bytes_per_user")
        );
        assert!(answer.header("retry-after").is_some());
    }
    let mut first = begun.remove(0);
    assert!(first.write(b" ").await);
    let answer = first.answer("POST").await.whole().await;
    assert_eq!(answer.code(), "bad_json");
    rig.recovers().await;
}

#[tokio::test]
async fn a_body_that_comes_byte_by_byte_is_given_up() {
    let rig = Rig::start("body_time = \"1s\"").await;
    let stream = TcpStream::connect(rig.bridge.address).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let head = format!(
        "POST /api/chat HTTP/1.1\r\nhost: {}\r\n{}: {}\r\ncontent-length: 1000000\r\n\r\n",
        rig.bridge.address, ALICE.0, ALICE.1
    );
    write.write_all(head.as_bytes()).await.unwrap();
    let trickle = tokio::spawn(async move {
        while write.write_all(b" ").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    let answer = async {
        let mut answer = Vec::new();
        while !answer.ends_with(b"}}") && read.read_buf(&mut answer).await.unwrap() > 0 {}
        String::from_utf8(answer).unwrap()
    };
    let answer = within(answer).await;
    trickle.abort();
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(answer.contains("limits.body_time"), "{answer}");
}

/// The beginning of a message: the head of one frame, masked with nothing, and what has come of it.
fn begin(head: u8, announced: usize, come: usize) -> Vec<u8> {
    let mut frame = vec![head, 0xff];
    frame.extend((announced as u64).to_be_bytes());
    frame.extend([0; 4]);
    frame.resize(frame.len() + come, b' ');
    frame
}

async fn socket(rig: &Rig, path: &str) -> Client {
    let (head, client) = Client::try_open(&rig.bridge, path, &[ALICE]).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client
}

/// What a client receives before it is closed, and the code.
async fn refused(client: &mut Client) -> (String, u16) {
    let shown = client.message().await;
    let shown = String::from_utf8(shown.payload).unwrap();
    (shown, client.closed().await.0)
}

#[tokio::test]
async fn messages_that_do_not_end_are_bounded() {
    let mut rig = Rig::start(ONE_FITS).await;
    let part = begin(FIN | BINARY, UNFINISHED + 1, UNFINISHED);
    for endpoint in ["/live?chat=", "/api/chat/ws?number="] {
        let mut first = socket(&rig, &format!("{endpoint}1")).await;
        assert!(first.raw(&part).await);
        // One large frame, and many small ones.
        let fragment = begin(0, MB, MB);
        for (number, frames) in [
            (2, vec![part.clone()]),
            (
                3,
                [vec![begin(BINARY, MB, MB)], vec![fragment; 20]].concat(),
            ),
        ] {
            let mut next = socket(&rig, &format!("{endpoint}{number}")).await;
            for frame in frames {
                if !next.raw(&frame).await {
                    break;
                }
            }
            let (shown, code) = refused(&mut next).await;
            assert!(
                shown.contains("limits.unfinished_bytes_per_user"),
                "{shown}"
            );
            assert_eq!(code, 1013, "{endpoint}");
        }
        rig.serves_bob().await;
        // What is announced and does not come holds nothing.
        let mut idle = socket(&rig, &format!("{endpoint}4")).await;
        assert!(idle.raw(&begin(FIN | TEXT, UNFINISHED, 0)).await);
        assert!(first.raw(b" ").await);
        let shown = first.json().await;
        assert_eq!(shown["type"], "error", "{shown}");
        assert!(rig.peak() < 150 * MB, "{} MB", rig.peak() / MB);
    }
    rig.recovers().await;
}

/// An agent that accepts connections and says nothing, so that what is sent to it waits.
async fn silent_agent() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut open = Vec::new();
        while let Ok((stream, _)) = listener.accept().await {
            open.push(stream);
        }
    });
    address
}

#[tokio::test]
async fn pictures_that_wait_for_the_agent_are_bounded() {
    let agent = silent_agent().await;
    let toml = format!(
        "[agent]\nkind = \"gemini\"\nbase_url = \"http://{agent}\"\n[limits]\nunfinished_bytes_per_user = 20000000\n"
    );
    let bridge = Bridge::with(&toml, |command| {
        command.env("GEMINI_API_KEY", "a-key-0123456789");
    });
    // The pages of the program that are read for the first time are not what is measured.
    let mut first = Client::open(&bridge, "/live?chat=first").await;
    first
        .raw(&masked(FIN | TEXT, br#"{"type":"ping","timestamp":1}"#))
        .await;
    assert_eq!(first.control().await["type"], "pong");
    let before = bridge.memory();
    let mut picture = vec![3, 0, 0, 0, 0, 0, 0, 0];
    picture.resize(4 * MB, 0xff);
    let (mut taken, mut open) = (0, Vec::new());
    for number in 0..12 {
        let mut client = Client::open(&bridge, &format!("/live?chat=c{number}")).await;
        for _ in 0..2 {
            let mut frames = masked(FIN | BINARY, &picture);
            frames.extend(masked(FIN | TEXT, br#"{"type":"ping","timestamp":1}"#));
            client.raw(&frames).await;
            let shown = client.control().await;
            if shown["type"] == "pong" {
                taken += 1;
                continue;
            }
            let message = shown["message"].as_str().unwrap();
            assert!(
                message.contains("limits.unfinished_bytes_per_user"),
                "{message}"
            );
            break;
        }
        open.push(client);
    }
    assert!((3..=5).contains(&taken), "{taken} wait");
    let grown = bridge.memory().saturating_sub(before);
    assert!(grown < 60 * MB, "{} MB", grown / MB);
    assert_eq!(bridge.get("/api/chats").await.status, 200);
}

#[tokio::test]
async fn a_message_that_takes_too_long_is_given_up() {
    let rig = Rig::start("body_time = \"1s\"").await;
    for endpoint in ["/live?chat=c", "/api/chat/ws"] {
        for head in [FIN | TEXT, TEXT, FIN | BINARY] {
            let mut client = socket(&rig, endpoint).await;
            assert!(client.raw(&begin(head, 1_000, 500)).await);
            let (shown, code) = refused(&mut client).await;
            assert!(shown.contains("limits.body_time"), "{shown}");
            assert_eq!(code, 4408, "{endpoint}");
        }
    }
}

#[tokio::test]
async fn a_socket_does_not_keep_what_a_long_message_took() {
    let mut rig = Rig::start("\n[live]\nheartbeat = \"10m\"").await;
    let message = begin(FIN | BINARY, UNFINISHED / 2, UNFINISHED / 2);
    let mut open = Vec::new();
    for number in 0..4 {
        let mut client = socket(&rig, &format!("/live?chat=c{number}")).await;
        assert!(client.raw(&message).await);
        assert_eq!(client.control().await["type"], "error");
        open.push(client);
    }
    rig.recovers().await;
    for client in &mut open {
        client.check_alive().await;
    }
}

fn note(number: usize) -> Value {
    json!({"type": "file", "mediaType": "text/plain", "url": format!("data:text/plain,{number}")})
}

#[tokio::test]
async fn files_of_a_request_are_counted_before_one_is_written() {
    let mut rig = Rig::start("files_per_request = 4").await;
    let notes = |count: usize| -> Vec<Value> { (0..count).map(note).collect() };
    let said = |count: usize| {
        let mut parts = notes(count);
        parts.push(text("say Read."));
        parts
    };
    let cases = [
        // A message of the user.
        ("one", vec![message("u1", "user", said(5))]),
        ("many", vec![message("u1", "user", said(5_000))]),
        // A history that the server does not know, with files in all of its messages.
        (
            "history",
            vec![
                message("u1", "user", said(2)),
                message("a1", "assistant", notes(2)),
                message("u2", "user", said(1)),
            ],
        ),
        (
            "long history",
            (0..50)
                .map(|number| message(&format!("u{number}"), "user", said(100)))
                .collect(),
        ),
    ];
    for (name, messages) in cases {
        let refused = rig.post(&json!({"id": name, "messages": messages})).await;
        assert_eq!(refused.status, 422, "{name}");
        assert_eq!(refused.code(), "too_many_files", "{name}");
        assert!(refused.message().contains("limits.files_per_request"));
        assert_eq!(rig.files(), 0, "{name}");
    }
    let body = json!({"id": "four", "messages": [message("u1", "user", said(4))]});
    assert_eq!(rig.post(&body).await.status, 200);
    assert_eq!(rig.files(), 4);
    // What the server has is not counted again.
    let known = message("u1", "user", said(4));
    let body = json!({"id": "four", "messages": [known, message("u2", "user", said(3))]});
    assert_eq!(rig.post(&body).await.status, 200);
    assert_eq!(rig.files(), 7);
    rig.recovers().await;
}
