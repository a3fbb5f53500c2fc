//! The WebSocket protocol itself, in the case groups of the public Autobahn suite that do not need extensions.

use std::time::Duration;

use serde_json::json;

use crate::client::{BINARY, CLOSE, Client, FIN, Frame, PING, PONG, TEXT, masked, reason};
use crate::support::Bridge;

const PING_TEXT: &str = r#"{"type":"ping","timestamp":"ä€😀"}"#;

fn pong() -> serde_json::Value {
    json!({"type": "pong", "timestamp": "ä€😀"})
}

async fn chat(bridge: &Bridge) -> Client {
    Client::open(bridge, "/live?chat=wire").await
}

/// Groups 1 and 9: lengths around those at which the header changes, and a large one.
#[tokio::test]
async fn messages_of_every_length_are_taken() {
    let bridge = Bridge::start();
    let mut client = chat(&bridge).await;
    for length in [30, 125, 126, 127, 128, 65_535, 65_536, 65_537, 1 << 20] {
        let mut text = r#"{"type":"ping","timestamp":1,"x":""#.to_owned();
        text += &"y".repeat(length.max(text.len() + 2) - text.len() - 2);
        text += "\"}";
        client.text(&text).await;
        assert_eq!(client.control().await["type"], "pong", "{length}");
    }
    for empty in [TEXT, BINARY] {
        client.frame(FIN | empty, b"").await;
        assert_eq!(client.control().await["type"], "error");
    }
    client.check_alive().await;
}

/// Group 2: pings are answered with what they carry; pongs that nobody asked for are passed over.
#[tokio::test]
async fn pings_are_answered() {
    let bridge = Bridge::start();
    let mut client = chat(&bridge).await;
    for payload in [&b""[..], b"hello", &[0, 255, 254], &[b'x'; 125]] {
        client.frame(FIN | PING, payload).await;
        let answer = client.next().await.unwrap();
        assert_eq!(
            (answer.head, answer.payload.as_slice()),
            (FIN | PONG, payload)
        );
    }
    client.frame(FIN | PONG, b"unasked").await;
    client.check_alive().await;
    // Byte by byte.
    for byte in masked(FIN | PING, b"slow") {
        client.raw(&[byte]).await;
    }
    assert_eq!(client.next().await.unwrap().payload, b"slow");
}

/// Group 5: a message in pieces is one message, and control frames may come between them.
#[tokio::test]
async fn fragments_are_put_together() {
    let bridge = Bridge::start();
    let mut client = chat(&bridge).await;
    let bytes = PING_TEXT.as_bytes();
    // Every cut, characters of several bytes included.
    for cut in 0..=bytes.len() {
        client.frame(TEXT, &bytes[..cut]).await;
        client.frame(FIN, &bytes[cut..]).await;
        assert_eq!(client.control().await, pong(), "{cut}");
    }
    for (index, byte) in bytes.iter().enumerate() {
        let head = if index == 0 { TEXT } else { 0 };
        client.frame(head, &[*byte]).await;
    }
    client.frame(FIN | PING, b"between").await;
    let answer = client.next().await.unwrap();
    assert_eq!(
        (answer.head, answer.payload.as_slice()),
        (FIN | PONG, &b"between"[..])
    );
    client.frame(FIN, b"").await;
    assert_eq!(client.control().await, pong());
}

/// Groups 3, 4, 5, 6 and 7: what breaks the rules ends this connection with its code, and no other.
#[tokio::test]
async fn broken_rules_end_the_connection_with_their_code() {
    let bridge = Bridge::start();
    let mut other = Client::open(&bridge, "/live?chat=other").await;
    let unmasked = |head: u8, payload: &[u8]| {
        let mut bytes = vec![head, payload.len() as u8];
        bytes.extend_from_slice(payload);
        bytes
    };
    let close = |code: u16, reason: &[u8]| {
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend_from_slice(reason);
        masked(FIN | CLOSE, &payload)
    };
    let mut cases: Vec<(&str, Vec<u8>, u16)> = vec![
        ("unmasked", unmasked(FIN | TEXT, b"{}"), 1002),
        ("a long ping", masked(FIN | PING, &[0; 126]), 1002),
        ("a ping in pieces", masked(PING, b"x"), 1002),
        ("a close in pieces", masked(CLOSE, &[3, 232]), 1002),
        ("a continuation of nothing", masked(FIN, b"x"), 1002),
        (
            "a message within a message",
            [masked(TEXT, b"x"), masked(FIN | TEXT, b"x")].concat(),
            1002,
        ),
        ("not UTF-8", masked(FIN | TEXT, b"\xce\xba\xff"), 1007),
        ("a surrogate", masked(FIN | TEXT, b"\xed\xa0\x80"), 1007),
        ("too long a form", masked(FIN | TEXT, b"\xc0\x80"), 1007),
        ("half a character", masked(FIN | TEXT, b"\xf0\x9f"), 1007),
        (
            "not UTF-8 in pieces",
            [masked(TEXT, b"\xce\xba"), masked(FIN, b"\xff")].concat(),
            1007,
        ),
        ("a close of one byte", masked(FIN | CLOSE, b"x"), 1002),
        (
            "a close whose reason is not UTF-8",
            close(1000, b"\xff\xfe"),
            1007,
        ),
    ];
    for reserved in [0x40, 0x20, 0x10, 0x70] {
        cases.push(("a reserved bit", masked(FIN | reserved | TEXT, b"{}"), 1002));
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        cases.push(("an unknown opcode", masked(FIN | opcode, b"x"), 1002));
    }
    for code in [0, 999, 1004, 1005, 1006, 1016, 2999, 5000, 65_535] {
        cases.push(("a code that nobody may send", close(code, b""), 1002));
    }
    for (name, bytes, code) in cases {
        let mut client = chat(&bridge).await;
        client.check_alive().await;
        client.raw(&bytes).await;
        assert_eq!(client.closed().await.0, code, "{name}: {bytes:x?}");
        assert_eq!(client.next().await, None, "{name}");
    }
    other.check_alive().await;
}

