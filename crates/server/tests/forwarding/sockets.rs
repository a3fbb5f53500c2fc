//! WebSockets through a replica that does not own their chats, and tickets of another replica.

use std::time::{Duration, Instant};

use adk_bridge_testkit::socket::{CLOSE, Client, FIN, Said, reason};
use adk_bridge_testkit::users::ALICE;
use adk_bridge_testkit::within;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::rig::{Fleet, Replica};

async fn open(replica: &Replica, path: &str) -> Client {
    let (head, client) = Client::try_open_at(replica.address, path, &[ALICE]).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client
}

#[tokio::test]
async fn a_live_connection_reaches_its_chat_through_any_replica() {
    let (fleet, a, b) = Fleet::pair("").await;
    let mut first = open(&a, "/live?chat=c").await;
    first.check_alive().await;
    assert_eq!(fleet.owners.owner_of("c"), Some(a.address));
    // Another connection takes the chat over, wherever it comes in.
    let mut second = open(&b, "/live?chat=c").await;
    assert_eq!(first.closed().await.0, 4409);
    second.check_alive().await;
    second.say("say hi").await;
    let (_, chunks) = second.turn().await;
    let text: String = chunks
        .iter()
        .filter_map(|it| it["delta"].as_str())
        .collect();
    assert_eq!(text, "hi");
    assert_eq!(fleet.owners.owner_of("c"), Some(a.address));
    // Close codes pass both ways.
    second.leave().await;
    let mut broken = open(&b, "/live?chat=c").await;
    broken.check_alive().await;
    broken.frame(FIN | 0x3, b"no such opcode").await;
    assert_eq!(broken.closed().await.0, 1002);
    let name = "adk_bridge_forwarded_requests_total{kind=\"live\"}";
    assert_eq!(b.count(name).await, 2);
    let bytes = "adk_bridge_forwarded_bytes_total{direction=\"received\"}";
    assert!(b.count(bytes).await > 100);
}

#[tokio::test]
async fn a_live_connection_breaks_with_its_owner() {
    let (_fleet, a, b) = Fleet::pair("").await;
    let mut client = {
        let mut first = open(&a, "/live?chat=c").await;
        first.check_alive().await;
        open(&b, "/live?chat=c").await
    };
    client.check_alive().await;
    drop(a);
    while let Some(frame) = client.next().await {
        // What dies with its threads one after the other may still say so.
        let is_failure = frame.head == FIN | CLOSE && reason(&frame).0 == 1011;
        assert!(is_failure || frame.head != FIN | CLOSE, "{frame:?}");
    }
}

