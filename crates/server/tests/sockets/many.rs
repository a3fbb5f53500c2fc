//! Fifty connections at once: each has its own chat, one that misbehaves disturbs nobody, and nothing is left of them.

use std::time::Duration;

use serde_json::json;

use crate::client::{Client, FIN, TEXT};
use crate::support::{Bridge, within};
use crate::voice::{sound, speak, turn};

const CONNECTIONS: usize = 50;

async fn gauge(bridge: &Bridge, name: &str) -> usize {
    let page = bridge.get("/metrics").await;
    let page = String::from_utf8(page.body).unwrap();
    let line = page
        .lines()
        .find_map(|line| line.strip_prefix(&format!("adk_bridge_{name} ")));
    line.unwrap().parse().unwrap()
}

async fn until(bridge: &Bridge, name: &str, value: usize) {
    let come = async {
        while gauge(bridge, name).await != value {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    within(come).await;
}

#[tokio::test]
async fn each_hears_its_own_and_nothing_is_left_of_them() {
    let bridge = Bridge::start();
    // A chat that stays, so that what the first one sets up is there before it is counted.
    bridge.ask("warm", "say hello").await.events().await;
    bridge.send("DELETE", "/api/chats/warm", &[], "").await;
    until(&bridge, "open_chats", 0).await;
    let mut memory = Vec::new();
    for round in 0..3 {
        let mut clients = Vec::new();
        for number in 0..CONNECTIONS {
            let path = format!("/live?chat=many-{round}-{number}");
            let mut client = Client::open(&bridge, &path).await;
            client.say(&format!("say tone {number}")).await;
            clients.push(client);
        }
        until(&bridge, "sockets", CONNECTIONS).await;
        for (number, client) in clients.iter_mut().enumerate() {
            let (_, chunks) = client.turn().await;
            let text: String = chunks
                .iter()
                .filter_map(|chunk| chunk["delta"].as_str())
                .collect();
            assert_eq!(text, format!("tone {number}"));
        }
        // One hangs with half a frame, one breaks the rules, one talks nonsense.
        clients[0].raw(&[FIN | TEXT]).await;
        clients[1].frame(FIN | 3, b"").await;
        assert_eq!(clients[1].closed().await.0, 1002);
        clients[2].text("nonsense").await;
        assert_eq!(clients[2].control().await["code"], "bad_json");
        for client in &mut clients[2..] {
            client.check_alive().await;
        }
        // Half of them say goodbye, the others are gone.
        for (number, client) in clients.into_iter().enumerate() {
            if number > 1 && number % 2 == 0 {
                client.leave().await;
            }
        }
        until(&bridge, "sockets", 0).await;
        for number in 0..CONNECTIONS {
            let path = format!("/api/chats/many-{round}-{number}");
            assert_eq!(bridge.send("DELETE", &path, &[], "").await.status, 204);
        }
        until(&bridge, "open_chats", 0).await;
        assert_eq!(gauge(&bridge, "readers").await, 0);
        memory.push(bridge.memory());
    }
    // What fifty connections once needed stays with the allocator; it must not grow with every round.
    let growth = memory[2].saturating_sub(memory[1]);
    assert!(growth < 50 * CONNECTIONS * 1024 / 2, "{memory:?}");
}

/// Nobody speaks here: an agent's client keeps connections, and tasks with them, for the next call.
#[tokio::test]
async fn tasks_end_with_their_connections() {
    let bridge = Bridge::start();
    let before = gauge(&bridge, "tasks").await;
    let mut clients = Vec::new();
    for number in 0..CONNECTIONS {
        let endpoint = ["/live", "/api/chat/ws"][number % 2];
        clients.push(Client::open(&bridge, endpoint).await);
    }
    until(&bridge, "sockets", CONNECTIONS).await;
    assert!(gauge(&bridge, "tasks").await >= before + CONNECTIONS);
    drop(clients);
    until(&bridge, "sockets", 0).await;
    // A chat stays a minute longer, in case that its client comes back.
    let at_most = before + CONNECTIONS / 2;
    let back = async { while gauge(&bridge, "tasks").await > at_most {} };
    within(back).await;
}

#[tokio::test]
async fn a_client_that_reads_nothing_holds_up_nobody() {
    let bridge = Bridge::start();
    let mut deaf = Client::open(&bridge, "/live?chat=deaf").await;
    deaf.say("long 20000").await;
    let mut other = Client::open(&bridge, "/live?chat=other").await;
    // The deaf one is not listened to either, and its frames wait in its own connection.
    for _ in 0..200 {
        deaf.send(json!({"type": "ping"})).await;
        other.check_alive().await;
    }
    other.say("say still here").await;
    other.turn().await;
    assert!(bridge.memory() < 400 * 1024 * 1024);
    let chunks = deaf.chunks().await;
    assert_eq!(chunks.last().unwrap()["type"], "finish");
}

/// Fifty voices at once: each hears its own words, sample for sample.
#[tokio::test]
async fn fifty_voices_are_apart() {
    let bridge = Bridge::start();
    let mut voices = tokio::task::JoinSet::new();
    for number in 0..CONNECTIONS {
        let path = format!("/live?chat=voice-{number}");
        let mut client = Client::open(&bridge, &path).await;
        voices.spawn(async move {
            let words = format!("tone {number}");
            for _ in 0..2 {
                speak(&mut client, &format!("say {words}")).await;
                let turn = turn(&mut client).await;
                assert_eq!(turn.heard(), format!("say {words}"));
                assert_eq!(turn.text(), words);
                assert!(turn.pcm == sound(&words));
            }
            client
        });
    }
    let mut clients = Vec::new();
    while let Some(voice) = voices.join_next().await {
        clients.push(voice.unwrap());
    }
    for client in clients {
        client.leave().await;
    }
    until(&bridge, "sockets", 0).await;
    // A model is kept for a while for who may come back; without its chat there is nothing to come back to.
    for number in 0..CONNECTIONS {
        let path = format!("/api/chats/voice-{number}");
        bridge.send("DELETE", &path, &[], "").await;
    }
    until(&bridge, "open_chats", 0).await;
}
