//! The data directory of the version before: it is opened and migrated, and every conversation goes on where it stopped.
//!
//! `fixtures/store/schema-2` is such a directory. The release binary of commit 1542a1b (`kind = "demo"`, time-outs of a
//! hundred years) served the requests of three users over HTTP and `/live` and was killed while an approved payment and a
//! long answer ran; then its databases were dumped and all times set back by two years, so that they are past on every
//! machine. `listing.json` is what the same binary listed when it was started with a copy of that directory.

use std::path::{Path, PathBuf};

use adk_bridge::store::sqlite::DATABASE;
use adk_bridge_testkit::socket::{Client, Said};
use reqwest::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};
use tempfile::TempDir;

use crate::served::{Bridge, chunks, says};
use crate::{ALICE, BOB, KEYS, all_in, is_content, sql};

/// As it was configured; its model is no more.
const CONFIG: &str = r#"
[demo]
pace = "0ms"
[[agent.client_tools]]
name = "open_door"
description = "Opens a door of the house."
input_schema = { type = "object", properties = { door = { type = "string" } }, required = ["door"] }
approval = false
"#;

/// Whose chats there are, with their keys. The last one's were made without keys.
const USERS: [(&str, Option<&str>); 3] =
    [("alice", Some(ALICE)), ("bob", Some(BOB)), ("local", None)];

/// The chats that were running at the end.
const CUT_OFF: [&str; 2] = ["killed", "partial"];

/// What a start may not change once everything has been taken up again. `store` also says when it was last tried.
const TABLES: [&str; 10] = [
    "chats",
    "messages",
    "seen",
    "approvals",
    "tool_runs",
    "chat_state",
    "events",
    "files",
    "audit",
    "secrets",
];

#[tokio::test]
async fn everything_is_listed_as_before() {
    let dir = left().await;
    let mut first = None;
    for start in ["first", "second"] {
        for (user, key) in USERS {
            let bridge = serve(dir.path(), key).await;
            check_listed(&bridge, user).await;
            for (other, _) in USERS.iter().filter(|(other, _)| *other != user) {
                check_unknown(&bridge, other).await;
            }
            end(bridge).await;
        }
        let found = content(&dir.path().join("data")).await;
        let first = first.get_or_insert_with(|| found.clone());
        assert_eq!(found, *first, "the {start} start");
    }
}

#[tokio::test]
async fn files_are_served() {
    let dir = left().await;
    let mut bridge = serve(dir.path(), Some(ALICE)).await;
    let mut found = Vec::new();
    for chat in ["picture", "upload", "inline"] {
        let shown = bridge.json(&format!("/api/chats/{chat}")).await;
        urls(&shown, &mut found);
    }
    assert_eq!(found.len(), 4);
    for signed in found {
        let (bare, _) = signed.split_once('?').unwrap();
        let id = bare.rsplit('/').next().unwrap();
        let content = std::fs::read(fixture().join("files").join(id)).unwrap();
        let owned = bridge.with_key(ALICE).get(bare).await;
        assert_eq!(owned.bytes().await.unwrap(), content, "{id}");
        assert_eq!(bridge.with_key(BOB).get(bare).await.status(), 404, "{id}");
        let linked = format!("http://{}{signed}", bridge.address());
        let linked = reqwest::get(linked).await.unwrap();
        assert_eq!(linked.bytes().await.unwrap(), content, "{id}");
    }
}

