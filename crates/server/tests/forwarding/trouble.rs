//! Owners that are gone, die, move or lie; clients that leave or do not read.

use std::time::{Duration, Instant};

use adk_bridge_testkit::http::{Connection, Response};
use adk_bridge_testkit::users::ALICE;
use adk_bridge_testkit::{JSON, asking, folded, text_of, within};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::rig::Fleet;

#[tokio::test]
async fn a_stream_breaks_off_with_its_owner_and_the_chat_is_had_after_the_lease() {
    let (fleet, a, b) = Fleet::pair("").await;
    let mut owned = a.ask("c", "slow 100000").await;
    owned.event().await.unwrap();
    let mut through = b.open("GET", "/api/chat/c/stream", "").await;
    through.events_until("text-delta").await;
    drop(a);
    // No end is made up, so that the client resumes.
    assert!(through.breaks_off().await);
    // The owner cannot be reached and its lease has not ended: the request waits for that.
    let mut said = b.ask("c", "say hi").await;
    assert_eq!(said.status, 200);
    assert_eq!(text_of(&folded(&said.events().await)), "hi");
    assert_eq!(fleet.owners.owner_of("c"), Some(b.address));
    let name = "adk_bridge_forwarding_failures_total{reason=\"unreachable\"}";
    assert!(b.count(name).await > 0);
}

/// An owner that takes a request and says nothing may have begun: the request is not sent again.
#[tokio::test]
async fn what_may_have_begun_is_not_sent_twice() {
    let (fleet, a, _b) = Fleet::pair("").await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    fleet.owners.lie(Some(listener.local_addr().unwrap()));
    let owner = tokio::spawn(async move {
        let mut requests = Vec::new();
        while let Ok(Ok((mut stream, _))) =
            tokio::time::timeout(Duration::from_secs(2), listener.accept()).await
        {
            let mut head = [0; 16];
            stream.read_exact(&mut head).await.unwrap();
            requests.push(String::from_utf8_lossy(&head).into_owned());
        }
        requests
    });
    let body = asking("c", "say hi");
    let refused = a.post("/api/chat", &body).await;
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("x-error-code"), Some("unavailable"));
    assert!(refused.header("retry-after").is_some());
    assert!(words(&refused).contains("load the chat again"));
    let requests = owner.await.unwrap();
    assert_eq!(requests, ["POST /api/chat H"]);
}

#[tokio::test]
async fn an_owner_that_cannot_be_reached_is_named_after_a_while() {
    let (fleet, a, _b) = Fleet::pair("").await;
    let nobody = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = nobody.local_addr().unwrap();
    drop(nobody);
    fleet.owners.lie(Some(address));
    let body = asking("c", "say hi");
    let begun = Instant::now();
    let refused = a.post("/api/chat", &body).await;
    assert!(begun.elapsed() >= crate::rig::LEASE);
    assert_eq!(refused.status, 503);
    assert_eq!(refused.header("x-error-code"), Some("unavailable"));
    assert!(words(&refused).contains("\"nowhere\""), "{refused:?}");
    // It is the truth that counts in the end.
    fleet.owners.lie(None);
    assert_eq!(a.post("/api/chat", &body).await.status, 200);
}

/// What has only waited behind a tool is begun by the next owner, wherever it came in.
#[tokio::test]
async fn a_message_that_waits_when_its_owner_stops_goes_on_elsewhere() {
    let (fleet, mut a, b) = Fleet::pair("[server]\ndrain = \"1s\"\n").await;
    let mut waiting = Vec::new();
    for (chat, replica) in [("direct", &a), ("passed", &b)] {
        let first = a.ask(chat, "call endless {}").await;
        let audit = format!("/api/audit?chat={chat}");
        let begun = async {
            let is_begun =
                |it: Response| String::from_utf8_lossy(&it.body).contains("tool.started");
            while !is_begun(a.send("GET", &audit, "").await) {}
        };
        within(begun).await;
        let mut connection = Connection::open(replica.address).await;
        let body = asking(chat, "say hi").to_string();
        connection
            .request("POST", "/api/chat", &[ALICE, JSON], body.as_bytes())
            .await;
        waiting.push((chat, connection, first));
    }
    a.terminate();
    for (chat, connection, _first) in waiting {
        let mut answer = connection.answer("POST").await;
        assert_eq!(answer.status, 200, "{chat}");
        assert_eq!(text_of(&folded(&answer.events().await)), "hi", "{chat}");
        assert_eq!(fleet.owners.owner_of(chat), Some(b.address));
    }
}

/// The owner's reader is gone as soon as the client is, and the turn runs on.
#[tokio::test]
async fn a_client_that_leaves_ends_the_hop() {
    let (_fleet, a, b) = Fleet::pair("").await;
    let mut owned = a.ask("c", "slow 100000").await;
    owned.event().await.unwrap();
    let mut through = b.open("GET", "/api/chat/c/stream", "").await;
    through.events_until("text-delta").await;
    assert_eq!(a.count("adk_bridge_readers").await, 2);
    drop(through);
    let gone = async {
        while a.count("adk_bridge_readers").await > 1 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(gone).await;
    owned.event().await.unwrap();
}

/// Only the buffers of the system, and one of ours, hold what a client does not read: the owner has to wait.
#[tokio::test]
async fn a_client_that_does_not_read_holds_the_owner_back() {
    /// More than two connections can have in the buffers of their systems.
    const TOO_MUCH: usize = 64 * 1024 * 1024;
    let (fleet, a, _b) = Fleet::pair("").await;
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    fleet.owners.lie(Some(listener.local_addr().unwrap()));
    let owner = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut asked = Vec::new();
        while !asked.ends_with(b"}]}") {
            stream.read_buf(&mut asked).await.unwrap();
        }
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head).await.unwrap();
        let piece = format!("{:x}\r\n{}\r\n", 0x10000, "x".repeat(0x10000));
        let mut written = 0;
        let blocked = Duration::from_secs(1);
        while written < TOO_MUCH {
            let rest = &piece.as_bytes()[written % piece.len()..];
            match tokio::time::timeout(blocked, stream.write(rest)).await {
                Ok(more) => written += more.unwrap(),
                Err(_) => break,
            }
        }
        (written, stream)
    };
    let body = asking("c", "say hi").to_string();
    let mut client = Connection::open(a.address).await;
    client
        .request("POST", "/api/chat", &[ALICE, JSON], body.as_bytes())
        .await;
    let (written, mut stream) = within(owner).await;
    assert!(written < TOO_MUCH, "the replica holds {written} bytes");
    // The end of the client is the end of the hop.
    drop(client);
    let ended = async { while stream.write(b"x").await.is_ok() {} };
    within(ended).await;
}

fn words(refusal: &Response) -> String {
    String::from_utf8(refusal.body.clone()).unwrap()
}
