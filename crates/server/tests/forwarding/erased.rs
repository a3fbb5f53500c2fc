//! A user is erased at every replica, and what is too old is taken from nobody who uses it.

use std::time::Duration;

use adk_bridge::auth::{Authenticator, Identity, LocalUser, Refusal};
use adk_bridge::protocol::id::{ChatId, UserId};
use adk_bridge::protocol::time::Timestamp;
use adk_bridge::store::ChatRef;
use adk_bridge_testkit::{JSON, within};
use axum::http::request::Parts;
use futures_util::future::{BoxFuture, ready};
use serde_json::json;

use crate::rig::{Fleet, Replica};

const OPERATOR: (&str, &str) = ("authorization", "operator");

/// Knows an administrator besides Alice.
#[derive(Debug)]
struct Keys;

impl Authenticator for Keys {
    fn authenticate<'a>(&'a self, request: &'a Parts) -> BoxFuture<'a, Result<Identity, Refusal>> {
        let key = request.headers.get(OPERATOR.0);
        let is_operator = key.is_some_and(|key| key == OPERATOR.1);
        Box::pin(ready(Ok(match is_operator {
            true => Identity::new("operator", LocalUser::VIA),
            false => Identity::new("alice", "key"),
        })))
    }
}

async fn start(fleet: &Fleet, name: &str) -> Replica {
    fleet
        .start_with(name, "", |it| it.authenticator(Keys))
        .await
}

#[tokio::test]
async fn a_user_is_erased_wherever_the_chats_are() {
    let fleet = Fleet::new().await;
    let (a, b) = (start(&fleet, "a").await, start(&fleet, "b").await);
    // They know each other.
    let acquainted = async {
        loop {
            let ready = b.send("GET", "/ready", "").await.json();
            let peers = ready["cluster"]["peers"].as_array();
            if peers.is_some_and(|peers| peers.len() == 1) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(acquainted).await;
    let mut running = a.ask("running", "slow 100000").await;
    running.events_until("text-delta").await;
    for replica in [&a, &b] {
        let said = replica.ask(&format!("{}", replica.address), "say hi").await;
        assert_eq!(said.status, 200);
    }
    let refused = b.send("DELETE", "/api/users/alice", "").await;
    assert_eq!(
        (refused.status, refused.code().as_str()),
        (403, "role_needed")
    );
    let erase = async || {
        let headers = [OPERATOR, JSON];
        let erased = b
            .send_with("DELETE", "/api/users/alice", &headers, "")
            .await;
        assert_eq!(erased.status, 200);
        erased.json()
    };
    let erased = erase().await;
    assert_eq!(erased["chats"], 3, "{erased}");
    assert_eq!(erased["unreachable"], json!([]));
    assert_eq!(erased["replicas"].as_array().unwrap().len(), 1);
    for replica in [&a, &b] {
        assert_eq!(
            replica.send("GET", "/api/chats", "").await.json(),
            json!([])
        );
        let gone = replica.send("GET", "/api/chats/running", "").await;
        assert_eq!(gone.status, 404);
    }
    // The turn has ended for its reader.
    running.events().await;
    assert_eq!(erase().await["chats"], 0);
}

#[tokio::test]
async fn a_chat_that_another_replica_uses_is_not_too_old() {
    let fleet = Fleet::new().await;
    let a = fleet.start("a", "").await;
    let mut running = a.ask("running", "slow 100000").await;
    running.events_until("text-delta").await;
    for id in ["old", "older"] {
        let chat = ChatRef {
            user: &UserId::literal("alice"),
            id: &ChatId::from(id),
        };
        let at = Timestamp::from_millis(1);
        fleet.store().create_chat(chat, at).await.unwrap();
    }
    let b = fleet.start("b", "[retention]\nchats = \"1ms\"\n").await;
    let swept = async {
        while b
            .count("adk_bridge_retention_deleted_total{what=\"chats\"}")
            .await
            < 2
        {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(swept).await;
    let listed = a.send("GET", "/api/chats", "").await.json();
    assert_eq!(listed.as_array().unwrap().len(), 1);
    assert_eq!(listed[0]["id"], "running");
    assert_eq!(fleet.owners.owner_of("running"), Some(a.address));
    assert_eq!(fleet.owners.owner_of("old"), None);
    assert_eq!(
        a.send("POST", "/api/chat/running/stop", "").await.status,
        204
    );
    assert_eq!(running.events().await.last().unwrap(), "[DONE]");
}