#[tokio::test]
async fn open_questions_are_answered() {
    let dir = left().await;
    let mut bridge = serve(dir.path(), Some(BOB)).await;
    // What Alice is asked is nothing that Bob could answer.
    let asked = expected("alice")["messages"]["pay"][1].clone();
    bridge
        .post("/api/chat", &request("pay", answered(asked, true)))
        .await;
    deny(&bridge, "his").await;
    assert_eq!(tools(&bridge, "his").await[0]["state"], "output-denied");

    bridge.with_key(ALICE);
    assert_eq!(waiting(&bridge, "pay").await, 1);
    let copy = approve(&bridge, "pay").await;
    assert_eq!(tools(&bridge, "pay").await[0]["output"]["balance"], 995);
    // It is paid once, however often that is said.
    bridge.post("/api/chat", &request("pay", copy)).await;
    assert_eq!(
        kinds(&bridge, "pay").await,
        [
            "approval.requested",
            "approval.approved",
            "tool.started",
            "tool.finished",
        ]
    );

    // The other payment of the step was made before, from the same wallet.
    approve(&bridge, "half").await;
    let made = tool_parts(&expected("alice")["messages"]["half"][1]);
    let payments = tools(&bridge, "half").await;
    assert_eq!(payments[0], made[0]);
    assert_eq!(payments[1]["output"]["balance"], 930);
    assert_eq!(count(&bridge, "half", "tool.started").await, 2);

    // Over `/live`, one of two is denied.
    let mut client = live(&bridge, "two").await;
    repeated(&mut client).await;
    let calls = tools(&bridge, "two").await;
    for (call, status) in calls.iter().zip(["rejected", "approved"]) {
        let id = &call["toolCallId"];
        client
            .send(json!({"type": "tool_result", "toolCallId": id, "status": status}))
            .await;
    }
    finish(&mut client).await;
    let payments = tools(&bridge, "two").await;
    assert_eq!(payments[0]["state"], "output-denied");
    assert_eq!(payments[1]["output"]["balance"], 980);
    assert_eq!(count(&bridge, "two", "tool.started").await, 1);

    // A question that waited while the conversation went on by voice.
    let mut client = live(&bridge, "spoken").await;
    let call = &expected("alice")["messages"]["spoken"][1]["parts"][1]["toolCallId"];
    client
        .send(json!({"type": "tool_result", "toolCallId": call, "status": "approved"}))
        .await;
    finish(&mut client).await;
    let reply = bridge.json("/api/chats/spoken").await["messages"][1].clone();
    assert_eq!(tool_parts(&reply)[0]["output"]["balance"], 992);
    assert_eq!(count(&bridge, "spoken", "tool.started").await, 1);

    // The second of two questions in dialect `adk`.
    let shown = bridge.json("/api/chats/adk?dialect=adk").await;
    let mut copy = shown["messages"][1].clone();
    let open = |part: &&mut Value| {
        part["type"] == "tool-adk_request_confirmation" && part["state"] == "approval-requested"
    };
    let confirmation = copy["parts"].as_array_mut().unwrap().iter_mut().find(open);
    let confirmation = confirmation.unwrap();
    confirmation["state"] = json!("output-available");
    confirmation["output"] = json!({"confirmed": true});
    let mut body = request("adk", copy);
    body["dialect"] = json!("adk");
    finished(bridge.post("/api/chat", &body).await).await;
    assert_eq!(tools(&bridge, "adk").await[1]["output"]["changed"], 10);

    end(bridge).await;
    let bridge = serve(dir.path(), None).await;
    approve(&bridge, "local-pay").await;
    let paid = tools(&bridge, "local-pay").await;
    assert_eq!(paid[0]["output"]["balance"], 993);
    assert_eq!(waiting(&bridge, "local-pay").await, 0);
    end(bridge).await;

    // Nothing of it runs again.
    let data = dir.path().join("data");
    let before = content(&data).await;
    end(serve(dir.path(), Some(ALICE)).await).await;
    assert_eq!(content(&data).await, before);
}

#[tokio::test]
async fn outputs_of_client_tools_are_taken() {
    let dir = left().await;
    let bridge = serve(dir.path(), Some(ALICE)).await;
    let call = &tools(&bridge, "tool").await[0]["toolCallId"];
    let output = json!({"toolCallId": call, "output": {"opened": true}});
    let taken = bridge.post("/api/chat/tool/tool-output", &output).await;
    assert_eq!(taken.status(), 204);
    settle(&bridge, "tool").await;

    // This one was approved before.
    let mut client = live(&bridge, "music").await;
    repeated(&mut client).await;
    let call = &tools(&bridge, "music").await[0]["toolCallId"];
    client
        .send(json!({"type": "tool_result", "toolCallId": call, "result": {"opened": true}}))
        .await;
    finish(&mut client).await;

    for chat in ["tool", "music"] {
        let shown = bridge.json(&format!("/api/chats/{chat}")).await;
        let reply = &shown["messages"][1];
        assert_eq!(
            tool_parts(reply)[0]["output"],
            json!({"opened": true}),
            "{chat}"
        );
        let last = reply["parts"].as_array().unwrap().last().unwrap();
        assert_eq!(last["type"], "text", "{chat}: {reply}");
        assert_eq!(listed(&bridge, chat).await["pendingOutputs"], json!([]));
    }
}

