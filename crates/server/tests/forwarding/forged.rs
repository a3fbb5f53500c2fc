//! Requests that only say that a replica passes them on.

use adk_bridge::auth::Identity;
use adk_bridge::chat::now;
use adk_bridge::files::address::Base;
use adk_bridge::forwarding::{Forwarded, Signatures};
use adk_bridge::protocol::time::Timestamp;
use adk_bridge_testkit::users::ALICE;
use adk_bridge_testkit::{Bridge, asking};
use axum::http::Method;
use std::time::Duration;

use crate::rig::Fleet;

const HEADER: &str = "x-adk-bridge-forwarded";

/// The key that a test's replicas share.
async fn key(fleet: &Fleet) -> Vec<u8> {
    fleet
        .store()
        .secret("cluster", b"there is one")
        .await
        .unwrap()
}

fn name(address: std::net::SocketAddr) -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    format!("{}:{}", host.trim(), address.port())
}

fn sign(key: &[u8], to: &str, (method, path): (Method, &str), at: Timestamp) -> String {
    let forwarded = Forwarded {
        identity: Some(Identity::new("alice", "key")),
        base: Base::default(),
    };
    let path = path.parse().unwrap();
    let signed = Signatures::new(key, "b").sign(to, &method, &path, forwarded, at);
    signed.unwrap().to_str().unwrap().to_owned()
}

#[tokio::test]
async fn only_a_signature_of_the_cluster_stands_for_a_user() {
    let (fleet, a, _b) = Fleet::pair("").await;
    let key = key(&fleet).await;
    let me = name(a.address);
    let get = || (Method::GET, "/api/chats");
    let late = Timestamp::from_millis(now().as_millis() - 60_000);
    let early = now() + Duration::from_secs(60);
    for (signed, case) in [
        (String::new(), "nothing"),
        ("AAAA.AAAA".to_owned(), "garbage"),
        (sign(b"another key", &me, get(), now()), "a foreign key"),
        (sign(&key, "someone", get(), now()), "for another replica"),
        (
            sign(&key, &me, (Method::POST, "/api/chats"), now()),
            "for another method",
        ),
        (
            sign(&key, &me, (Method::GET, "/api/chats?a"), now()),
            "for another address",
        ),
        (sign(&key, &me, get(), late), "too old"),
        (sign(&key, &me, get(), early), "of a clock that is ahead"),
    ] {
        // A valid key of a client does not help: what is forged is refused, not ignored.
        for headers in [
            vec![(HEADER, signed.as_str())],
            vec![(HEADER, signed.as_str()), ALICE],
        ] {
            let refused = a.send_with("GET", "/api/chats", &headers, "").await;
            let got = (refused.status, refused.code());
            assert_eq!(got, (403, "bad_forwarding".to_owned()), "{case}");
        }
    }
    let signed = sign(&key, &me, get(), now());
    let twice = [(HEADER, signed.as_str()), (HEADER, signed.as_str())];
    assert_eq!(
        a.send_with("GET", "/api/chats", &twice, "").await.status,
        403
    );
    // It needs no Host that clients may use, and is good once.
    let once = [(HEADER, signed.as_str()), ("host", "replica.internal:8080")];
    assert_eq!(
        a.send_with("GET", "/api/chats", &once, "").await.status,
        200
    );
    assert_eq!(
        a.send_with("GET", "/api/chats", &once, "").await.status,
        403
    );
}

#[tokio::test]
async fn a_bridge_without_a_cluster_knows_no_replicas() {
    let bridge = Bridge::start();
    let signed = sign(b"", "a", (Method::GET, "/api/chats"), now());
    for path in ["/api/chats", "/health", "/"] {
        let refused = bridge.send("GET", path, &[(HEADER, &signed)], "").await;
        assert_eq!(
            (refused.status, refused.code().as_str()),
            (403, "bad_forwarding")
        );
    }
}

/// What was passed on is not passed on again.
#[tokio::test]
async fn a_request_takes_one_hop() {
    let (fleet, a, b) = Fleet::pair("").await;
    let mut owned = a.ask("c", "slow 100000").await;
    owned.event().await.unwrap();
    let key = key(&fleet).await;
    let signed = sign(&key, &name(b.address), (Method::POST, "/api/chat"), now());
    let body = asking("c", "say hi").to_string();
    let headers = [(HEADER, signed.as_str()), adk_bridge_testkit::JSON];
    let refused = b.send_with("POST", "/api/chat", &headers, &body).await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (409, "not_owner")
    );
    // A chat that nobody owns is taken.
    let signed = sign(&key, &name(b.address), (Method::POST, "/api/chat"), now());
    let headers = [(HEADER, signed.as_str()), adk_bridge_testkit::JSON];
    let body = asking("free", "say hi").to_string();
    let taken = b.send_with("POST", "/api/chat", &headers, &body).await;
    assert_eq!(taken.status, 200);
    assert_eq!(fleet.owners.owner_of("free"), Some(b.address));
}