/// A replica that stops says so to clients whose chats are at another one, and they find them again.
#[tokio::test]
async fn a_replica_that_stops_sends_its_tunnels_elsewhere() {
    let (fleet, a, mut b) = Fleet::pair("[server]\ndrain = \"1s\"\n").await;
    let mut first = open(&a, "/live?chat=c").await;
    first.check_alive().await;
    let mut client = open(&b, "/live?chat=c").await;
    client.check_alive().await;
    b.terminate();
    match client.said().await {
        Said::Control(control) => assert_eq!(control["type"], "reconnect", "{control}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(client.closed().await.0, 1001);
    let mut again = open(&a, "/live?chat=c").await;
    again.check_alive().await;
    assert_eq!(fleet.owners.owner_of("c"), Some(a.address));
}

#[tokio::test]
async fn a_ticket_opens_a_socket_at_any_replica_once() {
    let (_fleet, a, b) = Fleet::pair("").await;
    for path in ["/live", "/api/chat/ws"] {
        let ticket = a.send("POST", "/api/ticket", "").await.json();
        let ticket = ticket["ticket"].as_str().unwrap();
        let path = format!("{path}?ticket={ticket}");
        let (head, _client) = Client::try_open_at(b.address, &path, &[]).await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        let (head, _) = Client::try_open_at(b.address, &path, &[]).await;
        assert!(head.starts_with("HTTP/1.1 401"), "{head}");
    }
    // It is used up at the first replica, and the owner needs none.
    let mut owner = open(&a, "/live?chat=c").await;
    owner.check_alive().await;
    let ticket = a.send("POST", "/api/ticket", "").await.json();
    let path = format!("/live?ticket={}&chat=c", ticket["ticket"].as_str().unwrap());
    let (head, mut client) = Client::try_open_at(b.address, &path, &[]).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client.check_alive().await;
}

fn send(request: &str, chat: &str, text: &str) -> Value {
    json!({
        "type": "send", "requestId": request, "id": chat, "trigger": "submit-message",
        "messages": [{"id": format!("u-{request}"), "role": "user", "parts": [{"type": "text", "text": text}]}],
        "headers": {}, "body": {},
    })
}

/// The frames of one request until its end; others are skipped.
async fn frames(client: &mut Client, request: &str) -> Vec<Value> {
    let mut frames = Vec::new();
    loop {
        let frame = client.json().await;
        if frame["requestId"] != request {
            continue;
        }
        let kind = frame["type"].as_str().unwrap().to_owned();
        frames.push(frame);
        if kind != "start" && kind != "chunk" {
            return frames;
        }
    }
}

fn text(frames: &[Value]) -> String {
    let deltas = frames.iter().filter_map(|it| it["chunk"]["delta"].as_str());
    deltas.collect()
}

/// One socket, chats at three places: here, elsewhere, and with an owner that changes.
#[tokio::test]
async fn chats_of_one_socket_may_be_owned_anywhere() {
    let (fleet, a, b) = Fleet::pair("").await;
    let mut theirs = a.ask("theirs", "slow 100000").await;
    theirs.event().await.unwrap();
    let mut socket = open(&b, "/api/chat/ws").await;
    socket.send(send("mine", "mine", "say here")).await;
    assert_eq!(text(&frames(&mut socket, "mine").await), "here");

    // Resuming reads along, in whole frames with gapless numbers.
    socket
        .send(
            json!({"type": "resume", "requestId": "r", "id": "theirs", "headers": {}, "body": {}}),
        )
        .await;
    loop {
        let frame = socket.json().await;
        assert_eq!(frame["requestId"], "r");
        if frame["sequence"] == 10 {
            break;
        }
    }
    // The stop reaches the turn at its owner; what is sent after it is not affected.
    socket
        .send(json!({"type": "abort", "requestId": "r"}))
        .await;
    socket.send(send("next", "theirs", "say there")).await;
    let next = frames(&mut socket, "next").await;
    assert_eq!(text(&next), "there", "{next:?}");
    assert_eq!(theirs.events().await.last().unwrap(), "[DONE]");
    assert_eq!(fleet.owners.owner_of("theirs"), Some(a.address));
    let numbers = next.iter().filter_map(|it| it["sequence"].as_u64());
    assert!(numbers.eq(0..next.len() as u64 - 2));

    // Refused by the owner, in its words; the socket goes on.
    let mut bad = send("bad", "theirs", "");
    bad["messages"][0]["parts"] = json!([]);
    let mut busy = a.ask("theirs", "slow 100000").await;
    busy.event().await.unwrap();
    socket.send(bad).await;
    let refused = frames(&mut socket, "bad").await;
    assert_eq!(refused[0]["type"], "error");
    assert!(
        refused[0]["errorText"].as_str().unwrap().contains("empty"),
        "{refused:?}"
    );
    socket
        .send(json!({"type": "resume", "requestId": "none", "id": "nothing", "headers": {}, "body": {}}))
        .await;
    assert_eq!(frames(&mut socket, "none").await[0]["type"], "no-active");

    // The owner dies: the next frame finds the new one, which is this replica.
    drop(a);
    let after = loop {
        socket.send(send("after", "theirs", "say after")).await;
        let frames = frames(&mut socket, "after").await;
        if frames.last().unwrap()["type"] == "end" {
            break frames;
        }
    };
    assert_eq!(text(&after), "after");
    assert_eq!(fleet.owners.owner_of("theirs"), Some(b.address));
}

/// The answers of other replicas have until the end of the drain, like its own.
#[tokio::test]
async fn a_socket_closes_when_what_it_passes_on_has_ended() {
    /// Takes longer than a replica that waits for nothing takes to stop.
    const LONG: &str = "long 1800";
    let (_fleet, mut a, b) = Fleet::pair("[server]\ndrain = \"60s\"\n").await;
    let mut owned = b.ask("c", LONG).await;
    owned.event().await.unwrap();
    let mut socket = open(&a, "/api/chat/ws").await;
    let resume = json!({"type": "resume", "requestId": "r", "id": "c", "headers": {}, "body": {}});
    socket.send(resume).await;
    assert_eq!(socket.json().await["type"], "start");
    a.terminate();
    let frames = frames(&mut socket, "r").await;
    assert_eq!(frames.last().unwrap()["type"], "end");
    // There is nothing more to wait for.
    let ended = Instant::now();
    assert_eq!(socket.closed().await.0, 1001);
    assert!(ended.elapsed() < Duration::from_secs(5));
}

/// A client that is told nothing sends its message again, and the owner would answer both.
#[tokio::test]
async fn a_closing_socket_tells_first_what_became_of_its_requests() {
    let (fleet, mut a, _b) = Fleet::pair("[server]\ndrain = \"0s\"\n").await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    fleet.owners.lie(Some(listener.local_addr().unwrap()));
    let mut socket = open(&a, "/api/chat/ws").await;
    socket.send(send("r", "c", "say hi")).await;
    let (mut owner, _) = within(listener.accept()).await.unwrap();
    owner.readable().await.unwrap();

    a.terminate();
    // Sockets are closed as soon as it takes no connections any more.
    let refuses = async {
        while TcpStream::connect(a.address).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(refuses).await;
    let answer = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: {}\n\n";
    owner.write_all(answer.as_bytes()).await.unwrap();
    let frame = socket.json().await;
    assert_eq!(
        (&frame["type"], &frame["requestId"]),
        (&json!("start"), &json!("r"))
    );
}