#[tokio::test]
async fn what_was_cut_off_goes_on() {
    let dir = left().await;
    let bridge = serve(dir.path(), Some(ALICE)).await;
    // Whether it was paid nobody knows, and nobody pays again.
    let reply = last(&bridge, "killed").await;
    let call = &tool_parts(&reply)[0];
    assert_eq!(call["state"], "output-error");
    let error = call["errorText"].as_str().unwrap();
    assert!(error.contains("outcome is unknown"), "{error}");
    let mut again = reply.clone();
    again["parts"][1]["state"] = json!("approval-responded");
    bridge.post("/api/chat", &request("killed", again)).await;
    let audit = [
        "approval.requested",
        "approval.approved",
        "tool.started",
        "tool.outcome_unknown",
    ];
    assert_eq!(kinds(&bridge, "killed").await, audit);
    assert_eq!(balance(&bridge, "killed").await, 1000);
    // A wallet is as full as it was.
    assert_eq!(balance(&bridge, "paid").await, 940);

    for chat in ["partial", "stopped", "failed", "superseded", "denied"] {
        bridge.say(chat, says("say go on"), "native").await;
        let reply = last(&bridge, chat).await;
        assert_eq!(reply["parts"][1]["text"], "go on", "{chat}: {reply}");
    }
}

/// A branch that was cut by an edit comes back when a client sends it.
#[tokio::test]
async fn a_cut_branch_comes_back() {
    let dir = left().await;
    let data = dir.path().join("data");
    let bridge = serve(dir.path(), Some(ALICE)).await;
    let shown = bridge.json("/api/chats/edited").await["messages"].clone();
    let cut = rows(
        &data,
        "SELECT body FROM messages WHERE chat = 'edited' AND cut_in = 1 ORDER BY seq",
    )
    .await;
    let cut: Vec<Value> = cut
        .iter()
        .map(|body| serde_json::from_str(body).unwrap())
        .collect();
    let mut messages = vec![shown[0].clone(), shown[1].clone()];
    messages.extend(cut);
    let said = json!({"id": "edited-u3", "role": "user", "parts": says("say four")});
    let sent = [messages.clone(), vec![said]].concat();
    let body = json!({"id": "edited", "messages": sent});
    finished(bridge.post("/api/chat", &body).await).await;
    let shown = bridge.json("/api/chats/edited").await["messages"].clone();
    let shown = shown.as_array().unwrap();
    assert_eq!(shown.len(), 6);
    assert_eq!(shown[..4], messages);
    assert_eq!(shown[5]["parts"][1]["text"], "four");
}

/// A copy of the directory, as it was left.
async fn left() -> TempDir {
    let dir = TempDir::new().unwrap();
    let data = dir.path().join("data");
    for entry in std::fs::read_dir(fixture().join("files")).unwrap() {
        let file = entry.unwrap();
        let id = file.file_name().into_string().unwrap();
        let shelf = data.join("files").join(&id[..2]);
        std::fs::create_dir_all(&shelf).unwrap();
        std::fs::copy(file.path(), shelf.join(id)).unwrap();
    }
    for (database, dump) in [
        (DATABASE, "adk-bridge.sql"),
        ("sample.sqlite", "sample.sql"),
    ] {
        let dump = std::fs::read_to_string(fixture().join(dump)).unwrap();
        sql(&data.join(database), &dump).await;
    }
    dir
}

fn fixture() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/store/schema-2")
}

/// What that version listed for a user.
fn expected(user: &str) -> Value {
    let listing = std::fs::read_to_string(fixture().join("listing.json")).unwrap();
    let listing: Value = serde_json::from_str(&listing).unwrap();
    listing[user].clone()
}

/// A bridge on the directory, asked by one user, when it has taken up what was cut off.
async fn serve(dir: &Path, key: Option<&str>) -> Bridge {
    let keys = if key.is_some() { KEYS } else { "" };
    let mut bridge = Bridge::serve(dir, &format!("{keys}{CONFIG}"));
    if keys.is_empty() {
        return bridge;
    }
    bridge.with_key(ALICE);
    for chat in CUT_OFF {
        settle(&bridge, chat).await;
    }
    bridge.with_key(key.unwrap_or(ALICE));
    bridge
}

/// Ends a bridge in order, so that everything that it set going is stored.
async fn end(bridge: Bridge) {
    bridge.terminate();
    assert!(bridge.wait().await.success());
}