/// Group 7: a close is answered with its code; nothing comes after it.
#[tokio::test]
async fn closes_are_answered() {
    let bridge = Bridge::start();
    let long = "r".repeat(123);
    for (code, text) in [
        (1000, ""),
        (1000, "bye"),
        (1001, "bye"),
        (1002, ""),
        (1011, &long),
        (3000, "mine"),
        (4999, "mine"),
    ] {
        let mut client = chat(&bridge).await;
        let mut payload = u16::to_be_bytes(code).to_vec();
        payload.extend_from_slice(text.as_bytes());
        client.frame(FIN | CLOSE, &payload).await;
        let answer = client.next().await.unwrap();
        assert_eq!((answer.head, reason(&answer).0), (FIN | CLOSE, code));
        assert_eq!(client.next().await, None);
    }
    let mut client = chat(&bridge).await;
    client.frame(FIN | CLOSE, b"").await;
    let answer = client.next().await;
    assert_eq!(
        answer,
        Some(Frame {
            head: FIN | CLOSE,
            payload: Vec::new()
        })
    );
    // What is sent after a close is not looked at.
    let mut client = chat(&bridge).await;
    let late = masked(FIN | TEXT, PING_TEXT.as_bytes());
    client
        .raw(&[masked(FIN | CLOSE, &[3, 232]), late].concat())
        .await;
    assert_eq!(client.next().await.unwrap().head, FIN | CLOSE);
    assert_eq!(client.next().await, None);
}

#[tokio::test]
async fn both_may_close_at_once() {
    let bridge = Bridge::start();
    let mut first = chat(&bridge).await;
    first.check_alive().await;
    let mut second = chat(&bridge).await;
    second.check_alive().await;
    // The first is being closed with 4409, and closes itself without having read that.
    first.frame(FIN | CLOSE, &[3, 232]).await;
    let frame = first.next().await.unwrap();
    assert_eq!(reason(&frame).0, 4409);
    assert_eq!(first.next().await, None);
}

#[tokio::test]
async fn a_frame_beyond_the_limit_is_refused_by_its_header() {
    let bridge = Bridge::configured("[server]\nmax_body_bytes = 100000");
    for endpoint in ["/live?chat=large", "/api/chat/ws"] {
        let mut client = Client::open(&bridge, endpoint).await;
        client.frame(FIN | TEXT, &vec![b' '; 100_001]).await;
        assert_eq!(client.closed().await.0, 1009, "{endpoint}");
        // In pieces, each of which would do.
        let mut client = Client::open(&bridge, endpoint).await;
        client.frame(TEXT, &[b' '; 60_000]).await;
        client.frame(FIN, &[b' '; 60_000]).await;
        assert_eq!(client.closed().await.0, 1009, "{endpoint}");
        // Nothing is set aside for what a header only claims.
        let mut client = Client::open(&bridge, endpoint).await;
        let mut header = vec![FIN | BINARY, 0x80 | 127];
        header.extend_from_slice(&(u64::MAX >> 1).to_be_bytes());
        header.extend_from_slice(&[0; 4]);
        client.raw(&header).await;
        assert_eq!(client.closed().await.0, 1009, "{endpoint}");
    }
}

/// A connection whose other end is gone without a word.
#[tokio::test]
async fn who_gives_no_sign_of_life_is_let_go() {
    let bridge = Bridge::configured("[live]\nheartbeat = \"100ms\"");
    for endpoint in ["/live?chat=silent", "/api/chat/ws"] {
        let mut client = Client::open(&bridge, endpoint).await;
        let mut pings = 0;
        let code = loop {
            let frame = client.next().await.unwrap();
            match frame.head {
                head if head == FIN | PING => pings += 1,
                head if head == FIN | CLOSE => break reason(&frame).0,
                _ => panic!("{frame:?}"),
            }
        };
        assert_eq!((code, pings), (4408, 3), "{endpoint}");
    }
    // Who answers stays; half a message is a sign of life too.
    let mut client = Client::open(&bridge, "/live?chat=busy").await;
    let whole = masked(FIN | TEXT, PING_TEXT.as_bytes());
    let mut pings = 0;
    let mut sent = 0;
    while sent < whole.len() {
        let frame = client.next().await.unwrap();
        assert_eq!(frame.head, FIN | PING);
        pings += 1;
        let until = (sent + whole.len() / 6).min(whole.len());
        client.raw(&whole[sent..until]).await;
        sent = until;
    }
    assert!(pings > 5);
    assert_eq!(client.control().await, pong());
    drop(client);
    let gone = async {
        let open = "adk_bridge_sockets 0\n";
        while !String::from_utf8_lossy(&bridge.get("/metrics").await.body).contains(open) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    crate::support::within(gone).await;
}
