//! Chats that a replica owns, and has no task for: they are served or given back.

use std::time::Duration;

use adk_bridge::agents::agent::{Agent, AgentInfo, AgentRequest, MemoryModel, Starting};
use adk_bridge_testkit::http::Connection;
use adk_bridge_testkit::users::ALICE;
use adk_bridge_testkit::{JSON, asking, within};

use crate::rig::{Fleet, Replica};

const OPEN: &str = "adk_bridge_open_chats";
/// Longer than a replica waits before it looks through its chats.
const A_LOOK: Duration = Duration::from_millis(1_500);

#[tokio::test]
async fn a_chat_whose_client_leaves_while_it_is_claimed_gets_its_task() {
    let fleet = Fleet::new().await;
    let a = fleet.start("a", "").await;
    let slowness = fleet.owners.delay_claims();
    let connection = posted(&a, "c").await;
    until(async || fleet.owners.owner_of("c") == Some(a.address)).await;
    drop(connection);
    // The server notices.
    tokio::time::sleep(Duration::from_millis(300)).await;
    drop(slowness);
    until(async || a.count(OPEN).await == 1).await;
    // It has nothing to do, and ends.
    until(async || fleet.owners.owner_of("c").is_none()).await;
}

#[tokio::test]
async fn a_chat_that_is_owned_and_not_served_is_given_back() {
    let fleet = Fleet::new().await;
    let a = fleet.start("a", "").await;
    let mut served = a.ask("served", "slow 100000").await;
    served.events_until("text-delta").await;
    fleet.owners.give("left", a.address);
    until(async || fleet.owners.owner_of("left").is_none()).await;
    assert_eq!(fleet.owners.owner_of("served"), Some(a.address));

    // One that is just being claimed is left alone.
    let slowness = fleet.owners.delay_claims();
    let asked = async { a.ask("claimed", "say hi").await.status };
    let is_there = async {
        until(async || fleet.owners.owner_of("claimed") == Some(a.address)).await;
        tokio::time::sleep(A_LOOK).await;
        assert_eq!(fleet.owners.owner_of("claimed"), Some(a.address));
        drop(slowness);
    };
    let (status, ()) = tokio::join!(asked, is_there);
    assert_eq!(status, 200);
}

#[tokio::test]
async fn a_chat_whose_task_panics_is_given_back() {
    let fleet = Fleet::new().await;
    let a = fleet.start_with("a", "", |it| it.agent(Panics)).await;
    let connection = posted(&a, "c").await;
    if let Some(answer) = connection.try_answer("POST").await {
        assert!(!answer.to_the_end().await.1, "a part looks like the whole");
    }
    let given_back = async || fleet.owners.owner_of("c").is_none() && a.count(OPEN).await == 0;
    until(given_back).await;
    // The next task goes on with what is stored, and has the same bug.
    assert_eq!(a.ask("c", "hello").await.status, 503);
    until(given_back).await;
}

/// An agent with a bug.
struct Panics;

impl Agent for Panics {
    fn info(&self) -> AgentInfo {
        AgentInfo::new("panics")
    }

    fn memory(&self) -> MemoryModel {
        MemoryModel::Stateless
    }

    fn start(&self, _request: AgentRequest<'_>) -> Starting {
        panic!("it has a bug");
    }
}

/// A connection on which something was asked.
async fn posted(replica: &Replica, chat: &str) -> Connection {
    let asking = asking(chat, "say hi").to_string();
    let mut connection = Connection::open(replica.address).await;
    connection
        .request("POST", "/api/chat", &[ALICE, JSON], asking.as_bytes())
        .await;
    connection
}

async fn until(mut holds: impl AsyncFnMut() -> bool) {
    within(async {
        while !holds().await {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await;
}