/// Reads what runs in a chat, until nothing does.
async fn settle(bridge: &Bridge, chat: &str) {
    loop {
        let running = bridge.get(&format!("/api/chat/{chat}/stream")).await;
        if running.status() == 204 {
            return;
        }
        finished(running).await;
    }
}

/// Reads an answer to its end.
async fn finished(answer: reqwest::Response) -> Vec<Value> {
    assert_eq!(answer.status(), 200);
    chunks(&answer.text().await.unwrap())
}

async fn check_listed(bridge: &Bridge, user: &str) {
    let expected = expected(user);
    let mut listed = bridge.json("/api/chats").await;
    let mut chats = expected["chats"].clone();
    for row in [&mut listed, &mut chats]
        .into_iter()
        .flat_map(|list| list.as_array_mut().unwrap())
    {
        // That version had one agent, and did not say which.
        if let Some(agent) = row.as_object_mut().unwrap().remove("agent") {
            assert_eq!(agent, "demo");
        }
        // These were changed by the start.
        if CUT_OFF.iter().any(|chat| row["id"] == *chat) {
            row["updatedAt"] = Value::Null;
        }
    }
    assert_eq!(listed, chats, "{user}");
    for (chat, messages) in expected["messages"].as_object().unwrap() {
        let mut shown = bridge.json(&format!("/api/chats/{chat}")).await;
        let mut messages = messages.clone();
        unsign(&mut shown);
        // The model that this version asks instead had the last word.
        if chat == "killed" {
            for messages in [&mut shown["messages"], &mut messages] {
                messages[1]["metadata"]["modelVersion"] = Value::Null;
            }
        }
        assert_eq!(shown["messages"], messages, "{chat}");
    }
    for (chat, messages) in expected["adk"].as_object().into_iter().flatten() {
        let shown = bridge.json(&format!("/api/chats/{chat}?dialect=adk")).await;
        assert_eq!(shown["messages"], *messages, "{chat}");
    }
    for (chat, audit) in expected["audit"].as_object().unwrap() {
        let mut found = bridge.json(&format!("/api/audit?chat={chat}")).await;
        let mut audit = audit.clone();
        for row in [&mut found, &mut audit]
            .into_iter()
            .flat_map(|rows| rows.as_array_mut().unwrap())
        {
            // Written by the start.
            if row["kind"] == "tool.outcome_unknown" {
                (row["at"], row["turnId"]) = (Value::Null, Value::Null);
            }
        }
        assert_eq!(found, audit, "{chat}");
    }
}

/// Nothing of another user's chats is there.
async fn check_unknown(bridge: &Bridge, other: &str) {
    for chat in expected(other)["messages"].as_object().unwrap().keys() {
        for path in ["/api/chats/", "/api/audit?chat="] {
            let answer = bridge.get(&format!("{path}{chat}")).await;
            assert_eq!(answer.status(), 404, "{path}{chat}");
        }
        let output = json!({"toolCallId": "call", "output": null});
        let path = format!("/api/chat/{chat}/tool-output");
        assert_eq!(bridge.post(&path, &output).await.status(), 404, "{path}");
        let deleted = bridge.request(Method::DELETE, &format!("/api/chats/{chat}"));
        assert_eq!(deleted.send().await.unwrap().status(), 404, "{chat}");
    }
}

/// All that is stored.
async fn content(data: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for table in TABLES {
        let columns = format!("SELECT group_concat(quote(name)) FROM pragma_table_info('{table}')");
        let columns = rows(data, &columns).await.remove(0).replace('\'', "\"");
        let values = columns.replace(',', ") || ',' || quote(");
        found.extend(
            rows(
                data,
                &format!("SELECT '{table}: ' || quote({values}) FROM {table} ORDER BY rowid"),
            )
            .await,
        );
    }
    let mut files = all_in(&data.join("files"));
    files.retain(|path| is_content(path));
    files.sort();
    found.extend(files.iter().map(|path| path.display().to_string()));
    found
}

