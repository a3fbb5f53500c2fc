//! `kill -9` at random moments while chats pay and talk: whatever a client has received is there afterwards.
//!
//! `ADK_BRIDGE_TEST_BINARY` names another build of the server to be killed, such as the release, from the project's root;
//! nothing here needs failpoints. `cargo xtask test kill` does that.

use std::collections::HashMap;
use std::ffi::OsString;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::Duration;

use adk_bridge::store::sqlite::DATABASE;
use adk_bridge_protocol::chunk::Sdk;
use adk_bridge_protocol::json_text::Json;
use adk_bridge_protocol::message::fold::Fold;
use adk_bridge_protocol::message::replay::replay;
use adk_bridge_protocol::message::{Role, parse_messages};
use adk_bridge_testkit::{Random, process};
use serde_json::{Value, json};
use sqlx::Connection as _;

use super::rig::{self, Client, Server, Stream, answered, check_audit, is_pending, text, tools};

const ROUNDS: u32 = 40;
const CHATS: [&str; 3] = ["random-0", "random-1", "random-2"];
/// Another one makes other rounds.
const SEED: u64 = 0x5eed;
/// The longest life of a server. A payment takes 300 ms.
const LIFE: u64 = 800;

/// What a client has received of one chat.
#[derive(Debug, Default)]
struct ClientView {
    /// The approvals that it was asked for, with the answer that was taken.
    approvals: HashMap<String, Option<bool>>,
    outputs: HashMap<String, Value>,
    /// The text of answers that came to their end, by message.
    texts: HashMap<String, String>,
    sent: u32,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_at_random() {
    let data = tempfile::tempdir().unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let binary = std::env::var_os("ADK_BRIDGE_TEST_BINARY").map_or_else(
        || process::binary().into_os_string(),
        |path| root.join(path).into_os_string(),
    );
    let mut random = Random::new(SEED);
    let mut seen: Vec<ClientView> = CHATS.iter().map(|_| ClientView::default()).collect();
    for round in 0..ROUNDS {
        // Some die while they start, or while they take up what the last one left.
        if random.below(4) == 0 {
            let server = Server::launch(&binary, data.path(), &[]);
            tokio::time::sleep(Duration::from_millis(random.below(150))).await;
            server.kill();
        }
        let server = start(&binary, data.path());
        check_all(&server.client(), data.path(), &seen, round).await;
        seen = live_and_die(server, seen, &mut random).await;
    }
    let server = start(&binary, data.path());
    check_all(&server.client(), data.path(), &seen, ROUNDS).await;
    // The rounds have been about something.
    let total = |what: fn(&ClientView) -> usize| seen.iter().map(what).sum::<usize>();
    assert!(total(|seen| seen.outputs.len()) > 5, "{seen:#?}");
    assert!(total(|seen| seen.texts.len()) > 5, "{seen:#?}");
}

fn start(binary: &OsString, data: &Path) -> Server {
    Server::launch(binary, data, &[]).until_ready().unwrap()
}

/// Lets every chat go on until the server is killed, after a while or after some bytes.
async fn live_and_die(
    server: Server,
    seen: Vec<ClientView>,
    random: &mut Random,
) -> Vec<ClientView> {
    let client = server.client();
    let received = client.received.clone();
    let chats: Vec<_> = CHATS
        .into_iter()
        .zip(seen)
        .map(|(chat, seen)| {
            let random = Random::new(random.bits());
            tokio::spawn(go_on(client.clone(), chat, seen, random))
        })
        .collect();
    let bytes = match random.below(2) {
        0 => u64::MAX,
        _ => random.below(20_000),
    };
    // The only clock of this test is an input: any life will do.
    let life = tokio::time::sleep(Duration::from_millis(random.below(LIFE)));
    let enough = async {
        while received.load(Ordering::Relaxed) < bytes {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    tokio::select! {
        () = life => {}
        () = enough => {}
    }
    server.kill();
    let mut seen = Vec::new();
    for chat in chats {
        seen.push(chat.await.unwrap());
    }
    seen
}

/// Pays, answers and talks for as long as the server lives.
async fn go_on(
    client: Client,
    chat: &'static str,
    mut seen: ClientView,
    mut random: Random,
) -> ClientView {
    loop {
        client.settle_while_alive(chat).await;
        let Some((status, body)) = client.try_get(&format!("/api/chats/{chat}")).await else {
            return seen;
        };
        let last = body["messages"].as_array().and_then(|all| all.last());
        let waits = last.is_some_and(|last| tools(last).iter().any(is_pending));
        let stream = match last {
            Some(last) if status == 200 && waits && random.below(8) > 0 => {
                let approved = random.below(4) > 0;
                let stream = client.post(chat, answered(last.clone(), approved)).await;
                if !stream.chunks.is_empty() {
                    seen.decided(last, approved);
                }
                stream
            }
            _ => {
                seen.sent += 1;
                let id = format!("{chat}-{}", seen.sent);
                let pay = rig::pay(1);
                let wish = match random.below(4) {
                    0 => "long 40".to_owned(),
                    1 => format!("{pay} && {pay}"),
                    _ => pay,
                };
                client.say(chat, &id, &wish).await
            }
        };
        seen.receive(&stream);
    }
}

impl ClientView {
    fn decided(&mut self, message: &Value, approved: bool) {
        for tool in tools(message).iter().filter(|tool| is_pending(tool)) {
            let id = tool["approval"]["id"].as_str().unwrap();
            self.approvals.insert(id.to_owned(), Some(approved));
        }
    }

    fn receive(&mut self, stream: &Stream) {
        let mut heard = String::new();
        for chunk in &stream.chunks {
            let word = |key: &str| chunk[key].as_str().unwrap().to_owned();
            match chunk["type"].as_str().unwrap() {
                "tool-approval-request" => {
                    self.approvals.entry(word("approvalId")).or_default();
                }
                "tool-output-available" => {
                    self.outputs
                        .insert(word("toolCallId"), chunk["output"].clone());
                }
                "text-delta" => heard += chunk["delta"].as_str().unwrap(),
                _ => {}
            }
        }
        let ended = stream
            .chunks
            .last()
            .is_some_and(|last| last["type"] == "finish");
        if let (true, Some(start)) = (ended, stream.chunks.first()) {
            let id = start["messageId"].as_str().unwrap().to_owned();
            self.texts.insert(id, heard);
        }
    }
}

async fn check_all(client: &Client, data: &Path, seen: &[ClientView], round: u32) {
    for (chat, seen) in CHATS.into_iter().zip(seen) {
        client.settle(chat).await;
        let messages = client.messages(chat).await;
        let about = About(round, chat, &messages);
        check_messages(&messages, &about);
        check_seen(&messages, seen, &about);
        let audit = client.audit(chat).await;
        check_audit(&audit);
        for (approval, answer) in &seen.approvals {
            let kinds: Vec<_> = audit
                .iter()
                .filter(|row| row["approvalId"] == **approval)
                .filter_map(|row| row["kind"].as_str()?.strip_prefix("approval."))
                .collect();
            let expected = match answer {
                Some(true) => vec!["requested", "approved"],
                Some(false) => vec!["requested", "denied"],
                None => continue,
            };
            assert_eq!(kinds, expected, "{approval} {about}");
        }
        let is = |tool: &Value, state: &str| tool["state"] == state;
        let payments: Vec<Value> = messages.iter().flat_map(tools).collect();
        let made = payments
            .iter()
            .filter(|tool| is(tool, "output-available"))
            .count();
        let unknown = payments
            .iter()
            .filter(|tool| {
                tool["errorText"]
                    .as_str()
                    .is_some_and(|text| text.contains("unknown"))
            })
            .count();
        let paid = paid(data, chat).await;
        assert!(
            (made..=made + unknown).contains(&paid),
            "{paid} paid, {made} seen, {unknown} unknown; {about}"
        );
    }
}

/// Where something was found to be wrong; written only then, because it is long.
struct About<'m>(u32, &'static str, &'m [Value]);

impl std::fmt::Display for About<'_> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self(round, chat, messages) = self;
        write!(formatter, "in round {round}, {chat}: {messages:#?}")
    }
}

/// What is stored can be read and shown.
fn check_messages(messages: &[Value], about: &About<'_>) {
    let parsed = parse_messages(Json::from(json!(messages)).raw()).unwrap();
    for message in parsed
        .iter()
        .filter(|message| message.role == Role::Assistant)
    {
        let mut fold = Fold::new(Sdk::V7, message.id.clone());
        replay(message, Sdk::V7, &mut |chunk| {
            fold.apply(chunk)
                .unwrap_or_else(|error| panic!("{error} {about}"));
        });
        assert_eq!(fold.message().parts.len(), message.parts.len(), "{about}");
    }
}

/// Checks that what a client has received is stored.
fn check_seen(messages: &[Value], seen: &ClientView, about: &About<'_>) {
    let all: Vec<Value> = messages.iter().flat_map(tools).collect();
    for (id, answer) in &seen.approvals {
        let tool = all.iter().find(|tool| tool["approval"]["id"] == **id);
        let tool = tool.unwrap_or_else(|| panic!("{id} is lost; {about}"));
        if let Some(approved) = answer {
            assert_eq!(tool["approval"]["approved"], *approved, "{tool} {about}");
        }
    }
    for (id, output) in &seen.outputs {
        let tool = all.iter().find(|tool| tool["toolCallId"] == **id);
        assert_eq!(tool.map(|tool| &tool["output"]), Some(output), "{about}");
    }
    for (id, heard) in &seen.texts {
        let message = messages.iter().find(|message| message["id"] == **id);
        let kept = text(message.unwrap_or_else(|| panic!("{id} is lost; {about}")));
        assert!(kept.ends_with(heard.as_str()), "{heard:?} {about}");
    }
}

/// How many dollars have left the wallet of a chat.
async fn paid(data: &Path, chat: &str) -> usize {
    let url = format!("sqlite:{}?mode=ro", data.join(DATABASE).display());
    let mut connection = sqlx::SqliteConnection::connect(&url).await.unwrap();
    let cents: Option<String> = sqlx::query_scalar(
        "SELECT value FROM chat_state JOIN chats ON chats.key = chat
         WHERE id = ?1 AND chat_state.key = 'demo.wallet.cents'",
    )
    .bind(chat)
    .fetch_optional(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    cents.map_or(0, |cents| 1000 - cents.parse::<usize>().unwrap() / 100)
}
