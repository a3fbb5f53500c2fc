//! What a start, a list, a search and a chat read of the database: it grows with what is asked for, not with what else is stored.
//!
//! The operating system counts the bytes that the process has read, which are the same on any machine.

#![cfg(target_os = "linux")]

use std::path::Path;

use adk_bridge::store::sqlite::DATABASE;
use tempfile::TempDir;

use crate::served::Bridge;
use crate::{FAST, sql};

/// A few pages of an index that is a level deeper, and what the process reads besides.
const SLACK: u64 = 96 * 1024;

/// What a start may read of each chat: its row, without its messages.
const PER_CHAT: u64 = 400;

/// What a message takes in the database at most, and how often a chat's messages are gone through to show them: their sizes, an
/// outline, and pages. How much of that is still in memory depends on which connection does it.
const PER_MESSAGE: u64 = 330;
const PASSES: u64 = 5;

/// How much is stored. Every message is about 300 bytes.
#[derive(Debug, Clone, Copy)]
struct Stored {
    own_chats: u64,
    chats_of_others: u64,
    messages_per_chat: u64,
    messages_of_long_chat: u64,
}

const FEW: Stored = Stored {
    own_chats: 300,
    chats_of_others: 300,
    messages_per_chat: 5,
    // More than SQLite holds in memory, so that each of a chat's reads counts.
    messages_of_long_chat: 1_000,
};

/// The bytes that were read for each of them.
#[derive(Debug, Clone, Copy)]
struct Read {
    start: u64,
    list: u64,
    next_page: u64,
    search: u64,
    chat: u64,
    long_chat: u64,
}

#[tokio::test]
async fn nothing_reads_what_is_not_asked_for() {
    let few = read(FEW).await;
    let own = Stored {
        own_chats: 3_000,
        ..FEW
    };
    let others = Stored {
        chats_of_others: 3_000,
        ..FEW
    };
    let messages = Stored {
        messages_per_chat: 50,
        ..FEW
    };
    for stored in [own, others, messages] {
        let many = read(stored).await;
        let new_chats =
            stored.own_chats + stored.chats_of_others - FEW.own_chats - FEW.chats_of_others;
        let new_own = stored.own_chats - FEW.own_chats;
        let start = few.start + new_chats * PER_CHAT + SLACK;
        let chat = few.chat * stored.messages_per_chat / FEW.messages_per_chat;
        for (what, most, got) in [
            ("a start", start, many.start),
            ("a list", few.list + SLACK, many.list),
            ("the next page", few.next_page + SLACK, many.next_page),
            // It goes through the user's own chats, and reads nothing of the others.
            (
                "a search",
                few.search + new_own * PER_CHAT + SLACK,
                many.search,
            ),
            ("a chat", chat + SLACK, many.chat),
            // Its own messages are a third of what is stored, or less.
            ("a long chat", long_chat(FEW), many.long_chat),
        ] {
            assert!(
                got <= most,
                "{what} read {got} bytes, at most {most} were expected: {stored:?}\n{few:?}\n{many:?}"
            );
        }
    }
    let long = Stored {
        messages_of_long_chat: 4_000,
        ..FEW
    };
    let many = read(long).await;
    let most = long_chat(long);
    assert!(
        many.long_chat <= most,
        "four times the messages read {} bytes, at most {most} were expected",
        many.long_chat
    );
    // Its bytes are in it, so the limits above mean something.
    assert!(many.long_chat >= 4_000 * 250, "{many:?}");
    assert!(many.start <= few.start + SLACK, "{few:?}\n{many:?}");
}

fn long_chat(stored: Stored) -> u64 {
    stored.messages_of_long_chat * PER_MESSAGE * PASSES + SLACK
}

async fn read(stored: Stored) -> Read {
    let dir = TempDir::new().unwrap();
    drop(Bridge::serve(dir.path(), FAST));
    fill(&dir.path().join("data").join(DATABASE), stored).await;
    let bridge = Bridge::serve(dir.path(), FAST);
    let start = bytes_read(&bridge);
    let list = cost(&bridge, "/api/chats").await;
    let last = bridge.json("/api/chats").await;
    let last = last.as_array().unwrap().last().unwrap();
    let (id, at) = (last["id"].as_str().unwrap(), &last["updatedAt"]);
    let next_page = cost(&bridge, &format!("/api/chats?before={id}&at={at}")).await;
    let search = cost(&bridge, "/api/chats?q=nothing").await;
    let chat = cost(&bridge, "/api/chats/own1").await;
    let long_chat = cost(&bridge, "/api/chats/long").await;
    Read {
        start,
        list,
        next_page,
        search,
        chat,
        long_chat,
    }
}

async fn cost(bridge: &Bridge, path: &str) -> u64 {
    let before = bytes_read(bridge);
    bridge.json(path).await;
    bytes_read(bridge) - before
}

/// What the process has asked the operating system for, from files that were in memory already, too.
fn bytes_read(bridge: &Bridge) -> u64 {
    let counts = std::fs::read_to_string(format!("/proc/{}/io", bridge.process())).unwrap();
    let read = counts.lines().find_map(|line| line.strip_prefix("rchar: "));
    read.unwrap().parse().unwrap()
}

async fn fill(database: &Path, stored: Stored) {
    let Stored {
        own_chats,
        chats_of_others,
        messages_per_chat,
        messages_of_long_chat,
    } = stored;
    let text = "x".repeat(200);
    let chats = |count: u64, user: &str, name: &str| {
        format!(
            "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {count})
             INSERT INTO chats (key, user, id, title, created_at, updated_at, bytes)
             SELECT '{name}' || i, {user}, '{name}' || i, 'The title of a chat', i, i, 300 FROM n;"
        )
    };
    let messages = |chats: u64, per_chat: u64, chat: &str| {
        let count = chats * per_chat;
        // The messages of a chat do not lie next to each other, as if all chats had grown together.
        format!(
            r#"WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {count} - 1)
               INSERT INTO messages (chat, id, state, body)
               SELECT {chat}, 'm' || i, 'done',
                      '{{"id":"m' || i || '","role":"user","parts":[{{"type":"text","text":"{text}"}}]}}'
               FROM n;"#
        )
    };
    let mut all = String::from("BEGIN;");
    all += &chats(own_chats, "'local'", "own");
    all += &chats(chats_of_others, "'user' || (i % 50)", "other");
    all += &messages(
        own_chats,
        messages_per_chat,
        &format!("'own' || (1 + i % {own_chats})"),
    );
    all += &messages(
        chats_of_others,
        messages_per_chat,
        &format!("'other' || (1 + i % {chats_of_others})"),
    );
    all += "INSERT INTO chats (key, user, id, created_at, updated_at, bytes)
            VALUES ('long', 'local', 'long', 0, 0, 300);";
    all += &messages(1, messages_of_long_chat, "'long'");
    // Otherwise the first read notes that they were, at times after its answer.
    all += "INSERT INTO seen (seq) SELECT seq FROM messages;";
    all += "COMMIT; PRAGMA wal_checkpoint(TRUNCATE);";
    sql(database, &all).await;
}