async fn rows(data: &Path, query: &str) -> Vec<String> {
    let url = format!("sqlite://{}", data.join(DATABASE).display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let rows = sqlx::query_scalar(AssertSqlSafe(query.to_owned()))
        .fetch_all(&mut connection)
        .await
        .unwrap();
    connection.close().await.unwrap();
    rows
}

/// The addresses of files in what a bridge shows.
fn urls(shown: &Value, found: &mut Vec<String>) {
    match shown {
        Value::Array(values) => values.iter().for_each(|value| urls(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| urls(value, found)),
        Value::String(text) if text.starts_with("/api/files/") => found.push(text.clone()),
        _ => {}
    }
}

/// That version did not sign the addresses of files.
fn unsign(shown: &mut Value) {
    match shown {
        Value::Array(values) => values.iter_mut().for_each(unsign),
        Value::Object(fields) => fields.values_mut().for_each(unsign),
        Value::String(text) if text.starts_with("/api/files/") => {
            let end = text.find('?').unwrap_or(text.len());
            text.truncate(end);
        }
        _ => {}
    }
}

fn request(chat: &str, message: Value) -> Value {
    json!({"id": chat, "messages": [message]})
}

/// A client's copy in which every open question is answered.
fn answered(mut message: Value, approved: bool) -> Value {
    for part in message["parts"].as_array_mut().unwrap() {
        if part["state"] == "approval-requested" {
            part["state"] = json!("approval-responded");
            part["approval"]["approved"] = json!(approved);
        }
    }
    message
}

/// Approves over HTTP, reads the answer, and returns what was sent.
async fn approve(bridge: &Bridge, chat: &str) -> Value {
    let copy = answered(last(bridge, chat).await, true);
    finished(bridge.post("/api/chat", &request(chat, copy.clone())).await).await;
    copy
}

async fn deny(bridge: &Bridge, chat: &str) {
    let copy = answered(last(bridge, chat).await, false);
    finished(bridge.post("/api/chat", &request(chat, copy)).await).await;
}

/// Pays one dollar and says what the wallet held before.
async fn balance(bridge: &Bridge, chat: &str) -> i64 {
    let pay = r#"call process_payment {"amount": 1, "recipient": "Hanako"}"#;
    bridge.say(chat, says(pay), "native").await;
    approve(bridge, chat).await;
    let paid = tools(bridge, chat).await.remove(0);
    paid["output"]["balance"].as_i64().unwrap() + 1
}

async fn live(bridge: &Bridge, chat: &str) -> Client {
    let key = format!("Bearer {ALICE}");
    let path = format!("/live?chat={chat}");
    let headers = [("authorization", key.as_str())];
    let (head, client) = Client::try_open_at(bridge.address(), &path, &headers).await;
    assert!(head.starts_with("HTTP/1.1 101"), "{head}");
    client
}

/// The message that waits is repeated to a client that comes.
async fn repeated(client: &mut Client) {
    while client.said().await != Said::Done {}
}

/// Reads turns until nothing is asked any more.
async fn finish(client: &mut Client) {
    loop {
        let (_, chunks) = client.turn().await;
        if chunks.last().unwrap()["finishReason"] == "stop" {
            return;
        }
    }
}

async fn last(bridge: &Bridge, chat: &str) -> Value {
    let shown = bridge.json(&format!("/api/chats/{chat}")).await;
    shown["messages"]
        .as_array()
        .unwrap()
        .last()
        .unwrap()
        .clone()
}

/// The calls of a chat's last message.
async fn tools(bridge: &Bridge, chat: &str) -> Vec<Value> {
    tool_parts(&last(bridge, chat).await)
}

fn tool_parts(message: &Value) -> Vec<Value> {
    let parts = message["parts"].as_array().unwrap().iter();
    parts
        .filter(|part| part["toolCallId"].is_string())
        .cloned()
        .collect()
}

async fn kinds(bridge: &Bridge, chat: &str) -> Vec<String> {
    let audit = bridge.json(&format!("/api/audit?chat={chat}")).await;
    let rows = audit.as_array().unwrap().iter();
    rows.map(|row| row["kind"].as_str().unwrap().to_owned())
        .collect()
}

async fn count(bridge: &Bridge, chat: &str, kind: &str) -> usize {
    let kinds = kinds(bridge, chat).await;
    kinds.iter().filter(|found| *found == kind).count()
}

/// How many questions of a chat are open.
async fn waiting(bridge: &Bridge, chat: &str) -> u64 {
    let row = listed(bridge, chat).await;
    row["pendingApprovals"].as_u64().unwrap()
}

/// What the list of chats says of one.
async fn listed(bridge: &Bridge, chat: &str) -> Value {
    let list = bridge.json("/api/chats").await;
    let mut rows = list.as_array().unwrap().iter();
    rows.find(|row| row["id"] == chat).unwrap().clone()
}
